"""The encoder: by hand, by an independent formula, and blind to the order of its nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from exactk.models.encoder import Encoder, SelfAttention
from exactk.settings.config import PolicyConfig

Array = np.ndarray


def test_self_attention_by_hand() -> None:
    # One head of width 1, W_h = W_O = 1, nodes 0 and ln 3: EE^T = [[0, 0], [0, ln^2 3]].
    attention = SelfAttention(1, 1, shared=True)
    with torch.no_grad():
        attention.project.weight.fill_(1.0)
        attention.join.weight.fill_(1.0)
    log3 = math.log(3)
    mixed, weights = attention(torch.tensor([[[0.0], [log3]]]), None)
    share = math.exp(log3**2) / (1 + math.exp(log3**2))
    assert weights.flatten().tolist() == pytest.approx([0.5, 0.5, 1 - share, share])
    assert mixed.flatten().tolist() == pytest.approx([log3 / 2, share * log3])


def softmax(rows: Array) -> Array:
    e = np.exp(rows - rows.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def norm(rows: Array) -> Array:
    return np.asarray((rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5))


def formula(encoder: Encoder, nodes: Array, config: PolicyConfig) -> Array:
    """Eq. 5 to 8 for one request, written with numpy from the paper."""
    parts = {name: p.detach().numpy().astype(float) for name, p in encoder.named_parameters()}
    h = nodes @ parts["embed.weight"].T + parts["embed.bias"]
    d = config.width // config.heads
    for layer in range(config.encoder_layers):
        own = {name.removeprefix(f"layers.{layer}."): p for name, p in parts.items()}
        heads = []
        for m in range(config.heads):
            if config.attention == "shared":
                e = h @ own["attention.project.weight"][m * d : (m + 1) * d].T
                q, k, v = e, e, e
            else:
                q, k, v = (
                    h @ own["attention.project.weight"][part * config.width + m * d :][:d].T
                    for part in range(3)
                )
            heads.append(softmax(q @ k.T / math.sqrt(d)) @ v)
        h = norm(h + np.concatenate(heads, 1) @ own["attention.join.weight"].T)
        ff = np.maximum(h @ own["widen.weight"].T + own["widen.bias"], 0)
        h = norm(h + ff @ own["narrow.weight"].T + own["narrow.bias"])
    return np.asarray(h)


@pytest.mark.parametrize("attention", ["shared", "qkv"])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_encoder_is_the_papers_formula(attention: str, heads: int) -> None:
    config = PolicyConfig(width=8, heads=heads, attention=attention, feed_forward_size=6)  # type: ignore[arg-type]
    encoder, nodes = Encoder(config), torch.randn(3, 5, 8)
    encoded = encoder(nodes)
    for b in range(3):
        assert np.allclose(encoded[b].detach().numpy(), formula(encoder, nodes[b].numpy(), config), atol=1e-5)


def test_permuting_the_nodes_permutes_their_embeddings() -> None:
    encoder, nodes = Encoder(PolicyConfig()), torch.randn(2, 9, 32)
    order = torch.randperm(9)
    assert torch.allclose(encoder(nodes[:, order]), encoder(nodes)[:, order], atol=1e-5)


def test_absent_nodes_change_nothing() -> None:
    encoder, nodes = Encoder(PolicyConfig()), torch.randn(2, 6, 32)
    present = torch.tensor([[True] * 4 + [False] * 2] * 2)
    padded = encoder(nodes, present)
    assert torch.allclose(padded[:, :4], encoder(nodes[:, :4]), atol=1e-5)
    other = nodes.clone()
    other[:, 4:] = 100.0
    assert torch.allclose(encoder(other, present)[:, :4], padded[:, :4], atol=1e-5)


def test_attention_can_be_seen_per_layer_and_head() -> None:
    encoder, nodes = Encoder(PolicyConfig(encoder_layers=3, heads=4)), torch.randn(2, 6, 32)
    present = torch.tensor([[True] * 6, [True] * 5 + [False]])
    seen = encoder.attention(nodes, present)
    assert seen.shape == (2, 3, 4, 6, 6)
    assert torch.allclose(seen.sum(-1), torch.ones(2, 3, 4, 6))
    assert seen[1, ..., 5].eq(0).all()


def test_without_layers_the_encoder_is_its_linear_map() -> None:
    encoder, nodes = Encoder(PolicyConfig(encoder_layers=0)), torch.randn(1, 3, 32)
    assert encoder(nodes).equal(encoder.embed(nodes))
