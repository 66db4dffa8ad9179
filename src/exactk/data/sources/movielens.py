"""Cards from ratings: the paper's recipe for any K and N, and the same recipe without its leak.

Knows ratings only as arrays; a 5-star rating is a click, anything less a companion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int64

from exactk.data.dataset import Dataset
from exactk.data.sources.download import Progress
from exactk.data.sources.movielens_files import Ratings, fetch_movielens, read_movielens
from exactk.data.table import SPLITS, Meta, as_lists
from exactk.data.writer import DatasetWriter
from exactk.errors import InputError
from exactk.problem.rules.constraints import Constraint, Constraints

Protocol = Literal["leak-free", "paper"]
LIKED = 5.0


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
    cache: Path | str | None = None,
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
    if source is None:
        source = fetch_movielens(
            release, cache or Path(out).absolute().parent / "downloads", progress=progress
        )
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
    meta = Meta(
        K=K, N=N, split={"by": protocol}, provenance=provenance,
        constraint=rules.to_dict() if rules else None,
    )  # fmt: skip
    with DatasetWriter(out, meta) as writer:
        writer.write_items(ratings.movies)
        writer.write_users(ratings.people)
        writer.write_extra("ratings.parquet", _rating_table(ratings, trained))
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
        when = np.repeat(ratings.timestamp[some[:, 0]], 2)
        yield pa.table(
            {
                "request_id": [f"{name}-{first + q}" for q in range(Q) for _ in range(2)],
                "user_id": np.repeat(ratings.user[some[:, 0]], 2),
                "candidates": as_lists(candidates),
                "card": as_lists(cards),
                "clicked": clicked,
                "clicked_item": pa.array(np.repeat(items[:, 0], 2), mask=~clicked),
                "timestamp": when,
                "split": [name] * (2 * Q),
            }
        )


def _rating_table(ratings: Ratings, chosen: Bool[np.ndarray, "R"]) -> pa.Table:
    return pa.table(
        {
            "user_id": ratings.user[chosen],
            "item_id": ratings.item[chosen],
            "rating": ratings.stars[chosen],
            "timestamp": ratings.timestamp[chosen],
        }
    )
