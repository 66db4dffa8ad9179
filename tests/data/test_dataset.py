"""Batches say what the log says: ragged, permuted, shuffled, resumed, with and without features and graphs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from card_logs import random_impressions, random_log, write_log
from exactk.data import Dataset, Meta, pack_graphs
from exactk.data.assemble import unpacked_graphs
from exactk.errors import DataError
from exactk.problem.batch import Batch
from exactk.problem.rules.constraints import AtMost, Constraints, Distinct

ROW = {"request_id": 0, "user_id": "u", "candidates": ["a", "b", "c"], "card": ["c", "a"], "clicked": True}


def told(batch: Batch, dataset: Dataset) -> list[dict[str, Any]]:
    """What a batch says, in external ids: the reading of a person, request by request."""
    vocabulary = dataset.vocabulary()
    users = [None, *vocabulary.user_ids.to_pylist()]
    items = [None, *vocabulary.item_ids.to_pylist()]
    assert batch.card is not None
    assert batch.clicked is not None
    assert batch.clicked_position is not None
    rows = []
    for b in range(len(batch)):
        candidates = [items[i] for i, real in zip(batch.item[b], batch.present[b], strict=True) if real]
        at = int(batch.clicked_position[b])
        card = [candidates[p] for p in batch.card[b] if p >= 0]
        assert len(card) == batch.card_size[b]
        rows.append(
            {
                "user_id": users[int(batch.user[b])],
                "candidates": candidates,
                "card": card,
                "clicked": bool(batch.clicked[b]),
                "clicked_item": candidates[at] if at >= 0 else None,
            }
        )
    return rows


def same(first: Batch, second: Batch) -> bool:
    pairs = [(getattr(first, f.name), getattr(second, f.name)) for f in fields(Batch)]
    return all((a is None and b is None) or np.array_equal(a, b) for a, b in pairs)


impressions = st.builds(
    random_impressions,
    num=st.integers(1, 40),
    seed=st.integers(0, 10_000),
    sizes=st.sampled_from([(1, 1), (2, 5), (3, 9), (4, 30)]),
)


@given(rows=impressions, batch_size=st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_batches_tell_every_impression_once_as_it_was_logged(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], batch_size: int
) -> None:
    dataset = Dataset.open(write_log(tmp_path_factory.mktemp("log") / "log", rows))
    seen = [
        row for batch in dataset.batches(dataset.vocabulary(), batch_size) for row in told(batch, dataset)
    ]
    assert seen == [{name: row[name] for name in seen[0]} for row in rows]


@given(rows=impressions, seed=st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_permuting_candidates_permutes_nothing_but_positions(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shuffled = [row | {"candidates": rng.permutation(row["candidates"]).tolist()} for row in rows]
    folder = tmp_path_factory.mktemp("log")
    plain, permuted = (Dataset.open(write_log(folder / n, r)) for n, r in (("a", rows), ("b", shuffled)))
    assert plain.vocabulary().item_ids.equals(permuted.vocabulary().item_ids)
    first, second = (told(d.batch(d.vocabulary()), d) for d in (plain, permuted))
    for before, after in zip(first, second, strict=True):
        assert sorted(before["candidates"]) == sorted(after["candidates"])
        before.pop("candidates"), after.pop("candidates")
    assert first == second


def test_a_batch_of_one_equals_its_row_of_the_batch(tmp_path: Path) -> None:
    dataset = random_log(tmp_path / "log", num=20, features=3)
    vocabulary = dataset.vocabulary()
    whole = dataset.batch(vocabulary)
    for b in range(20):
        alone, n = dataset.batch(vocabulary, slice(b, b + 1)), 0
        n = alone.item.shape[1]
        assert np.array_equal(alone.item[0], whole.item[b, :n])
        assert not whole.present[b, n:].any()
        assert np.array_equal(alone.graph[0], whole.graph[b, :n, :n])
        assert alone.item_features is not None
        assert whole.item_features is not None
        assert np.array_equal(alone.item_features[0], whole.item_features[b, :n])
        assert np.array_equal(alone.card[0], whole.card[b, : alone.card.shape[1]])  # type: ignore[index, union-attr]


def test_padding_is_no_item_has_no_edge_and_no_features(tmp_path: Path) -> None:
    dataset = random_log(tmp_path / "log", num=30, features=2)
    batch = dataset.batch(dataset.vocabulary())
    assert not batch.present.all()
    absent = ~batch.present
    assert (batch.item[absent] == 0).all()
    assert (batch.item[batch.present] > 0).all()
    assert not batch.graph[absent].any()
    assert not batch.graph.transpose(0, 2, 1)[absent].any()
    assert not batch.graph.diagonal(axis1=1, axis2=2).any()
    assert batch.item_features is not None
    assert (batch.item_features[absent] == 0).all()


def test_an_epoch_is_a_shuffle_fixed_by_seed_and_epoch(tmp_path: Path) -> None:
    dataset = random_log(tmp_path / "log", num=50)
    vocabulary = dataset.vocabulary()

    def order(seed: int, epoch: int) -> list[Any]:
        return [
            t["candidates"] for b in dataset.batches(vocabulary, 7, seed, epoch) for t in told(b, dataset)
        ]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    assert sorted(order(1, 0)) == sorted(order(2, 3))


@pytest.mark.parametrize("seed", [None, 3])
def test_starting_later_gives_the_rest_of_the_same_epoch(tmp_path: Path, seed: int | None) -> None:
    dataset = random_log(tmp_path / "log", num=50)
    vocabulary = dataset.vocabulary()
    whole = list(dataset.batches(vocabulary, 8, seed, epoch=2))
    assert len(whole) == dataset.num_batches(8) == 7
    for start in range(9):
        rest = list(dataset.batches(vocabulary, 8, seed, epoch=2, start=start))
        assert len(rest) == len(whole[start:])
        assert all(same(a, b) for a, b in zip(rest, whole[start:], strict=True))


def test_demonstrations_are_the_clicked_cards(tmp_path: Path) -> None:
    dataset = random_log(tmp_path / "log")
    shown = dataset.demonstrations()
    assert 0 < len(shown) < len(dataset)
    assert len(shown) == dataset.clicked.sum()
    assert shown.impressions()["clicked"].to_pylist() == [True] * len(shown)


def test_impressions_of_a_view_come_back_as_written_in_its_order(tmp_path: Path) -> None:
    rows = random_impressions(30)
    dataset = Dataset.open(write_log(tmp_path / "log", rows, rows_at_once=7))
    places = np.array([28, 3, 3, 0, 17])
    assert dataset.take(places).impressions().to_pylist() == [rows[p] for p in places]
    assert dataset.impressions(slice(5, 9)).to_pylist() == rows[5:9]


def test_strings_and_integers_both_serve_as_ids(tmp_path: Path) -> None:
    numbered = {"request_id": "r", "user_id": 7, "candidates": [2**40, 5, -3], "card": [5], "clicked": False}
    dataset = Dataset.open(write_log(tmp_path / "log", [numbered]))
    assert told(dataset.batch(dataset.vocabulary()), dataset)[0]["candidates"] == [2**40, 5, -3]


def test_a_request_without_a_card_asks_for_the_folders_k(tmp_path: Path) -> None:
    row = {"request_id": 0, "user_id": "u", "candidates": ["a", "b", "c"]}
    dataset = Dataset.open(write_log(tmp_path / "log", [row], meta=Meta(K=2)))
    batch = dataset.batch(dataset.vocabulary())
    assert batch.card_size.tolist() == [2]
    assert batch.card is not None
    assert (batch.card == -1).all()
    assert batch.propensity is None


@given(N=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(deadline=None)
def test_graphs_survive_packing(N: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((3, N, N)) < 0.5, 1)
    graph = upper | upper.transpose(0, 2, 1)
    packed = pack_graphs(graph).to_pylist()
    starts = np.cumsum([0, *(len(line) for line in packed)])
    flat = np.frombuffer(b"".join(packed), np.uint8)
    back = unpacked_graphs(np.arange(3), starts, flat, np.full(3, N), N)
    # One candidate has no pair and hence no bytes, which also means "complete": the same graph.
    assert (back == graph).all()


def test_the_bits_of_a_packed_graph_are_the_pairs_in_reading_order() -> None:
    graph = np.zeros((1, 4, 4), bool)
    for i, j in ((0, 1), (1, 2), (2, 3)):  # pairs 01 02 03 12 13 23 -> bits 1 0 0 1 0 1
        graph[0, i, j] = graph[0, j, i] = True
    assert pack_graphs(graph).to_pylist() == [bytes([0b10010100])]
    assert pack_graphs(graph, np.array([3])).to_pylist() == [bytes([0b10100000])]


def test_a_recorded_graph_is_the_batchs_graph(tmp_path: Path) -> None:
    path4 = [ROW | {"candidates": ["a", "b", "c", "d"], "card": ["a", "b"], "graph": bytes([0b10010100])}]
    dataset = Dataset.open(write_log(tmp_path / "log", path4))
    graph = dataset.batch(dataset.vocabulary()).graph[0]
    assert np.argwhere(graph).tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]]


ITEMS = [
    {"item_id": i, "category": c, "brand": b} for i, c, b in (("a", "x", 1), ("b", "x", 2), ("c", "y", 1))
]


def test_without_recorded_graphs_the_folders_rules_make_them(tmp_path: Path) -> None:
    rules = Constraints.of([Distinct("category"), AtMost("brand", 2)])
    meta = Meta(constraint=rules.to_dict())
    dataset = Dataset.open(write_log(tmp_path / "log", [ROW], items=ITEMS, meta=meta))
    batch = dataset.batch(dataset.vocabulary())
    assert batch.graph[0].tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert batch.cap.tolist() == [[2]]
    assert batch.group[0, 0, 0] == batch.group[0, 0, 2] != batch.group[0, 0, 1]
    assert dataset.constraints == rules


def test_recorded_graphs_are_joined_by_the_rules_that_cap(tmp_path: Path) -> None:
    meta = Meta(constraint=Constraints.of([Distinct("category"), AtMost("brand", 2)]).to_dict())
    row = ROW | {"graph": bytes([0b11100000])}  # recorded: all may mix
    dataset = Dataset.open(write_log(tmp_path / "log", [row], items=ITEMS, meta=meta))
    batch = dataset.batch(dataset.vocabulary())
    assert batch.graph[0].sum() == 6
    assert batch.cap.tolist() == [[2]]


def test_own_rules_replace_the_folders_in_every_view(tmp_path: Path) -> None:
    meta = Meta(constraint=Constraints.of([Distinct("category")]).to_dict())
    rows = [ROW | {"request_id": r} for r in range(10)]
    dataset = Dataset.open(write_log(tmp_path / "log", rows, items=ITEMS, meta=meta))
    train, _, _ = dataset.constrained(Constraints.of([Distinct("brand")])).split()
    batch = train.batch(train.vocabulary(), slice(0, 1))
    assert batch.graph[0].tolist() == [[False, True, False], [True, False, True], [False, True, False]]


def test_own_rules_set_recorded_graphs_aside(tmp_path: Path) -> None:
    row = ROW | {"graph": bytes([0b11100000])}  # recorded: all may mix
    dataset = Dataset.open(write_log(tmp_path / "log", [row], items=ITEMS))
    assert dataset.batch(dataset.vocabulary()).graph[0].sum() == 6
    own = dataset.constrained(Distinct("brand"))
    assert own.batch(own.vocabulary()).graph[0].sum() == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": ["a", "b", "a"]}, "row 1, column 'candidates': the item 'a' appears twice"),
        ({"card": ["c", "z"]}, "row 1, column 'card': 'z' is not in items.parquet"),
        ({"candidates": ["a", "c"], "card": ["c", "b"]}, "row 1, column 'card': the item 'b' is not among"),
        ({"card": ["c", "c"]}, "row 1, column 'card': the item 'c' appears twice"),
        ({"user_id": "v"}, "row 1, column 'user_id': 'v' is not in users.parquet"),
        ({"clicked_item": "b"}, "row 1, column 'clicked_item': the clicked item 'b' is not on the card"),
        ({"clicked_item": "z"}, "row 1, column 'clicked_item': 'z' is not in items.parquet"),
        ({"clicked_item": "c", "clicked": False}, "row 1, column 'clicked_item': an item is named though"),
        ({"propensity": 0.0}, "row 1, column 'propensity': 0.0 is not a probability"),
        ({"split": "dev"}, "row 1, column 'split': 'dev' is none of train, valid, test"),
        ({"graph": b"12"}, "row 1, column 'graph': 2 bytes, 3 candidates need 1"),
    ],
)
def test_what_a_log_cannot_mean_is_refused_by_row_and_column(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    optional = {"clicked_item": None, "propensity": 0.5, "split": "train", "graph": b"\xe0"}
    rows = [ROW | optional, ROW | optional | change]
    path = write_log(tmp_path / "log", rows, items=ITEMS, users=[{"user_id": "u"}])
    with pytest.raises(DataError) as caught:
        Dataset.open(path)
    assert message in str(caught.value)


def test_ragged_features_and_repeated_ids_are_refused_by_row(tmp_path: Path) -> None:
    items = [{"item_id": i, "features": [1.0] * (1 + (i == "c"))} for i in "abc"]
    with pytest.raises(DataError, match=r"items\.parquet: row 2, column 'features': 2 numbers"):
        Dataset.open(write_log(tmp_path / "ragged", [ROW], items=items))
    with pytest.raises(DataError, match=r"items\.parquet: column 'item_id': the id 'b'"):
        Dataset.open(write_log(tmp_path / "twice", [ROW], items=[{"item_id": i} for i in "abcb"]))


def test_an_empty_log_opens_and_has_no_batches(tmp_path: Path) -> None:
    dataset = Dataset.open(write_log(tmp_path / "log", [ROW])).take(slice(0, 0))
    assert list(dataset.batches(dataset.vocabulary(), 4, seed=0)) == []


LARGER_THAN_MEMORY = """
    import resource, sys
    from exactk.data import Dataset
    small, large, allowed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    warm = Dataset.open(small)  # brings in the compiled loops
    next(iter(warm.batches(warm.vocabulary(), 16, seed=0)))
    used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + allowed,) * 2)  # memory of its own: mapped files do not count
    dataset = Dataset.open(large)
    print(sum(len(batch) for batch in dataset.batches(dataset.vocabulary(), 16, seed=0)))
"""


def test_a_log_larger_than_the_memory_allowed_is_batched_all_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"i{i}" for i in range(400)]
    rows = [
        {"request_id": r, "user_id": 0, "candidates": names, "card": names[:3], "graph": rng.bytes(9975)}
        for r in range(6000)
    ]
    path = write_log(tmp_path / "large", rows)
    small = write_log(tmp_path / "small", rows[:20])
    allowed = 16 << 20
    Dataset.open(path)
    assert sum(file.stat().st_size for file in path.glob(".index/*/*.bin")) > 4 * allowed
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LARGER_THAN_MEMORY), str(small), str(path), str(allowed)],
        capture_output=True, text=True, timeout=200, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout.strip() == "6000", done.stderr
