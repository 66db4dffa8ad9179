"""The rivals' losses against hand numbers, closed-form gradients and torch's own."""

from __future__ import annotations

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from exactk.errors import InputError
from exactk.rivals import RIVALS, method
from exactk.rivals.contract import Budget, Logs
from exactk.rivals.item_networks import _read
from exactk.rivals.selection import Judge
from exactk.rivals.training import bpr_loss, pointwise_loss, softmax_loss
from exactk.search.feasible import mark
from rival_logs import planted_logs

SCORES = torch.tensor([[2.0, 0.0, -1.0, 1.0], [0.5, 0.5, 0.0, -2.0]])
LIKED = torch.tensor([[True, False, False, False], [False] * 4])


def test_shown_items_mark_the_card_and_never_the_padding() -> None:
    marks = mark(torch.tensor([[[2, 0, -1]], [[3, 1, 2]]]), 4).squeeze(1)
    assert marks.long().tolist() == [[1, 0, 1, 0], [0, 1, 1, 1]]


def test_pointwise_loss_by_hand() -> None:
    # Row 0 shows 0 (clicked) and 2; row 1 shows 1 and nothing is clicked.
    counted = torch.tensor([[True, False, True, False], [False, True, False, False]])
    expected = (math.log1p(math.exp(-2.0)) + math.log1p(math.exp(-1.0)) + math.log1p(math.exp(0.5))) / 3
    assert pointwise_loss(SCORES, counted, LIKED).item() == pytest.approx(expected)


def test_bpr_loss_by_hand() -> None:
    # Only row 0 has a click: clicked 2.0 against 0.0 and 1.0 (position 2 is not among the others).
    others = torch.tensor([[True, True, False, True], [True, True, True, True]])
    expected = (math.log1p(math.exp(-2.0)) + math.log1p(math.exp(-1.0))) / 2
    assert bpr_loss(SCORES, others, LIKED).item() == pytest.approx(expected)


def test_the_gradient_of_bpr_is_rendles() -> None:
    # d/dx_uij of -ln sigmoid(x_uij) is -sigmoid(-x_uij), x_uij = s_i - s_j.
    scores = SCORES[:1].clone().double().requires_grad_()
    bpr_loss(scores, torch.tensor([[True, True, False, False]]), LIKED[:1]).backward()  # type: ignore[no-untyped-call]
    slope = 1 / (1 + math.exp(2.0))
    assert scores.grad is not None
    assert scores.grad.tolist() == [[pytest.approx(-slope), pytest.approx(slope), 0.0, 0.0]]


def test_softmax_loss_is_cross_entropy_over_what_is_present() -> None:
    present = torch.tensor([[True, True, False, True], [True, True, True, True]])
    liked = torch.tensor([[False, False, False, True], [False, True, False, False]])
    expected = (
        torch.nn.functional.cross_entropy(SCORES[:1, [0, 1, 3]], torch.tensor([2]))
        + torch.nn.functional.cross_entropy(SCORES[1:], torch.tensor([1]))
    ) / 2
    assert softmax_loss(SCORES, present, liked).item() == pytest.approx(expected.item())


def test_of_several_liked_items_each_counts_as_much() -> None:
    # Row 0 likes 0 (2.0) and 3 (1.0) and passes over 1 (0.0) and 2 (-1.0); row 1 likes nothing.
    liked, everything = (
        torch.tensor([[True, False, False, True], [False] * 4]),
        torch.ones(2, 4, dtype=torch.bool),
    )
    share = torch.log_softmax(SCORES[0], 0)
    assert softmax_loss(SCORES, everything, liked).item() == pytest.approx(-(share[0] + share[3]).item() / 2)
    gaps = [2.0, 3.0, 1.0, 2.0]  # 0 over 1 and 2, 3 over 1 and 2
    expected = sum(math.log1p(math.exp(-gap)) for gap in gaps) / 4
    assert bpr_loss(SCORES, everything, liked).item() == pytest.approx(expected)


