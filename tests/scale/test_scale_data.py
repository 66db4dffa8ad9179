"""Logs in many files, and vocabularies of millions: what is read, what is hashed, what is touched in a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from exactk.data.columns.codes import hashed_rows
from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.data.logs.frame import build_frame
from exactk.errors import DataError, InputError
from exactk.learning.optimiser import Optimiser, with_sparse_gradients
from exactk.recommender import Recommender
from exactk.scale.building import Reading, build_parts
from exactk.settings.presets import preset
from exactk_lab.bench.engine.embeddings import bytes_of
from serving_model import ITEMS, K, N, write_data


def log(num: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    rows = []
    for n in range(num):
        offered = random.choice(len(ITEMS), N, replace=False)
        clicked = bool(random.random() < 0.3)
        rows.append(
            {
                "request_id": f"r{n}",
                "user_id": f"u{random.integers(9)}",
                "candidates": [ITEMS[i] for i in offered],
                "card": [ITEMS[i] for i in offered[:K]],
                "clicked": clicked,
                "clicked_item": ITEMS[offered[0]] if clicked else None,
            }
        )
    return pa.Table.from_pylist(rows)


def in_files(folder: Path, table: pa.Table, files: int = 4) -> Path:
    folder.mkdir()
    size = -(-len(table) // files)
    for n in range(files):
        pq.write_table(table.slice(n * size, size), folder / f"day-{n}.parquet")
    return folder


def reading(place: Path, **options: Any) -> Reading:
    return Reading(str(place / ".reading"), **options)


def test_a_dataset_is_not_made_in_the_folder_that_is_read(tmp_path: Path) -> None:
    folder = in_files(tmp_path / "in", log(12))
    with pytest.raises(InputError, match="is in the folder that is read"):
        build_parts(folder / "data", folder, reading(tmp_path))


def test_files_of_a_folder_become_the_dataset_that_one_file_becomes(tmp_path: Path) -> None:
    table = log(200)
    pq.write_table(table, tmp_path / "one.parquet")
    build_frame(tmp_path / "whole", tmp_path / "one.parquet")
    report = build_parts(tmp_path / "parts", in_files(tmp_path / "in", table), reading(tmp_path))
    whole, parts = Dataset.open(tmp_path / "whole"), Dataset.open(tmp_path / "parts")
    assert report.impressions == 200
    assert parts.impressions().equals(whole.impressions())
    assert parts.items.equals(whole.items)
    assert not (tmp_path / ".reading").exists()


def test_bad_rows_and_files_are_told_with_the_file_they_are_in(tmp_path: Path) -> None:
    rows = log(40).to_pylist()
    rows[17]["card"] = ["never offered"]
    folder = in_files(tmp_path / "in", pa.Table.from_pylist(rows))
    report = build_parts(tmp_path / "out", folder, reading(tmp_path))
    (dropped,) = report.dropped.values()
    assert (dropped["rows"], report.impressions) == (1, 39)
    assert dropped["examples"][0]["file"].endswith("day-1.parquet")
    assert dropped["examples"][0]["row"] == 7
    with pytest.raises(DataError, match=r"day-1.parquet: row 7, column 'card'"):
        build_parts(tmp_path / "no", folder, reading(tmp_path, strict=True))
    (folder / "day-2.parquet").write_bytes(b"this was Parquet once")
    with pytest.raises(DataError, match="day-2.parquet"):
        build_parts(tmp_path / "no", folder, Reading(str(tmp_path / ".again")))
    skipped = build_parts(tmp_path / "out", folder, Reading(str(tmp_path / ".skip"), skip_bad=True))
    assert skipped.impressions == 29
    assert "its file cannot be used" in skipped.dropped


def test_rows_without_request_ids_get_different_ones_in_different_files(tmp_path: Path) -> None:
    folder = in_files(tmp_path / "in", log(40).drop_columns(["request_id"]))
    build_parts(tmp_path / "out", folder, reading(tmp_path))
    ids = Dataset.open(tmp_path / "out").impressions()["request_id"].to_pylist()
    assert len(set(ids)) == 40


def test_a_request_cut_in_two_by_the_end_of_a_file_is_an_error(tmp_path: Path) -> None:
    long = pa.table(
        {
            "request_id": ["a"] * 4 + ["b"] * 4,
            "user_id": ["u"] * 8,
            "item_id": [*ITEMS[:4], *ITEMS[:4]],
            "clicked": [False] * 8,
        }
    )
    (tmp_path / "in").mkdir()
    pq.write_table(long.slice(0, 6), tmp_path / "in" / "1.parquet")
    pq.write_table(long.slice(6), tmp_path / "in" / "2.parquet")
    with pytest.raises(DataError, match=r"request 'b' begins in .*1.parquet and continues in .*2.parquet"):
        build_parts(tmp_path / "out", tmp_path / "in", reading(tmp_path))


def test_an_id_hashes_to_the_same_row_for_ever() -> None:
    """By hand: FNV-1a of "" is 0xcbf29ce484222325, of "a" 0xaf63dc4c8601ec8c; then splitmix64's finish."""

    def finish(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    rows = 1_000_003
    found = hashed_rows(pa.array(["", "a", None, "ä"]), rows)
    assert found[:3].tolist() == [
        finish(0xCBF29CE484222325) % rows,
        finish(0xAF63DC4C8601EC8C) % rows,
        -1,
    ]
    assert hashed_rows(pa.array(["x", "a", "y"])[1:], rows)[0] == found[1]
    assert hashed_rows(pa.array([7, -1]), rows).tolist() == [finish(7) % rows, finish(2**64 - 1) % rows]
    spread = np.bincount(hashed_rows(pa.array([f"i{n}" for n in range(20_000)]), 100), minlength=100)
    assert abs(spread - 200).max() < 80  # five and a half deviations of a fair deal


def test_a_hashed_vocabulary_keeps_no_ids_and_knows_everybody(tmp_path: Path) -> None:
    data = Dataset.open(write_data(tmp_path / "data"))
    vocabulary = data.vocabulary(user_rows=7, item_rows=16)
    assert (vocabulary.num_users, vocabulary.num_items, len(vocabulary.item_ids)) == (8, 17, 0)
    vocabulary.save(tmp_path)
    again = Vocabulary.load(tmp_path)
    asked = ["i3", "i17", "nobody's"]
    assert again.item_index(asked) == vocabulary.index_items(pa.array(asked)).tolist()
    assert all(1 <= index <= 16 for index in again.item_index(asked))
    assert again.item_index([None]) == [0]


def test_a_model_with_hashed_ids_and_sparse_gradients_is_trained_saved_and_asked(tmp_path: Path) -> None:
    train, valid, _ = Dataset.open(write_data(tmp_path / "data")).split()
    settings = ("vocabulary.item_rows=20", "vocabulary.user_rows=5", "vocabulary.sparse=true")
    config = preset("tiny").with_overrides([*settings, "training.clip_norm=1", "training.device=cpu"])
    Recommender(config).fit(train, valid, show=False).save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.fitted.sizes.num_items == 21
    card = loaded.recommend("a stranger", ITEMS[:N], k=K)
    assert len(set(card.items)) == K


def test_a_sparse_step_moves_only_the_rows_it_met() -> None:
    table = torch.nn.Embedding(6, 2)
    layer = torch.nn.Sequential(table, torch.nn.Linear(2, 1))
    with_sparse_gradients(layer)
    before = table.weight.detach().clone()
    optimiser = Optimiser(layer, 0.1, weight_decay=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        layer(torch.tensor([1, 4, 4])).sum().backward()
        optimiser.clip(1e-3)
        optimiser.step(0.1)
    moved = (table.weight != before).any(dim=1)
    assert moved.tolist() == [False, True, False, False, True, False]


def test_memory_of_a_rank_is_weights_gradients_and_two_moments() -> None:
    weights = {"v.items.weight": torch.zeros(100, 4), "out.weight": torch.zeros(2, 4)}
    assert bytes_of(weights, sparse=False) == {"weights": 1632, "gradients": 1632, "moments": 3264}
    assert bytes_of(weights, sparse=True) == {"weights": 1632, "gradients": 32, "moments": 3264}
