"""Cards out of ratings: four file formats, the paper's recipe, and the leak-free protocol."""

from __future__ import annotations

from inspect import unwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exactk.data import Dataset
from exactk.data.sources.movielens import Protocol, build_movielens, read_movielens
from exactk.errors import DataError, InputError
from exactk.problem.rules.constraints import Constraints, Distinct

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "ml-100k"

# Made up: three films, two people.
FORMATS = {
    "ml-100k": {
        "u.data": "1\t10\t5\t100\n1\t20\t3\t101\n2\t10\t4\t102\n",
        "u.genre": "unknown|0\nComedy|1\nDrama|2\n",
        "u.item": (
            "10|Caf\xe9 Noir (1995)|01-Jan-1995||url|0|1|1\n20|Long Queue (2001)|||url|0|0|1\n30|Untitled||||1|0|0\n"
        ),
        "u.user": "1|24|M|writer|85711\n2|53|F|other|94043\n",
    },
    "ml-1m": {
        "ratings.dat": "1::10::5::100\n1::20::3::101\n2::10::4::102\n",
        "movies.dat": "10::Caf\xe9 Noir (1995)::Comedy|Drama\n20::Long Queue (2001)::Drama\n30::Untitled::unknown\n",
        "users.dat": "1::M::24::writer::85711\n2::F::53::other::94043\n",
    },
    "ml-10m": {
        "ratings.dat": "1::10::5::100\n1::20::3.0::101\n2::10::4::102\n",
        "movies.dat": "10::Caf\xe9 Noir (1995)::Comedy|Drama\n20::Long Queue (2001)::Drama\n30::Untitled::unknown\n",
    },
    "ml-25m": {
        "ratings.csv": "userId,movieId,rating,timestamp\n1,10,5.0,100\n1,20,3.0,101\n2,10,4.0,102\n",
        "movies.csv": (
            'movieId,title,genres\n10,Caf\xe9 Noir (1995),Comedy|Drama\n20,"Long Queue (2001)",Drama\n'
            "30,Untitled,unknown\n"
        ),
    },
}


