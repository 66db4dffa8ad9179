"""Candidate order never matters: every preset, every door, with unknown items and equal scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.requests import Request
from exactk.data.requests.builder import RequestBuilder
from exactk.recommender import Recommender
from exactk.scale.score import ScoringJob, score
from exactk.serving.model import RUNGS, Decoder
from exactk.serving.settings import Settings
from exactk.settings.presets import PRESETS
from serving_server import client_of
from small_models import COLUMNS, ODD_BEAM, K, folder_of


@pytest.fixture(params=[*PRESETS, ODD_BEAM, COLUMNS])
def model(request: pytest.FixtureRequest) -> Path:
    return folder_of(request.param)


class Asked(NamedTuple):
    """Who asks, for items of which a model knows none, and for some that it knows as well, in its own types."""

    user: Any
    strangers: list[Any]
    mixed: list[Any]


def asked_of(folder: Path) -> Asked:
    """Ids of a model's types."""
    known = Vocabulary.load(folder)
    user = 999 if pa.types.is_integer(known.user_ids.type) else "nobody"
    whole = pa.types.is_integer(known.item_ids.type)
    strangers = [10_000 + n if whole else f"stranger-{n}" for n in range(19)]
    return Asked(user, strangers, [*strangers[:9], *known.item_ids[:5].to_pylist()])


def shuffled(candidates: list[Any]) -> list[list[Any]]:
    rng = np.random.default_rng(7)
    return [
        candidates,
        candidates[::-1],
        *([candidates[p] for p in rng.permutation(len(candidates))] for _ in range(6)),
    ]


def test_recommend_and_recommend_many(model: Path) -> None:
    recommender, (user, *lists) = Recommender.load(model), asked_of(model)
    for candidates in lists:
        orders = shuffled(candidates)
        alone = {frozenset(recommender.recommend(user, order, K).items) for order in orders}
        asked = [Request(user, tuple(order), K) for order in orders]
        together = {frozenset(card.items) for card in recommender.recommend_many(asked)}
        assert len(alone) == 1
        assert together == alone
        assert alone != {frozenset(candidates[:K])}


def test_the_service_on_every_rung_and_when_exploring(model: Path) -> None:
    recommender, (user, strangers, _) = Recommender.load(model), asked_of(model)
    fitted = recommender.fitted
    for explore, rungs in ((0.0, RUNGS), (0.9, RUNGS[:1])):
        decoder = Decoder(recommender.decider, explore)
        for rung in rungs:
            cards = set()
            for order in shuffled(strangers):
                batch = RequestBuilder(fitted.vocabulary).batch([Request(user, tuple(order), K)])
                found = decoder.decode(batch, rung, np.random.default_rng(5), 1.0).decision.cards[0]
                cards.add(frozenset(order[p] for p in found.tolist()))
            assert len(cards) == 1, (rung, explore)


def test_the_service_over_http(model: Path) -> None:
    user, *lists = asked_of(model)
    with client_of(Settings(model=model, budget_ms=5000.0)) as client:
        for candidates in lists:
            asked = [{"user": user, "candidates": order, "k": K} for order in shuffled(candidates)]
            answers = [client.post("/v1/cards", json=one).json() for one in asked]
            answers += client.post("/v1/cards", json={"requests": asked}).json()["answers"]
            assert len({frozenset(answer["card"]) for answer in answers}) == 1


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_scoring_files(model: Path, tmp_path: Path, suffix: str) -> None:
    user, _, mixed = asked_of(model)
    rows = [{"user_id": user, "candidates": order} for order in shuffled(mixed)]
    source = tmp_path / f"asked{suffix}"
    if suffix == ".jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), source)
    score(ScoringJob(model=str(model), out=str(tmp_path / "out"), k=K), source)
    cards = [
        card
        for part in (tmp_path / "out").glob("*.parquet")
        for card in pq.read_table(part)["card"].to_pylist()
    ]
    assert len(cards) == len(rows)
    assert len({frozenset(card) for card in cards}) == 1
