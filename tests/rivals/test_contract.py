"""The contract every recommender keeps: exact K, valid, no repeats, order-free, batch = single, ragged N."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from card_logs import write_log
from exactk.data import Dataset, Meta
from exactk.data.logs.frame import from_frame
from exactk.errors import ConfigError, InputError
from exactk.evaluation.jobs import resolve
from exactk.evaluation.metrics import valid_cards
from exactk.evaluation.ours import OURS
from exactk.problem.batch import Batch
from exactk.rivals import RIVALS, method
from exactk.rivals.contract import Budget, CardPicker, Logs
from exactk.rivals.selection import Judge
from hotel_logs import hotel_rows
from rival_logs import TINY, planted_logs

LIBRARY = {"lambdarank": "lightgbm", "implicit-als": "implicit", "implicit-bpr": "implicit"}


@cache
def logs() -> tuple[Logs, Logs, Logs]:
    """Requests with 6 to 9 candidates, with features; the folder lives as long as the tests do."""
    folder = TemporaryDirectory(prefix="exactk-contract-")
    KEPT.append(folder)
    return planted_logs(Path(folder.name) / "log", num=400, features=True, sizes=(6, 9))


KEPT: list[TemporaryDirectory[str]] = []


@cache
def ways(name: str) -> Mapping[str, CardPicker]:
    if name in LIBRARY and find_spec(LIBRARY[name]) is None:
        pytest.skip(f"{LIBRARY[name]} is not installed; the extra 'rivals' brings it")
    train, valid, _ = logs()
    fit = resolve(OURS[name]) if name in OURS else method(name)
    return fit(train, valid, TINY).ways


@cache
def cardless() -> tuple[Logs, Logs, Logs]:
    """Lists shown whole: no column says what was on a card."""
    folder = TemporaryDirectory(prefix="exactk-contract-")
    KEPT.append(folder)
    rows = hotel_rows(200).drop_columns(["on_card", "shown"])
    return Logs.of(*from_frame(rows, path=Path(folder.name) / "log").split())  # type: ignore[return-value]


@pytest.mark.parametrize("name", [*RIVALS, *OURS])
def test_a_log_of_lists_without_cards_is_learned_from_or_refused_in_words(name: str) -> None:
    """LambdaRank once left the table by an error of LightGBM, GAttN by one of torch."""
    if name in LIBRARY and find_spec(LIBRARY[name]) is None:
        pytest.skip(f"{LIBRARY[name]} is not installed; the extra 'rivals' brings it")
    train, valid, test = cardless()
    fit = resolve(OURS[name]) if name in OURS else method(name)
    if name in CARDS_ALONE:
        with pytest.raises((ConfigError, InputError), match=CARDS_ALONE[name]):
            fit(train, valid, TINY)
        return
    batch = next(iter(test.batches(8)))
    for way in fit(train, valid, TINY).ways.values():
        assert valid_cards(batch.requests(), way.recommend(batch)).all()


@cache
def bundles() -> tuple[Logs, Logs, Logs]:
    """Cards that people put together, none of their items named: three of the four even items among eight."""
    folder = TemporaryDirectory(prefix="exactk-contract-")
    KEPT.append(folder)
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for r in range(400):
        liked, other = 2 * rng.permutation(12)[:4], 2 * rng.permutation(12)[:4] + 1
        card = [f"i{n}" for n in liked[:3]]
        candidates = [f"i{n}" for n in rng.permutation([*liked, *other])]
        row = {"request_id": r, "user_id": f"u{r % 20}", "candidates": candidates, "card": card}
        rows.append({**row, "clicked": True, "clicked_item": None})
    items = [{"item_id": f"i{n}"} for n in range(24)]
    users = [{"user_id": f"u{n}"} for n in range(20)]
    data = Dataset.open(write_log(Path(folder.name) / "log", rows, items, users, Meta()))
    return Logs.of(*data.split("random", valid=0.2, test=0.2))  # type: ignore[return-value]


@pytest.mark.parametrize("name", [*RIVALS, *OURS])
def test_cards_chosen_whole_are_learned_from_or_refused_in_words(name: str) -> None:
    """No item of theirs is named, and so item scores were trained on nothing, and stood in the table all the same."""
    if name in LIBRARY and find_spec(LIBRARY[name]) is None:
        pytest.skip(f"{LIBRARY[name]} is not installed; the extra 'rivals' brings it")
    train, valid, test = bundles()
    fit = resolve(OURS[name]) if name in OURS else method(name)
    budget = Budget(trials=1, epochs=30, patience=30, batch_size=32, validation_rows=256)
    if name in NO_REFUSED_CARD:
        with pytest.raises((ConfigError, InputError), match=NO_REFUSED_CARD[name]):
            fit(train, valid, budget)
        return
    found = {way: Judge.of(test, budget)(picker) for way, picker in fit(train, valid, budget).ways.items()}
    taught = {"random": 0.2, "least-seen": 0.2, "logged-policy": 1.0, "implicit-bpr": 0.5}.get(name, 0.6)
    assert min(found.values()) >= taught, found


NO_REFUSED_CARD = {
    "upstream-score": "no column `score`",
    "popularity-so-far": "no rolling counts",
    "mnl": "needs features",
    **dict.fromkeys(("set-value", "gflownet"), "cards that were not"),
    **dict.fromkeys(("pair-value", "gattn-adversarial", "gattn-group"), "every card was clicked"),
}
CARDS_ALONE = (
    dict.fromkeys(("gattn", "gattn-adversarial", "gattn-group", "pair-value"), "no card was recorded")
    | dict.fromkeys(("set-value", "gflownet"), "cards that were not")
    | {"upstream-score": "no column `score`"}
)


def ragged() -> Batch:
    """Twelve test requests of differing N, cards of 2 and 3, a quarter of the pairs forbidden, one item pinned."""
    batch = next(iter(logs()[2].batches(12)))
    B, N = batch.item.shape
    rng = np.random.default_rng(3)
    item = batch.item
    apart = (item[:, None] * 7 + item[:, :, None] * 7) % 4 != 0  # symmetric, known by the items alone
    graph = batch.graph & apart & ~np.eye(N, dtype=bool)
    card_size = np.where(rng.random(B) < 0.5, 2, 3)
    pinned = np.zeros_like(batch.present)
    free = replace(batch, graph=graph, card_size=card_size, card=None, clicked_position=None)
    from exactk.problem.exact import cliques

    completable = cliques.completable(free.requests(), pinned)
    rows = np.asarray(completable.any(1))
    pinned[0, np.flatnonzero(completable[0])[0]] = True
    return replace(free, pinned=pinned).rows(rows)


def permuted(batch: Batch, order: np.ndarray) -> Batch:
    """The same requests, candidates in another order: position p holds what was at order[p]."""
    return batch.in_order(np.tile(order, (len(batch), 1)))


def as_sets(cards: np.ndarray) -> list[set[int]]:
    return [set(row[row >= 0].tolist()) for row in cards]


# They read columns that this log lacks; tests/rivals/test_rivals_columns.py holds them to the same.
COLUMNS_ONLY = ("upstream-score", "popularity-so-far")


@pytest.fixture(params=[name for name in (*RIVALS, *OURS) if name not in COLUMNS_ONLY])
def recommenders(request: pytest.FixtureRequest) -> Mapping[str, CardPicker]:
    return ways(request.param)


def test_cards_are_valid_and_exactly_k(recommenders: Mapping[str, CardPicker]) -> None:
    batch = ragged()
    assert len(batch) >= 8
    assert set(batch.card_size.tolist()) == {2, 3}
    assert not batch.present.all()
    for name, way in recommenders.items():
        assert valid_cards(batch.requests(), way.recommend(batch)).all(), name


def test_the_order_of_candidates_changes_no_card(recommenders: Mapping[str, CardPicker]) -> None:
    batch = ragged()
    order = np.random.default_rng(9).permutation(batch.item.shape[1])
    for name, way in recommenders.items():
        straight = [set(order.argsort()[list(card)].tolist()) for card in as_sets(way.recommend(batch))]
        assert as_sets(way.recommend(permuted(batch, order))) == straight, name


def test_nor_does_it_where_no_candidate_was_ever_seen(recommenders: Mapping[str, CardPicker]) -> None:
    # All share the row of the unknown, and look alike: only their ids tell them apart.
    batch = ragged()
    alike = None if batch.item_features is None else np.zeros_like(batch.item_features)
    graph = batch.present[:, :, None] & batch.present[:, None, :] & ~np.eye(batch.item.shape[1], dtype=bool)
    batch = replace(
        batch, item=np.zeros_like(batch.item), item_features=alike, graph=graph, pinned=batch.pinned & False
    )
    order = np.random.default_rng(9).permutation(batch.item.shape[1])
    for name, way in recommenders.items():
        straight = [set(order.argsort()[list(card)].tolist()) for card in as_sets(way.recommend(batch))]
        assert as_sets(way.recommend(permuted(batch, order))) == straight, name
        first = [set(range(int(size))) for size in batch.card_size]
        assert as_sets(way.recommend(batch)) != first, f"{name} shows what stands first"


def test_one_request_alone_gets_the_card_it_gets_in_a_batch(recommenders: Mapping[str, CardPicker]) -> None:
    batch = ragged()
    for name, way in recommenders.items():
        together = as_sets(way.recommend(batch))
        alone = [as_sets(way.recommend(batch.rows(slice(b, b + 1))))[0] for b in range(len(batch))]
        assert alone == together, name


def test_asking_twice_gives_the_same(recommenders: Mapping[str, CardPicker]) -> None:
    batch = ragged()
    for name, way in recommenders.items():
        assert np.array_equal(way.recommend(batch), way.recommend(batch)), name


def test_strangers_are_served(recommenders: Mapping[str, CardPicker]) -> None:
    batch = ragged()
    unknown = replace(batch, user=np.zeros_like(batch.user), item=np.zeros_like(batch.item))
    for name, way in recommenders.items():
        assert valid_cards(unknown.requests(), way.recommend(unknown)).all(), name
