"""Every learning rival finds a planted truth: everybody likes the items of their own club."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from exactk.errors import InputError
from exactk.rivals import RIVALS, method
from exactk.rivals.contract import Budget, Logs
from exactk.rivals.listwise import _read
from exactk.rivals.selection import Judge
from rival_logs import planted_logs

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
