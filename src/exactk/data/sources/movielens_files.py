"""MovieLens as GroupLens ships it: 100K, 1M, 10M and 25M read into one shape, fetched where no path is given.

Knows no cards.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from jaxtyping import Float32, Int64

from exactk.data.sources.download import Progress, download, unpack
from exactk.errors import DataError

HOME = "https://files.grouplens.org/datasets/movielens"
CHECKSUMS = {  # as published beside the archives
    "ml-100k": "md5:0e33842e24a9c977be4e0107933c0723",
    "ml-1m": "md5:c4d9eecfca2ab87c1945afe126590906",
    "ml-10m": "md5:ce571fd55effeba0271552578f2648bd",
    "ml-25m": "md5:6b51fb2759a8657d3bfcbfc42b592ada",
}
_YEAR = re.compile(r"^(.*?)\s*\((\d{4})(?:-\d*)?\)\s*$")


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
    raise DataError(f"{folder} is no MovieLens folder: it has none of {', '.join(_READERS)}")


def fetch_movielens(name: str, cache: Path | str, home: str = HOME, progress: Progress | None = None) -> Path:
    """Download and unpack a release, unless that was done before; returns the folder with its files."""
    if name not in CHECKSUMS:
        raise DataError(f"there is no MovieLens release {name!r}: choose {', '.join(CHECKSUMS)}")
    archive = download(f"{home}/{name}.zip", Path(cache) / f"{name}.zip", CHECKSUMS[name], progress)
    return unpack(archive, Path(cache) / name)


def _read_100k(folder: Path) -> Ratings:
    genres = [line.split("|")[0] for line in _lines(folder / "u.genre", "latin-1") if line]
    movies = []
    for number, line in enumerate(_lines(folder / "u.item", "latin-1"), 1):
        cells = line.split("|")
        if len(cells) != 5 + len(genres):
            raise DataError(
                f"{folder / 'u.item'}: line {number} has {len(cells)} fields, not {5 + len(genres)}"
            )
        shown = [genre for genre, flag in zip(genres, cells[5:], strict=True) if flag == "1"]
        movies.append((cells[0], cells[1], shown))
    people = [line.split("|") for line in _lines(folder / "u.user", "latin-1")]
    return _assembled(
        "ml-100k",
        _rating_columns(folder / "u.data", "\t", step=1),
        _movies(folder / "u.item", movies),
        _people([(cells[0], cells[2], cells[1], cells[3]) for cells in people], folder / "u.user"),
    )


def _read_double_colon(folder: Path) -> Ratings:
    """1M (with users.dat, Latin-1) and 10M (without, UTF-8)."""
    old = (folder / "users.dat").is_file()
    lines = _lines(folder / "movies.dat", "latin-1" if old else "utf-8")
    movies = [_three(folder / "movies.dat", number, line.split("::")) for number, line in enumerate(lines, 1)]
    people = []
    if old:
        people = [line.split("::") for line in _lines(folder / "users.dat", "latin-1")]
    return _assembled(
        "ml-1m" if old else "ml-10m",
        _rating_columns(folder / "ratings.dat", ":", step=2),
        _movies(folder / "movies.dat", [(i, title, genres.split("|")) for i, title, genres in movies]),
        _people([(cells[0], cells[1], cells[2], cells[3]) for cells in people], folder / "users.dat"),
    )


def _read_csv(folder: Path) -> Ratings:
    """25M, and the releases called latest."""
    with (folder / "movies.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    movies = [_three(folder / "movies.csv", number, row) for number, row in enumerate(rows, 2)]
    return _assembled(
        "ml-25m",
        _rating_columns(folder / "ratings.csv", ",", step=1, skip=1),
        _movies(folder / "movies.csv", [(i, title, genres.split("|")) for i, title, genres in movies]),
        _people([], folder),
    )


_READERS: dict[str, Callable[[Path], Ratings]] = {
    "u.data": _read_100k,
    "ratings.dat": _read_double_colon,
    "ratings.csv": _read_csv,
}


def _lines(path: Path, encoding: str) -> list[str]:
    if not path.is_file():
        raise DataError(f"{path} is missing")
    return path.read_text(encoding=encoding).splitlines()


def _three(path: Path, number: int, cells: Sequence[str]) -> tuple[str, str, str]:
    if len(cells) != 3:
        raise DataError(f"{path}: line {number} has {len(cells)} fields, not 3")
    return cells[0], cells[1], cells[2]


def _rating_columns(path: Path, delimiter: str, step: int, skip: int = 0) -> list[np.ndarray]:
    """User, item, stars, timestamp; `step` 2 steps over the empty columns that "::" makes with delimiter ":"."""
    names = [f"c{c}" for c in range(3 * step + 1)]
    kinds = [pa.int64(), pa.int64(), pa.float32(), pa.int64()]
    wanted = names[::step]
    try:
        table = pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(column_names=names, skip_rows=skip),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char=False),
            convert_options=pacsv.ConvertOptions(
                column_types=dict(zip(wanted, kinds, strict=True)), include_columns=wanted
            ),
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} does not read as ratings: {error}") from error
    return [table[name].to_numpy() for name in wanted]


def _movies(path: Path, movies: Sequence[tuple[str, str, Sequence[str]]]) -> pa.Table:
    """Title without its year, the year, genres, the first genre as category, and features: genres, then year."""
    known = sorted({genre for _, _, genres in movies for genre in genres if genre != "(no genres listed)"})
    columns: dict[str, list[Any]] = {
        n: [] for n in ("item_id", "title", "year", "genres", "category", "features")
    }
    for number, (movie, full_title, listed) in enumerate(movies, 1):
        if not movie.isdigit():
            raise DataError(f"{path}: line {number}: {movie!r} is no movie id")
        dated = _YEAR.match(full_title)
        title, year = (dated[1], int(dated[2])) if dated else (full_title, None)
        genres = [genre for genre in listed if genre in known]
        columns["item_id"].append(int(movie))
        columns["title"].append(title)
        columns["year"].append(year)
        columns["genres"].append(genres)
        columns["category"].append(genres[0] if genres else None)
        flags = [float(genre in genres) for genre in known]
        columns["features"].append([*flags, float("nan") if year is None else float(year)])
    schema = pa.schema(
        {
            "item_id": pa.int64(), "title": pa.string(), "year": pa.int64(), "genres": pa.list_(pa.string()),
            "category": pa.string(), "features": pa.list_(pa.float32()),
        }
    )  # fmt: skip
    return pa.table(columns, schema=schema)


def _people(people: Sequence[tuple[str, str, str, str]], path: Path) -> pa.Table:
    """Gender, age and occupation, and features: age, gender, occupations. Empty where a release has no people."""
    jobs = sorted({job for _, _, _, job in people})
    columns: dict[str, list[Any]] = {n: [] for n in ("user_id", "gender", "age", "occupation", "features")}
    for number, (user, gender, age, job) in enumerate(people, 1):
        if not (user.isdigit() and age.isdigit()):
            raise DataError(f"{path}: line {number}: user {user!r} of age {age!r}")
        columns["user_id"].append(int(user))
        columns["gender"].append(gender)
        columns["age"].append(int(age))
        columns["occupation"].append(job)
        columns["features"].append([float(age), float(gender == "F"), *(float(job == one) for one in jobs)])
    schema = pa.schema(
        {
            "user_id": pa.int64(), "gender": pa.string(), "age": pa.int64(), "occupation": pa.string(),
            "features": pa.list_(pa.float32()),
        }
    )  # fmt: skip
    return pa.table(columns, schema=schema)


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
