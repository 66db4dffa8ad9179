"""Encoder and decoder: by hand, by independent formulas; blind to the order of nodes, step by step as all at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from exactk.models.gattn import (
    EncodedRequests,
    Encoder,
    Pointer,
    PointerSteps,
    SelfAttention,
    State,
    additive,
)
from exactk.search.decoding import take_rows
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


def encoded_by_formula(encoder: Encoder, nodes: Array, config: PolicyConfig) -> Array:
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
        assert np.allclose(
            encoded[b].detach().numpy(), encoded_by_formula(encoder, nodes[b].numpy(), config), atol=1e-5
        )


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


def made(layers: int, width: int = 6, num_nodes: int = 5, num: int = 3) -> tuple[Pointer, EncodedRequests]:
    pointer = Pointer(PolicyConfig(width=width, heads=1, decoder_layers=layers))
    return pointer, pointer.encode(torch.randn(num, num_nodes, width), None)


def test_additive_attention_by_hand() -> None:
    # v = (1, -2), query (0, 1), key (1, -1): tanh 1 - 2 tanh 0 = tanh 1; key (0, 0): -2 tanh 1.
    vector = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        vector.weight.copy_(torch.tensor([[1.0, -2.0]]))
    keys = torch.tensor([[[1.0, -1.0], [0.0, 0.0]]])
    scores = additive(torch.tensor([[[0.0, 1.0]]]), 2 * keys, vector)
    assert scores.flatten().tolist() == pytest.approx([math.tanh(1), -2 * math.tanh(1)], abs=1e-6)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def weights_of(pointer: Pointer) -> dict[str, Array]:
    return {name: p.detach().numpy().astype(float) for name, p in pointer.named_parameters()}


def lstm(w: dict[str, Array], layer: int, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    gates = sum(
        w[f"recurrent.weight_{kind}_l{layer}"] @ v + w[f"recurrent.bias_{kind}_l{layer}"]
        for kind, v in (("ih", x), ("hh", h))
    )
    i, f, g, o = np.split(np.asarray(gates), 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def decoded_by_formula(pointer: Pointer, nodes: Array, card: list[int]) -> list[Array]:
    """u_tj before each choice of a card (eq. 11 to 13, two LSTM layers), with numpy, one request, from the paper."""
    w, D = weights_of(pointer), nodes.shape[1]
    glimpse_key, pointer_key = np.split(w["keys.weight"], 2)
    hidden, cell = [np.zeros(D)] * 2, [np.zeros(D)] * 2
    scores = []
    for a in [None, *card[:-1]]:
        x = np.zeros(D) if a is None else nodes[a]
        for layer in range(2):
            hidden[layer], cell[layer] = lstm(w, layer, x, hidden[layer], cell[layer])
            x = hidden[layer]
        e = np.array([np.tanh(w["glimpse_query.weight"] @ x + glimpse_key @ h) for h in nodes])
        e = (e @ w["glimpse_vector.weight"].T)[:, 0]
        attention = np.exp(e - e.max()) / np.exp(e - e.max()).sum()
        query = w["pointer_query.weight"] @ np.concatenate([x, attention @ nodes])
        u = np.array([np.tanh(query + pointer_key @ h) for h in nodes]) @ w["pointer_vector.weight"].T
        scores.append(u[:, 0])
    return scores


def test_the_decoder_is_the_papers_formula() -> None:
    steps = PointerSteps(*made(2))
    cards = torch.tensor([[[0, 3, 1]], [[2, 4, 0]], [[1, 0, 4]]])
    scores = steps.replay(cards)
    for b in range(3):
        nodes = steps.encoded.nodes[b].numpy().astype(float)
        expected = decoded_by_formula(steps.pointer, nodes, cards[b, 0].tolist())
        assert np.allclose(scores[b, 0].detach().numpy(), np.array(expected), atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_replay_is_step_after_step(layers: int) -> None:
    steps = PointerSteps(*made(layers))
    cards = torch.tensor([[[0, 3, 1], [4, 2, 0]], [[2, 4, 0], [1, 3, 0]], [[1, 0, 4], [0, 1, 4]]])
    replayed = steps.replay(cards)
    state = steps.start(2)
    for t in range(3):
        assert torch.allclose(steps.step(state), replayed[:, :, t], atol=1e-5)
        state = steps.advance(state, cards[:, :, t])


def test_a_card_of_one_is_replayed_from_the_start() -> None:
    steps = PointerSteps(*made(2))
    replayed = steps.replay(torch.tensor([[[0], [3]]] * 3))
    assert replayed.shape == (3, 2, 1, 5)
    assert torch.allclose(replayed[:, :, 0], steps.step(steps.start(2)), atol=1e-6)


def test_the_first_state_is_the_same_for_every_row() -> None:
    steps = PointerSteps(*made(2))
    state = steps.start(4)
    assert state.hidden.shape == (3, 4, 2, 6)
    assert state.hidden.eq(state.hidden[:1, :1]).all()
    zero = np.zeros(6)
    first, _ = lstm(weights_of(steps.pointer), 0, zero, zero, zero)
    assert np.allclose(state.hidden[0, 0, 0].detach().numpy(), first, atol=1e-6)


def test_rows_can_be_re_parented_by_indexing() -> None:
    steps = PointerSteps(*made(2))
    state = steps.advance(steps.start(2), torch.tensor([[0, 1], [2, 3], [4, 0]]))
    swapped = take_rows(state, torch.tensor([[1, 0, 1]] * 3))
    assert isinstance(swapped, State)
    scores = steps.step(state)
    assert torch.allclose(steps.step(swapped), scores[:, [1, 0, 1]], atol=1e-6)


def test_the_glimpse_does_not_see_absent_nodes() -> None:
    pointer = Pointer(PolicyConfig(width=6, heads=1))
    nodes = torch.randn(2, 5, 6)
    present = torch.tensor([[True, True, True, False, False]] * 2)
    cards = torch.tensor([[[0, 2]], [[1, 0]]])
    padded = PointerSteps(pointer, pointer.encode(nodes, present)).replay(cards)[..., :3]
    assert torch.allclose(
        padded, PointerSteps(pointer, pointer.encode(nodes[:, :3], None)).replay(cards), atol=1e-5
    )
