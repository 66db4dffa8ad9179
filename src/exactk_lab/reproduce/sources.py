"""Where the data of a reproduction lies: the authors' files, MovieLens, a world; built once, parted once.

Knows folders and rows, no method. Nothing of MovieLens leaves the folder the user works in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exactk.data.dataset import Dataset
from exactk.data.sources import RELEASES, build_published
from exactk.data.sources.movielens import build_movielens
from exactk.errors import InputError
from exactk.evaluation.judging import write_result

QUICK_TRAIN, QUICK_VALID, QUICK_TEST = 1_500, 300, 300
MOST_TEST = 10_000

# What each column of the tables is made of, in their order.
COLUMNS: dict[str, str] = {
    "k4-n20": "the authors' files, K=4, N=20",
    "k10-n50": "the authors' files, K=10, N=50",
    "leak-free": "MovieLens-100K, ratings parted before cards are made, K=4, N=20",
    "world": "a world of the Taobao data's shape",
}


@dataclass(frozen=True)
class Place:
    """Paths of a reproduction: what the user has, and the folder in which everything is kept on the way."""

    work: Path
    published: Path | None = None
    movielens: Path | None = None
    world: Path | None = None

    def has(self, column: str) -> bool:
        """Whether the user gave what this column needs."""
        if column in RELEASES:
            return self.published is not None and _holds(self.published, column)
        return (self.movielens if column == "leak-free" else self.world) is not None

    def need(self, column: str) -> None:
        """Refuse, in words, to go on without a column's data."""
        if not self.has(column):
            option = {"leak-free": "--movielens", "world": "--world"}.get(column, "--published")
            raise InputError(f"this part needs {COLUMNS[column]}: say where, with {option} PATH")


@dataclass(frozen=True)
class Source:
    """One column's dataset folder and the rows of it that are learned from, chosen by and judged on."""

    column: str
    data: Dataset
    rows: Path  # an .npz with train, valid and test

    def views(self) -> tuple[Dataset, Dataset, Dataset]:
        """Train, valid, test."""
        with np.load(self.rows, allow_pickle=False) as rows:
            train, valid, test = (self.data.take(rows[part]) for part in ("train", "valid", "test"))
        return train, valid, test


def source(column: str, place: Place, quick: bool) -> Source:
    """The column's data, built on the first call; quick takes a part of its requests."""
    place.need(column)
    data = _dataset(column, place)
    train, valid, test = data.split()
    test = test.take(test.clicked) if column != "world" else test  # P@K and HR@K speak of clicked cards only
    if quick:
        train, valid = _requests(train, QUICK_TRAIN), _requests(valid, QUICK_VALID)
    test = _thinned(test, QUICK_TEST if quick else MOST_TEST)
    folder = place.work / (f"{column}-quick" if quick else column)
    path = folder / "rows.npz"
    write_result(path, {}, {"train": train.rows, "valid": valid.rows, "test": test.rows})
    return Source(column, data, path)


def _holds(published: Path, column: str) -> bool:
    """Whether the authors' files of this release are there, in any of the places they are looked for."""
    release = RELEASES[column]
    file = f"rerank_data{release.suffix}_train.txt"
    return any(
        (folder / file).is_file() for folder in (published, published / column, published / release.folder)
    )


def _dataset(column: str, place: Place) -> Dataset:
    if column == "world":
        assert place.world is not None
        return Dataset.open(place.world)
    folder = place.work / "data" / column
    if folder.exists():
        return Dataset.open(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if column == "leak-free":
        return build_movielens(folder, place.movielens, K=4, N=20)
    return build_published(folder, place.published, column)


def _requests(view: Dataset, most: int) -> Dataset:
    """The impressions of at most so many requests, from the start: both cards of a request stay together."""
    request = view.folder.index.request[view.rows]
    kept = np.unique(request)[:most]
    return view.take(np.isin(request, kept))


def _thinned(view: Dataset, most: int) -> Dataset:
    if len(view) <= most:
        return view
    return view.take(np.linspace(0, len(view) - 1, most).astype(np.int64))
