"""Deciding on the CPU; here what all its models share: weights as compiled code takes them, what a batch holds, layers.

Knows no model. `Weights` are what a state dict holds, as numpy arrays: of a saved model, or of one still in training.
Layers are in plain numpy, for what no compiled kernel computes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import Inputs, InputSizes, decided

Weights = Mapping[str, np.ndarray]


def part_of(weights: Weights, name: str) -> dict[str, np.ndarray]:
    """The weights below a name: of "members.0.table" the part "members.0" holds "table"."""
    return {key[len(name) + 1 :]: array for key, array in weights.items() if key.startswith(f"{name}.")}


def plain(values: np.ndarray) -> np.ndarray:
    """The numbers row after row, int64 or float32."""
    return np.ascontiguousarray(values, np.float32 if values.dtype.kind == "f" else np.int64)


def packed(parts: list[np.ndarray]) -> Float32[np.ndarray, "n"]:
    """All parts one after the other, from a cache line on."""
    weights = aligned(sum(part.size for part in parts))
    np.concatenate([part.reshape(-1) for part in parts], out=weights, casting="same_kind")
    return weights


def aligned(size: int) -> Float32[np.ndarray, "n"]:
    """Zeros that begin on a cache line: a register's load then never touches two."""
    room = np.zeros(size + 16, np.float32)
    skip = (-room.ctypes.data // 4) % 16
    return room[skip : skip + size]


class Scratch(threading.local):
    """Each thread's own working memory, zero where nothing was written since its `purpose` changed."""

    purpose: object = None
    room: np.ndarray

    def of(self, purpose: object, size: int) -> Float32[np.ndarray, "n"]:
        """So many numbers; what was written there for the same purpose still stands."""
        if self.purpose != purpose:
            self.room, self.purpose = aligned(size), purpose
        return self.room


def laid_out(needed: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Where in a scratch array everything begins, each on a register of its own; and where the last one ends."""
    places, used = {}, 0
    for name, size in needed.items():
        places[name] = used
        used += rounded(size)
    return places, used


def rounded(size: int, multiple: int = 16) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def padded(matrix: Float32[np.ndarray, "out in"], rows: int, columns: int) -> Float32[np.ndarray, "r c"]:
    """The matrix [out, in] transposed, then zeros to the right and below."""
    return np.pad(matrix.T, [(0, rows - matrix.shape[1]), (0, columns - matrix.shape[0])])


def in_groups(vector: Float32[np.ndarray, "*S n"], groups: int, size: int) -> Float32[np.ndarray, "*S m"]:
    """Groups of numbers along the last axis, each padded to `size`."""
    apart = vector.reshape(*vector.shape[:-1], groups, -1)
    wider = np.pad(apart, [*[(0, 0)] * vector.ndim, (0, size - apart.shape[-1])])
    return wider.reshape(*vector.shape[:-1], groups * size)


def padded_row(vector: Float32[np.ndarray, "*S n"], size: int) -> Float32[np.ndarray, "*S m"]:
    """Zeros to the right."""
    return in_groups(vector, 1, size)


def padded_linear(weights: Weights, name: str, inputs: int, outputs: int) -> list[np.ndarray]:
    """A layer's matrix, transposed, and its bias."""
    return [padded(weights[f"{name}.weight"], inputs, outputs), padded_row(weights[f"{name}.bias"], outputs)]


def padded_norm(weights: Weights, name: str, width: int) -> list[np.ndarray]:
    """Weights and biases of a layer norm."""
    return [padded_row(weights[f"{name}.{part}"], width) for part in ("weight", "bias")]


class Features(NamedTuple):
    """Of a batch, as compiled code takes them; no columns where there are none."""

    user: Float32[np.ndarray, "B f"]
    item: Float32[np.ndarray, "B N g"]


@dataclass(frozen=True, eq=False)
class NumpyVectors:
    """Tables of ids (0 x 0 where none is read) and how many features follow an id's embedding."""

    users: Float32[np.ndarray, "U e"]
    items: Float32[np.ndarray, "I e"]
    user_feature_size: int
    item_feature_size: int

    @classmethod
    def of(cls, weights: Weights, inputs: Inputs, sizes: InputSizes) -> NumpyVectors:
        """From the weights of a model's `vectors`."""
        none = np.zeros((0, 0), np.float32)
        by_ids = decided(inputs, sizes) == "ids"
        return cls(
            users=plain(weights.get("users.weight", none)),
            items=plain(weights.get("items.weight", none)),
            user_feature_size=0 if by_ids else sizes.user_feature_size,
            item_feature_size=0 if by_ids else sizes.item_feature_size,
        )

    @property
    def user_size(self) -> int:
        """Numbers of x_u."""
        return int(self.users.shape[1]) + self.user_feature_size

    @property
    def item_size(self) -> int:
        """Numbers of x_s."""
        return int(self.items.shape[1]) + self.item_feature_size

    def features(self, batch: Batch) -> Features:
        """User and item features; a batch with others than the model reads is refused."""
        B, N = batch.item.shape
        return Features(
            _checked(batch.user_features, self.user_feature_size, (B,), "user"),
            _checked(batch.item_features, self.item_feature_size, (B, N), "item"),
        )

    def user(self, batch: Batch) -> Float[np.ndarray, "B Du"]:
        """x_u."""
        return self._joined(self.users, batch.user, self.features(batch).user)

    def item(self, batch: Batch) -> Float[np.ndarray, "B N Di"]:
        """x_s of every candidate."""
        return self._joined(self.items, batch.item, self.features(batch).item)

    def item_rows(
        self, item: Int[np.ndarray, "I"], features: Float[np.ndarray, "I f"] | None
    ) -> Float[np.ndarray, "I Di"]:
        """x_s of items by their index, outside any request."""
        own = _checked(features, self.item_feature_size, (len(item),), "item")
        return self._joined(self.items, item, own)

    def _joined(self, table: np.ndarray, ids: np.ndarray, features: np.ndarray) -> np.ndarray:
        if not table.shape[1]:
            return features
        outside = (ids < 0) | (ids >= len(table))
        if outside.any():
            b = int(np.flatnonzero(outside.reshape(len(ids), -1).any(1))[0])
            raise unknown_id(b, self)
        return np.concatenate([table[ids], features], -1) if features.shape[-1] else table[ids]


def unknown_id(b: int, vectors: NumpyVectors) -> InputError:
    """An id beyond the tables: no vocabulary of this model gives one."""
    return InputError(
        f"request {b} of the batch names a user or item the model has no row for: "
        f"users are 0..{len(vectors.users) - 1}, items 0..{len(vectors.items) - 1}"
    )


def _checked(
    features: Float[np.ndarray, "*S f"] | None, size: int, shape: tuple[int, ...], name: str
) -> Float32[np.ndarray, "*S g"]:
    if not size:
        return np.zeros((*shape, 0), np.float32)
    if features is None or features.shape[-1] != size:
        given = "none" if features is None else str(features.shape[-1])
        raise InputError(f"this model reads {size} {name} features, the batch has {given}")
    return plain(features)


def taken(
    values: Float[np.ndarray, "B N d"], cards: Int[np.ndarray, "B S K"]
) -> Float[np.ndarray, "B S K d"]:
    """The rows of the items on cards; of an absent one (-1) some candidate's, for the caller to mask."""
    return np.asarray(values[np.arange(len(cards))[:, None, None], np.maximum(cards, 0)])


def linear(weights: Weights, name: str, x: Float[np.ndarray, "*S n"]) -> Float[np.ndarray, "*S m"]:
    """W x + b of a layer, b where it has one."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    # One product of matrices: of an array with more axes numpy makes many small ones.
    y = x.reshape(-1, x.shape[-1]) @ weight.T
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


def encoder_layer(
    layer: Weights, nodes: Float[np.ndarray, "B N D"], present: Bool[np.ndarray, "B N"], heads: int
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
