"""Layers in plain numpy: for what no compiled kernel computes.

Knows no model; weights are read by the names that `models` gives them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from exactk.engine.packing import Weights


def linear(weights: Weights, name: str, x: Float[np.ndarray, "*S n"]) -> Float[np.ndarray, "*S m"]:
    """W x + b of a layer, b where it has one."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    # One product of matrices: of an array with more axes numpy makes many small ones.
    y = x.reshape(-1, x.shape[-1]) @ weight.T
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


def encoder_layer(
    layer: Weights,
    nodes: Float[np.ndarray, "B N D"],
    present: Bool[np.ndarray, "B N"],
    heads: int,
) -> tuple[Float[np.ndarray, "B N D"], Float[np.ndarray, "B H N N"]]:
    """Self-attention, then two linear maps around a ReLU (eq. 6 to 8); new nodes, and who attends to whom."""
    B, N, D = nodes.shape
    parts = (nodes @ layer["attention.project.weight"].T).reshape(B, N, -1, heads, D // heads)
    query, key, value = np.broadcast_to(parts.transpose(2, 0, 3, 1, 4), (3, B, heads, N, D // heads))
    scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(D // heads))  # B H N N
    attention = softmax(np.where(present[:, None, None, :], scores, np.finfo(np.float32).min))
    mixed = (attention @ value).swapaxes(1, 2).reshape(B, N, D) @ layer["attention.join.weight"].T
    nodes = normed(layer, "attention_norm", nodes + mixed)
    fed = linear(layer, "narrow", np.maximum(linear(layer, "widen", nodes), 0))
    return normed(layer, "feed_forward_norm", nodes + fed), attention


def normed(weights: Weights, name: str, x: Float[np.ndarray, "*S D"]) -> Float[np.ndarray, "*S D"]:
    """Layer norm."""
    apart = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(apart * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def softmax(x: Float[np.ndarray, "*S n"]) -> Float[np.ndarray, "*S n"]:
    """Along the last axis."""
    raised = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def log_softmax(x: Float[np.ndarray, "*S n"]) -> Float[np.ndarray, "*S n"]:
    """Along the last axis, as logarithms."""
    apart = x - x.max(-1, keepdims=True)
    return np.asarray(apart - np.log(np.exp(apart).sum(-1, keepdims=True)))


def sigmoid(x: Float[np.ndarray, "*S"]) -> Float[np.ndarray, "*S"]:
    """1 / (1 + e^-x), which overflows nowhere as a hyperbolic tangent."""
    return np.asarray(0.5 + 0.5 * np.tanh(x / 2))
