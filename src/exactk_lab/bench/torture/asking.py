"""Requests to a model: odd ids, attributes, context and rules in Python, request files torn in many ways for `score`.

Knows a sound model of each kind. A card holds K distinct candidates, the same in any order, whoever asks beside it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exactk.data.requests import Request
from exactk.errors import ExactKError
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card
from exactk_lab.bench.torture.building import rows_of_candidates
from exactk_lab.bench.torture.files import PIECES
from exactk_lab.bench.torture.folders import kept_folder, sound_model
from exactk_lab.bench.torture.rules import ODD, SHARES, Maker

IDS: list[Any] = [
    *range(12),
    99,
    -1,
    2**53,
    2**70,
    True,
    1.5,
    "7",
    "stranger",
    "",
    None,
    [1],
    {"x": 1},
    float("nan"),
]
USERS: list[list[Any]] = [[0, 1, 2, 99], ["u1", "u2", "x"]]  # of the model that reads ids, of the other
NAMES = ("price", "brand", "device", "title", "features", "position", "score", "item_id", "")


def trials(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """Two of three in Python."""
    for n in range(number):
        yield (asked, file, asked)[n % 3], (seed, n)


def asked(seed: int, n: int) -> str:
    """One sound request and one that may be odd, by a model that reads ids or one that reads columns."""
    rng = np.random.default_rng([seed, n])
    recommender = _loaded(bool(n % 2))
    maker = Maker(rng, SHARES[n // 2 % len(SHARES)])
    sound = Request("u1" if n % 2 else 1, tuple(range(8)), 2)
    try:
        odd = Request.from_dict(request(maker, bool(n % 2)), 2)
        rules = None
        if rng.random() < 0.2:
            rules = Constraints.from_dict({"rule": [maker.rule()]})
    except ExactKError as error:
        return "" if str(error) else "an error without a word"
    order = rng.permutation(len(odd.candidates)).tolist()
    shuffled = Request(**{**vars(odd), "candidates": tuple(odd.candidates[p] for p in order)})
    settings: dict[str, Any] = {"infeasible": "return", "explain": bool(rng.random() < 0.1)}
    if rules is not None:
        settings["constraints"] = rules
    try:
        good, card, other = recommender.recommend_many([sound, odd, shuffled], **settings)
    except ExactKError as error:  # of all of them: the rules themselves
        return "" if rules is not None and str(error) else f"one bad request failed the others: {error}"
    if rules is None and (not isinstance(good, Card) or len(set(good.items)) != 2):
        return f"one bad request spoiled another: {good}"
    if not isinstance(card, Card) or not isinstance(other, Card):
        alike = type(card) is type(other)
        return "" if alike and str(card) else f"the order of candidates made {card!r} into {other!r}"
    if len({repr(item) for item in card.items}) != odd.k or any(
        item not in odd.candidates for item in card.items
    ):
        return f"not a card of {odd.k} of {odd.candidates}: {card}"
    same = set(map(repr, card.items)) == set(map(repr, other.items))
    return "" if same else f"the order of candidates changed {card} into {other}"


def request(maker: Maker, reads_columns: bool) -> dict[str, Any]:
    """A request as it comes from JSON, odd here and there."""
    N = int(maker.rng.integers(1, 13))
    ids = maker.rng.permutation(14)[:N].tolist()
    candidates: list[Any] = [maker.one(IDS) if maker.rng.random() < maker.odd else item for item in ids]
    if maker.rng.random() < 0.5:
        candidates = [{"item_id": item, **_sent(maker)} for item in candidates]
    written: dict[str, Any] = {"user_id": maker.one(USERS[reads_columns], odd=True), "candidates": candidates}
    more: dict[str, Any] = {
        "k": maker.one([1, 2, 3], odd=True),
        "include": [maker.one(ids, odd=True)],
        "exclude": [maker.one(ids, odd=True)],
        "user_features": maker.one([None, [0.5, 1.0]], odd=True),
        "context": _sent(maker) if maker.rng.random() < 0.8 else maker.one(ODD),
    }
    written |= {name: value for name, value in more.items() if maker.rng.random() < 0.2}
    if maker.rng.random() < maker.odd:
        written[maker.one(sorted(written))] = maker.one(ODD)
    return written


def _sent(maker: Maker) -> dict[str, Any]:
    calm: dict[str, Any] = {
        "price": 19.99,
        "brand": "x",
        "device": "phone",
        "features": [1.0, 0.5],
        "position": 3,
    }
    return {name: maker.one([calm.get(name, 1.0)], odd=True) for name in NAMES if maker.rng.random() < 0.2}


def file(seed: int, n: int) -> str:
    """`score` on a torn file, bad rows counted: every row is answered, infeasible or bad."""
    from exactk.scale.score import ScoringJob, score

    rng = np.random.default_rng([seed, n])
    maker = Maker(rng, SHARES[n // 3 % len(SHARES)])
    reads_columns = bool(n % 4 < 2)
    rows = [request(maker, reads_columns) for _ in range(int(rng.integers(1, 6)))]
    suffix = ".parquet" if n % 2 else ".jsonl"
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / f"torn{suffix}", Path(folder) / "cards"
        source.write_bytes(_torn(rng, rows, suffix))
        job = ScoringJob(str(_model(reads_columns)), str(out), skip_bad=bool(rng.random() < 0.7))
        try:
            report = score(job, source)
        except ExactKError as error:
            return "" if str(error) else "an error without a word"
        cards = sum(pq.read_metadata(part).num_rows for part in out.glob("*.parquet"))
        return "" if cards == report.requests else f"{cards} cards, {report}"


def _torn(rng: np.random.Generator, rows: list[dict[str, Any]], suffix: str) -> bytes:
    if suffix == ".parquet":
        try:
            table = pa.Table.from_pylist(rows)
            buffer = pa.BufferOutputStream()
            pq.write_table(table, buffer)
            content: bytes = buffer.getvalue().to_pybytes()
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            content = b"PAR1"
    else:
        content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    if rng.random() < 0.3:
        at = int(rng.integers(len(content) + 1))
        content = content[:at] + PIECES[int(rng.integers(len(PIECES)))] + content[at:]
    return content


@cache
def _loaded(reads_columns: bool) -> Any:
    from exactk.recommender import Recommender

    return Recommender.load(_model(reads_columns))


def _model(reads_columns: bool) -> Path:
    return _columns_model() if reads_columns else sound_model()


@cache
def _columns_model() -> Path:
    """A model that reads every column of a log."""
    from exactk.data.dataset import Dataset
    from exactk.data.logs.frame import build_frame
    from exactk.recommender import Recommender
    from exactk.settings.presets import preset

    rng = np.random.default_rng(0)
    log, folder = kept_folder("columns-log"), kept_folder("columns-model")
    build_frame(log, pa.Table.from_pylist(rows_of_candidates(rng, 80)), {"position": "position"})
    learned, held_out, _ = Dataset.open(log).split("random")
    small = preset("tiny").with_overrides(["model=card_value", "card_value.epochs=1", "card_value.members=1"])
    Recommender(small).fit(learned, held_out, show=False).save(folder)
    return folder