def write_format(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    for file, text in FORMATS[name].items():
        (folder / file).write_text(text, encoding="latin-1" if name in ("ml-100k", "ml-1m") else "utf-8")
    return folder


@pytest.mark.parametrize("name", FORMATS)
def test_all_formats_say_the_same(tmp_path: Path, name: str) -> None:
    read = read_movielens(write_format(tmp_path / "source", name))
    assert read.name == name
    assert read.user.tolist() == [1, 1, 2]
    assert read.item.tolist() == [10, 20, 10]
    assert read.stars.tolist() == [5.0, 3.0, 4.0]
    assert read.timestamp.tolist() == [100, 101, 102]
    first, second, third = read.movies.to_pylist()
    assert (first["title"], first["year"], first["genres"]) == ("Café Noir", 1995, ["Comedy", "Drama"])
    assert first["category"] == "Comedy"
    assert first["features"] == [1, 1, 0, 1995]  # Comedy, Drama, unknown, year
    assert (second["title"], second["category"]) == ("Long Queue", "Drama")
    assert third["year"] is None
    assert np.isnan(third["features"][-1])
    people = read.people.to_pylist()
    assert [person["user_id"] for person in people] == [1, 2]
    if name in ("ml-100k", "ml-1m"):
        assert people[0]["features"] == [24, 0, 0, 1]  # age, is F, other, writer
        assert people[1]["occupation"] == "other"
    else:
        assert list(people[0]) == ["user_id"]


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("ml-100k", "u.data", "1\t10\tfive\t100\n", r"u\.data cannot be read as ratings"),
        ("ml-100k", "u.item", "10|Short|x\n", r"u\.item: line 1 has 3 fields, not 8"),
        ("ml-1m", "movies.dat", "10::No genres\n", r"movies\.dat: line 1 has 2 fields, not 3"),
        (
            "ml-25m",
            "ratings.csv",
            "userId,movieId,rating,timestamp\n1,99,5,1\n",
            "movie 99, which is not listed",
        ),
        ("ml-100k", "u.user", "1|24\n", r"u\.user: line 1 has 2 fields, not 5"),
        ("ml-1m", "users.dat", "1::M::24\n", r"users\.dat: line 1 has 3 fields, not 5"),
        ("ml-100k", "u.data", "1\t10\t\t100\n", r"u\.data: line 1: the stars are missing"),
        (
            "ml-25m",
            "ratings.csv",
            "userId,movieId,rating,timestamp\n,10,5,1\n",
            r"line 2: the user is missing",
        ),
        ("ml-10m", "movies.dat", "10::\xff::Drama\n", r"movies\.dat cannot be read"),
        ("ml-25m", "movies.csv", "movieId,title,genres\n10,\xff,Drama\n", r"movies\.csv cannot be read"),
    ],
)
def test_damaged_files_are_refused_by_name(
    tmp_path: Path, name: str, file: str, text: str, message: str
) -> None:
    folder = write_format(tmp_path / "source", name)
    (folder / file).write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=message):
        read_movielens(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_format(tmp_path / "source", "ml-25m")
    (folder / "movies.csv").unlink()
    with pytest.raises(DataError, match=r"movies\.csv is missing"):
        read_movielens(folder)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of u\.data, ratings\.dat, ratings\.csv"):
        read_movielens(tmp_path)


def made_up(folder: Path, users: int = 12, items: int = 90, seed: int = 0) -> Path:
    """A release in the 25M format with enough ratings for cards."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    movies = "".join(
        f"{m},Film {m} ({1950 + m}),{'Comedy|Drama' if m % 2 else 'Drama'}\n" for m in range(items)
    )
    (folder / "movies.csv").write_text("movieId,title,genres\n" + movies)
    lines = [
        f"{u},{m},{rng.choice([1, 2, 3, 4, 4.5, 5])},{1000 + m}\n"
        for u in range(users)
        for m in rng.permutation(items)[: rng.integers(60, items)]
    ]
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(lines))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("movielens") / "source")


@pytest.mark.parametrize("protocol", ["leak-free", "paper"])
@pytest.mark.parametrize(("K", "N"), [(1, 2), (2, 5), (4, 8)])
def test_cards_follow_the_recipe(source: Path, tmp_path: Path, K: int, N: int, protocol: Protocol) -> None:
    dataset = build_movielens(tmp_path / "log", source, K, N, protocol)
    ratings = read_movielens(source)
    stars = dict(
        zip(zip(ratings.user.tolist(), ratings.item.tolist(), strict=True), ratings.stars, strict=True)
    )
    rows = dataset.impressions().to_pylist()
    assert len(rows) > 50
    for positive, negative in zip(rows[::2], rows[1::2], strict=True):
        user, liked = positive["user_id"], positive["clicked_item"]
        assert len(set(positive["candidates"])) == N
        assert len(set(positive["card"])) == len(set(negative["card"])) == K
        assert liked in positive["card"]
        assert liked not in negative["card"]
        assert [i for i in positive["candidates"] if stars[user, i] == 5] == [liked]
        same = ("request_id", "user_id", "candidates", "split", "timestamp")
        assert [positive[name] for name in same] == [negative[name] for name in same]
        assert (positive["clicked"], negative["clicked"], negative["clicked_item"]) == (True, False, None)


def test_the_liked_item_stands_anywhere_on_card_and_among_candidates(source: Path, tmp_path: Path) -> None:
    dataset = build_movielens(tmp_path / "log", source, 4, 8, "paper").demonstrations()
    batch = dataset.batch(dataset.vocabulary())
    assert batch.card is not None
    assert batch.clicked_position is not None
    place = (batch.card == batch.clicked_position[:, None]).argmax(1)
    assert np.bincount(place, minlength=4).min() > len(dataset) / 8
    assert np.bincount(batch.clicked_position, minlength=8).min() > len(dataset) / 16


def pairs(view: Dataset) -> set[tuple[Any, Any]]:
    return {(row["user_id"], item) for row in view.impressions().to_pylist() for item in row["candidates"]}


def test_the_leak_free_protocol_keeps_every_pair_on_one_side(source: Path, tmp_path: Path) -> None:
    dataset = build_movielens(tmp_path / "log", source, 2, 5)
    train, valid, test = (pairs(part) for part in dataset.split())
    assert train
    assert valid
    assert test
    assert not train & valid
    assert not train & test
    assert not valid & test
    ratings = dataset.extra("ratings.parquet").to_pylist()
    graded = {(row["user_id"], row["item_id"]) for row in ratings}
    assert train <= graded  # training may use every train rating, also those below 5
    assert not graded & (valid | test)


def test_a_fifth_of_the_ratings_is_held_out_and_half_the_users_give_a_fifth_to_valid(
    source: Path, tmp_path: Path
) -> None:
    dataset = build_movielens(tmp_path / "log", source, 1, 2)
    rated = len(read_movielens(source).user)
    assert dataset.extra("ratings.parquet").num_rows / rated == pytest.approx(0.7, abs=0.04)
    _, valid, test = dataset.split()
    # six and twelve, but for users none of whose five-star ratings fell there
    assert 4 <= len(set(valid.impressions()["user_id"].to_pylist())) <= 6
    assert len(set(test.impressions()["user_id"].to_pylist())) > 9


def test_the_papers_protocol_leaks_by_design_but_keeps_test_likes_out_of_the_ratings(
    source: Path, tmp_path: Path
) -> None:
    dataset = build_movielens(tmp_path / "log", source, 2, 5, "paper")
    train, _, test = dataset.split()
    assert pairs(train) & pairs(test)
    liked = {(row["user_id"], row["clicked_item"]) for row in test.demonstrations().impressions().to_pylist()}
    graded = {(row["user_id"], row["item_id"]) for row in dataset.extra("ratings.parquet").to_pylist()}
    assert not graded & liked


def test_same_seed_same_cards(source: Path, tmp_path: Path) -> None:
    first, second, third = (
        build_movielens(tmp_path / name, source, 2, 5, seed=seed).impressions()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first.equals(second)
    assert not first.equals(third)


def test_attributes_make_constraints_mean_something(source: Path, tmp_path: Path) -> None:
    rules = Constraints.of([Distinct("category")])
    dataset = build_movielens(tmp_path / "log", source, 2, 5, constraints=rules)
    category = dict(zip(*(dataset.items[name].to_pylist() for name in ("item_id", "category")), strict=True))
    row = dataset.impressions(slice(0, 1)).to_pylist()[0]
    graph = dataset.batch(dataset.vocabulary(), slice(0, 1)).graph[0].tolist()
    expected = [[category[a] != category[b] for b in row["candidates"]] for a in row["candidates"]]
    assert graph == expected


def test_impossible_cards_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 <= K < N"):
        build_movielens(tmp_path / "log", source, 5, 5)
    with pytest.raises(InputError, match="test"):
        build_movielens(tmp_path / "log", source, test=0.9)
    protocol: Any = "leakfree"
    with pytest.raises(InputError, match="protocol must be leak-free or paper, got 'leakfree'"):
        unwrap(build_movielens)(tmp_path / "log", source, protocol=protocol)


def test_the_recipe_meets_the_sizes_of_the_papers_sets(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("MovieLens-100K is not on this machine")
    # The authors' files hold 20,018 and 16,598 samples, one fewer each; the paper's table says 2 * 16,599 for K=10.
    for K, N, requests in ((4, 20, 20_019), (10, 50, 16_599)):
        made = build_movielens(tmp_path / f"k{K}", SHARED, K, N, "paper").meta.provenance["requests"]
        assert made["train"] + made["test"] == requests
