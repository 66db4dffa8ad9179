"""MovieLens: the files of 100K, 1M, 10M and 25M read into one shape, and cards made of their ratings.

The cards follow the paper's recipe for any K and N, or the same recipe without its leak; of ratings it knows only
arrays. A 5-star rating is a click, anything less a companion.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from jaxtyping import Float32, Int64

from exactk.data.dataset import Dataset
from exactk.data.sources import Progress, download, unpack
from exactk.data.table import SPLITS, Meta, as_lists
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError, InputError
from exactk.problem.rules.constraints import Constraint, Constraints

HOME = "https://files.grouplens.org/datasets/movielens"
CHECKSUMS = {  # as published beside the archives
    "ml-100k": "md5:0e33842e24a9c977be4e0107933c0723",
    "ml-1m": "md5:c4d9eecfca2ab87c1945afe126590906",
    "ml-10m": "md5:ce571fd55effeba0271552578f2648bd",
    "ml-25m": "md5:6b51fb2759a8657d3bfcbfc42b592ada",
}
_YEAR = re.compile(r"^(.*?)\s*\((\d{4})(?:-\d*)?\)\s*$")
LIKED = 5.0
Protocol = Literal["leak-free", "paper"]


@dataclass(frozen=True)
class Ratings:
    """Who rated what, how high and when; movies and people in the columns of items.parquet and users.parquet."""

    name: str
    user: Int64[np.ndarray, "R"]
    item: Int64[np.ndarray, "R"]
    stars: Float32[np.ndarray, "R"]
    timestamp: Int64[np.ndarray, "R"]
    movies: pa.Table
    people: pa.Table


def read_movielens(source: Path | str) -> Ratings:
    """Read a folder of any of the four formats, told apart by the files in it."""
    folder = Path(source)
    for marker, read in _READERS.items():
        if (folder / marker).is_file():
            return read(folder)
    raise DataError(f"{folder} is not a MovieLens folder: it has none of {', '.join(_READERS)}")


def fetch_movielens(name: str, cache: Path | str, home: str = HOME, progress: Progress | None = None) -> Path:
    """Download and unpack a release, unless that was done before; returns the folder with its files."""
    if name not in CHECKSUMS:
        raise DataError(f"there is no MovieLens release {name!r}: choose {', '.join(CHECKSUMS)}")
    archive = download(f"{home}/{name}.zip", Path(cache) / f"{name}.zip", CHECKSUMS[name], progress)
    return unpack(archive, Path(cache) / name)


def _read_100k(folder: Path) -> Ratings:
    genres = [row[0] for row in _rows(folder / "u.genre", "|") if row[0]]
    movies = [
        (movie, title, [name for name, flag in zip(genres, flags, strict=True) if flag == "1"])
        for movie, title, _, _, _, *flags in _rows(folder / "u.item", "|", 5 + len(genres))
    ]
    people = [(user, sex, age, job) for user, age, sex, job, _ in _rows(folder / "u.user", "|", 5)]
    return _assembled(
        "ml-100k",
        _rating_columns(folder / "u.data", "\t"),
        _movies(folder / "u.item", movies),
        _people(people, folder / "u.user"),
    )


def _read_double_colon(folder: Path) -> Ratings:
    """1M (with users.dat, Latin-1) and 10M (without, UTF-8)."""
    old = (folder / "users.dat").is_file()
    movies = _rows(folder / "movies.dat", "::", 3, "latin-1" if old else "utf-8")
    people = [tuple(row[:4]) for row in _rows(folder / "users.dat", "::", 5)] if old else []
    return _assembled(
        "ml-1m" if old else "ml-10m",
        _rating_columns(folder / "ratings.dat", ":", step=2),
        _movies(folder / "movies.dat", [(i, title, genres.split("|")) for i, title, genres in movies]),
        _people(people, folder / "users.dat"),
    )


def _read_csv(folder: Path) -> Ratings:
    """25M, and the releases called latest."""
    movies = _rows(folder / "movies.csv", ",", 3, "utf-8")[1:]
    return _assembled(
        "ml-25m",
        _rating_columns(folder / "ratings.csv", ",", skip=1),
        _movies(folder / "movies.csv", [(i, title, genres.split("|")) for i, title, genres in movies]),
        _people([], folder),
    )


_READERS: dict[str, Callable[[Path], Ratings]] = {
    "u.data": _read_100k,
    "ratings.dat": _read_double_colon,
    "ratings.csv": _read_csv,
}


def _rows(path: Path, delimiter: str, width: int = 0, encoding: str = "latin-1") -> list[list[str]]:
    """The fields of each line; as many as `width`, where that is given."""
    if not path.is_file():
        raise DataError(f"{path} is missing")
    try:
        with path.open(encoding=encoding, newline="" if delimiter == "," else None) as file:
            quoted = csv.reader(file) if delimiter == "," else None
            rows = list(quoted or (line.rstrip("\n").split(delimiter) for line in file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    for number, row in enumerate(rows, 1):
        if width and len(row) != width:
            raise DataError(f"{path}: line {number} has {len(row)} fields, not {width}")
    return rows


def _rating_columns(path: Path, delimiter: str, step: int = 1, skip: int = 0) -> list[np.ndarray]:
    """User, item, stars, timestamp; `step` 2 steps over the empty columns that "::" makes with delimiter ":"."""
    names = ["user", "", "item", "", "stars", "", "timestamp"][:: 3 - step]
    kinds = {"user": pa.int64(), "item": pa.int64(), "stars": pa.float32(), "timestamp": pa.int64()}
    try:
        table = pacsv.read_csv(
            path,
            pacsv.ReadOptions(column_names=names, skip_rows=skip),
            pacsv.ParseOptions(delimiter=delimiter, quote_char=False),
            pacsv.ConvertOptions(column_types=kinds, include_columns=list(kinds)),
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as ratings: {error}") from error
    for name in kinds:
        if table[name].null_count:
            line = int(np.argmax(table[name].is_null().to_numpy())) + skip + 1
            verb = "are" if name == "stars" else "is"
            raise DataError(f"{path}: line {line}: the {name} {verb} missing")
    return [table[name].to_numpy() for name in kinds]


def _movies(path: Path, movies: Sequence[tuple[str, str, Sequence[str]]]) -> pa.Table:
    """Title without its year, the year, genres, the first genre as category, and features: genres, then year."""
    known = sorted({genre for _, _, genres in movies for genre in genres if genre != "(no genres listed)"})
    rows = []
    for number, (movie, full_title, listed) in enumerate(movies, 1):
        if not movie.isdigit():
            raise DataError(f"{path}: line {number}: {movie!r} is not a movie id")
        dated = _YEAR.match(full_title)
        title, year = (dated[1], int(dated[2])) if dated else (full_title, None)
        genres = [genre for genre in listed if genre in known]
        features = [*(float(genre in genres) for genre in known), float("nan" if year is None else year)]
        rows.append((int(movie), title, year, genres, genres[0] if genres else None, features))
    kinds = {
        "item_id": pa.int64(), "title": pa.string(), "year": pa.int64(), "genres": pa.list_(pa.string()),
        "category": pa.string(), "features": pa.list_(pa.float32()),
    }  # fmt: skip
    return _table(rows, kinds)


def _people(people: Sequence[Sequence[str]], path: Path) -> pa.Table:
    """Gender, age and occupation, and features: age, gender, occupations. Empty where a release has no people."""
    jobs = sorted({job for _, _, _, job in people})
    rows = []
    for number, (user, gender, age, job) in enumerate(people, 1):
        if not (user.isdigit() and age.isdigit()):
            raise DataError(f"{path}: line {number}: user {user!r} of age {age!r}")
        features = [float(age), float(gender == "F"), *(float(job == one) for one in jobs)]
        rows.append((int(user), gender, int(age), job, features))
    kinds = {
        "user_id": pa.int64(), "gender": pa.string(), "age": pa.int64(), "occupation": pa.string(),
        "features": pa.list_(pa.float32()),
    }  # fmt: skip
    return _table(rows, kinds)


def _table(rows: Sequence[tuple[Any, ...]], kinds: dict[str, pa.DataType]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(kinds, row, strict=True)) for row in rows], pa.schema(kinds))


def _assembled(name: str, columns: Sequence[np.ndarray], movies: pa.Table, people: pa.Table) -> Ratings:
    user, item, stars, timestamp = columns
    known = np.isin(item, movies["item_id"].to_numpy())
    if not known.all():
        raise DataError(
            f"rating {int(np.argmin(known)) + 1} is of movie {item[~known][0]}, which is not listed"
        )
    if not len(people):
        people = pa.table({"user_id": np.unique(user)})
    return Ratings(name, user, item, stars, timestamp, movies, people)


def build_movielens(
    out: Path | str,
    source: Path | str | None = None,
    K: int = 4,
    N: int = 20,
    protocol: Protocol = "leak-free",
    seed: int = 0,
    test: float = 0.2,
    constraints: Constraints | Constraint | Sequence[Constraint] | None = None,
    release: str = "ml-100k",
    progress: Progress | None = None,
) -> Dataset:
    """Write a dataset folder of cards made of ratings.

    Each 5-star rating of a user gives a request: N - 1 random items the same user rated lower beside it, a positive
    card (the liked item and K - 1 of those) and a negative card (K of those), all in random order.

    "leak-free" parts the ratings first and makes cards within each part, so that a (user, item) pair is met on one
    side only. "paper" makes cards of all ratings and parts the cards, as the authors did; `exactk data audit` shows
    what that gives away. `ratings.parquet` keeps the graded ratings that training may use.
    """
    if not 1 <= K < N:
        raise InputError(f"a card needs 1 <= K < N, got K={K} and N={N}")
    if not 0 < test < 0.5:
        raise InputError(f"test must be a share between 0 and 0.5, got {test}")
    if protocol not in get_args(Protocol):
        raise InputError(f"protocol must be {' or '.join(get_args(Protocol))}, got {protocol!r}")
    if source is None:
        source = fetch_movielens(release, Path(out).absolute().parent / "downloads", progress=progress)
    ratings = read_movielens(source)
    rules = Constraints.of(constraints)
    rng = np.random.default_rng(seed)
    liked = ratings.stars == LIKED
    if protocol == "leak-free":
        part = _rating_parts(ratings.user, rng, test)
        pools = [np.flatnonzero(part == place) for place in range(3)]
        drafts = [_requests(ratings, pool, N, rng) for pool in pools]
        trained = part == 0
    else:
        whole = _requests(ratings, np.arange(len(liked)), N, rng)
        order = rng.permutation(len(whole))
        cut = round(len(whole) * (1 - test))
        drafts = [whole[np.sort(order[:cut])], whole[:0], whole[np.sort(order[cut:])]]
        trained = ~np.isin(np.arange(len(liked)), drafts[2][:, 0])  # all but the items to be found in test
    provenance = {
        "source": "movielens", "release": ratings.name, "protocol": protocol, "seed": seed, "test": test,
        "requests": {name: len(draft) for name, draft in zip(SPLITS, drafts, strict=True)},
        "liked_ratings": int(liked.sum()),
        "liked_without_enough_companions": int(liked.sum()) - sum(len(draft) for draft in drafts),
    }  # fmt: skip
    constraint = rules.to_dict() if rules else None
    meta = Meta(K=K, N=N, split={"by": protocol}, provenance=provenance, constraint=constraint)
    with DatasetWriter(out, meta) as writer:
        writer.write_items(ratings.movies)
        writer.write_users(ratings.people)
        kept = {"user_id": ratings.user, "item_id": ratings.item, "rating": ratings.stars}
        kept["timestamp"] = ratings.timestamp
        graded = pa.table({name: values[trained] for name, values in kept.items()})
        writer.write_extra("ratings.parquet", graded)
        for name, draft in zip(SPLITS, drafts, strict=True):
            for table in _impressions(ratings, draft, K, name, rng):
                writer.write_impressions(table)
    return Dataset.open(out)


def _rating_parts(
    user: Int64[np.ndarray, "R"], rng: np.random.Generator, test: float
) -> Int64[np.ndarray, "R"]:
    """0 train, 1 valid, 2 test, by rating.

    A request needs N ratings of one user in one part, so valid ratings are not spread thin: every second user, at
    random, gives as large a share to valid as to test. At N=50 on 100K that makes 300 valid requests instead of 10.
    """
    _, number = np.unique(user, return_inverse=True)
    tried = rng.permutation(number.max() + 1) % 2 == 0
    draw = rng.random(len(user))
    return np.where(draw < test, 2, np.where((draw < 2 * test) & tried[number], 1, 0))


def _requests(
    ratings: Ratings, pool: Int64[np.ndarray, "P"], N: int, rng: np.random.Generator
) -> Int64[np.ndarray, "Q N"]:
    """For each liked rating of the pool with enough company: its place, then those of N - 1 lower ones of the user."""
    made = [np.empty((0, N), np.int64)]
    pool = pool[np.argsort(ratings.user[pool], kind="stable")]
    borders = np.flatnonzero(np.diff(ratings.user[pool])) + 1
    for own in np.split(pool, borders):
        liked = ratings.stars[own] == LIKED
        others = own[~liked]
        if len(others) < N - 1 or not liked.any():
            continue
        for some in np.array_split(own[liked], 1 + liked.sum() // 512):
            lots = rng.random((len(some), len(others)))
            drawn = np.argpartition(lots, N - 2, axis=1)[:, : N - 1] if len(others) >= N else lots.argsort(1)
            # argpartition leaves an order, which must carry nothing.
            company = rng.permuted(others[drawn], axis=1)
            made.append(np.column_stack([some, company]))
    return np.concatenate(made)


def _impressions(
    ratings: Ratings, draft: Int64[np.ndarray, "Q N"], K: int, name: str, rng: np.random.Generator
) -> Iterator[pa.Table]:
    """Two impressions a request, positive then negative card, in pieces."""
    for first in range(0, len(draft), 1 << 14):
        some = draft[first : first + (1 << 14)]
        Q = len(some)
        items = ratings.item[some]
        candidates = np.repeat(rng.permuted(items, axis=1), 2, axis=0)  # 2Q N
        positive = rng.permuted(items[:, :K], axis=1)
        negative = rng.permuted(items[:, 1:], axis=1)[:, :K]
        cards = np.stack([positive, negative], axis=1).reshape(2 * Q, K)
        clicked = np.tile([True, False], Q)
        yield pa.table(
            {
                "request_id": [f"{name}-{first + q}" for q in range(Q) for _ in range(2)],
                "user_id": np.repeat(ratings.user[some[:, 0]], 2),
                "candidates": as_lists(candidates),
                "card": as_lists(cards),
                "clicked": clicked,
                "clicked_item": pa.array(np.repeat(items[:, 0], 2), mask=~clicked),
                "timestamp": np.repeat(ratings.timestamp[some[:, 0]], 2),
                "split": [name] * (2 * Q),
            }
        )