def test_rows_without_click_teach_the_listwise_losses_nothing() -> None:
    scores = SCORES.clone().requires_grad_()
    everything = torch.ones(2, 4, dtype=torch.bool)
    loss = softmax_loss(scores, everything, ~everything) + bpr_loss(scores, everything, ~everything)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0.0
    assert scores.grad is not None
    assert scores.grad.abs().sum().item() == 0.0


STUDIOUS = Budget(trials=1, epochs=30, patience=8, batch_size=64, validation_rows=256)
BY_IDS = ["mf-softmax", "bpr", "deeprank", "listwise-gru", "listwise-mhsa", "prm", "setrank", "seq2slate"]


@pytest.fixture(scope="module")
def by_ids(tmp_path_factory: pytest.TempPathFactory) -> tuple[Logs, Logs, Logs]:
    return planted_logs(tmp_path_factory.mktemp("ids") / "log", num=1500)


@pytest.fixture(scope="module")
def by_features(tmp_path_factory: pytest.TempPathFactory) -> tuple[Logs, Logs, Logs]:
    return planted_logs(tmp_path_factory.mktemp("features") / "log", num=1500, features=True)


@pytest.mark.parametrize("name", BY_IDS)
def test_a_planted_taste_is_learned_from_ids(name: str, by_ids: tuple[Logs, Logs, Logs]) -> None:
    train, valid, test = by_ids
    fitted = method(name)(train, valid, STUDIOUS)
    judge = Judge.of(test, STUDIOUS)
    # Two of eight candidates are of one's own club: three picks can always hold them. Chance finds 3 of 8.
    for way, recommender in fitted.ways.items():
        if not way.endswith(("MMR", "DPP")):
            assert judge(recommender) > 0.8, way


def test_trees_learn_it_from_features(by_features: tuple[Logs, Logs, Logs]) -> None:
    if find_spec("lightgbm") is None:
        pytest.skip("lightgbm is not installed; the extra 'rivals' brings it")
    train, valid, test = by_features
    fitted = method("lambdarank")(train, valid, STUDIOUS)
    assert Judge.of(test, STUDIOUS)(fitted.ways["LambdaRank greedy"]) > 0.8


@pytest.mark.parametrize(
    ("name", "way"), [("implicit-als", "implicit ALS"), ("implicit-bpr", "implicit BPR")]
)
def test_implicit_learns_it_from_clicks(name: str, way: str, by_ids: tuple[Logs, Logs, Logs]) -> None:
    if find_spec("implicit") is None:
        pytest.skip("implicit is not installed; the extra 'rivals' brings it")
    train, valid, test = by_ids
    fitted = method(name)(train, valid, STUDIOUS)
    assert Judge.of(test, STUDIOUS)(fitted.ways[f"{way} greedy"]) > 0.8


def test_the_same_seed_trains_the_same_network(by_features: tuple[Logs, Logs, Logs]) -> None:
    train, valid, test = by_features
    short = Budget(trials=1, epochs=1, batch_size=64, validation_rows=64)
    batch = next(iter(test.batches(32)))
    cards = [method("prm")(train, valid, short).ways["PRM greedy"].recommend(batch) for _ in range(2)]
    assert np.array_equal(cards[0], cards[1])


def test_a_ragged_list_is_read_as_packed_sequences_are() -> None:
    torch.manual_seed(0)
    recurrent = nn.GRU(4, 4, batch_first=True)
    nn.init.normal_(recurrent.get_parameter("bias_ih_l0"))  # a bias that would move the state over padding
    nodes = torch.randn(3, 5, 4)
    lengths = [5, 2, 4]
    real = torch.tensor(
        [[False] * (5 - n) + [True] * n for n in lengths]
    )  # as in the reversed list: absent first
    outputs = _read(recurrent, nodes, real)
    for b, n in enumerate(lengths):
        torch.testing.assert_close(outputs[b, 5 - n :], recurrent(nodes[b : b + 1, 5 - n :])[0][0])
        assert outputs[b, : 5 - n].abs().sum() == 0


def test_an_unknown_rival_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match="unknown rival 'bprr'; there are random, logged-policy"):
        method("bprr")
    assert all(callable(method(name)) for name in RIVALS)
