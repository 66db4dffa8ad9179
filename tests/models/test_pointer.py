"""The decoder: by hand, by an independent formula, step by step as all at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from exactk.models.pointer import EncodedRequests, Pointer, State, additive
from exactk.search.steps import take_rows
from exactk.settings.config import PolicyConfig

Array = np.ndarray


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


def formula(pointer: Pointer, nodes: Array, card: list[int]) -> list[Array]:
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
    pointer, encoded = made(2)
    cards = torch.tensor([[[0, 3, 1]], [[2, 4, 0]], [[1, 0, 4]]])
    scores = pointer.replay(encoded, cards)
    for b in range(3):
        expected = formula(pointer, encoded.nodes[b].numpy().astype(float), cards[b, 0].tolist())
        assert np.allclose(scores[b, 0].detach().numpy(), np.array(expected), atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_replay_is_step_after_step(layers: int) -> None:
    pointer, encoded = made(layers)
    cards = torch.tensor([[[0, 3, 1], [4, 2, 0]], [[2, 4, 0], [1, 3, 0]], [[1, 0, 4], [0, 1, 4]]])
    replayed = pointer.replay(encoded, cards)
    state = pointer.start(encoded, 2)
    for t in range(3):
        assert torch.allclose(pointer.step(encoded, state), replayed[:, :, t], atol=1e-5)
        state = pointer.advance(encoded, state, cards[:, :, t])


def test_a_card_of_one_is_replayed_from_the_start() -> None:
    pointer, encoded = made(2)
    replayed = pointer.replay(encoded, torch.tensor([[[0], [3]]] * 3))
    assert replayed.shape == (3, 2, 1, 5)
    assert torch.allclose(replayed[:, :, 0], pointer.step(encoded, pointer.start(encoded, 2)), atol=1e-6)


def test_the_first_state_is_the_same_for_every_row() -> None:
    pointer, encoded = made(2)
    state = pointer.start(encoded, 4)
    assert state.hidden.shape == (3, 4, 2, 6)
    assert state.hidden.eq(state.hidden[:1, :1]).all()
    zero = np.zeros(6)
    first, _ = lstm(weights_of(pointer), 0, zero, zero, zero)
    assert np.allclose(state.hidden[0, 0, 0].detach().numpy(), first, atol=1e-6)


def test_rows_can_be_re_parented_by_indexing() -> None:
    pointer, encoded = made(2)
    state = pointer.advance(encoded, pointer.start(encoded, 2), torch.tensor([[0, 1], [2, 3], [4, 0]]))
    swapped = take_rows(state, torch.tensor([[1, 0, 1]] * 3))
    assert isinstance(swapped, State)
    scores = pointer.step(encoded, state)
    assert torch.allclose(pointer.step(encoded, swapped), scores[:, [1, 0, 1]], atol=1e-6)


def test_the_glimpse_does_not_see_absent_nodes() -> None:
    pointer = Pointer(PolicyConfig(width=6, heads=1))
    nodes = torch.randn(2, 5, 6)
    present = torch.tensor([[True, True, True, False, False]] * 2)
    cards = torch.tensor([[[0, 2]], [[1, 0]]])
    padded = pointer.replay(pointer.encode(nodes, present), cards)[..., :3]
    assert torch.allclose(padded, pointer.replay(pointer.encode(nodes[:, :3], None), cards), atol=1e-5)
