"""Small trained models of every preset, and one that reads the columns of a log; each is trained once a process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from card_logs import random_log
from exactk.data.logs.frame import from_frame
from exactk.data.sample import SampleLog, sample_log
from exactk.recommender import Recommender
from exactk.settings.config import Config
from exactk.settings.presets import PRESETS

KEPT: list[TemporaryDirectory[str]] = []
K = 3
COLUMNS = "best, on a log with columns"
ODD_BEAM = "tiny, with a beam of 5"


def small(config: Config) -> Config:
    """The same kind of model, made in a moment."""
    return replace(
        config,
        policy=replace(config.policy, width=16, heads=2, feed_forward_size=16, embedding_size=8),
        reward=replace(
            config.reward, kind="set" if config.reward.kind == "pnn" else config.reward.kind, epochs=1
        ),
        pair_value=replace(config.pair_value, members=1, epochs=1),
        card_value=replace(config.card_value, members=1, epochs=1, width=16, heads=2),
        training=replace(config.training, epochs=1, warm_start_epochs=0, samples=2),
    )


@cache
def folder_of(name: str) -> Path:
    """A model folder; it lives as long as the tests do."""
    KEPT.append(TemporaryDirectory(prefix="exactk-order-"))
    place = Path(KEPT[-1].name)
    if name == COLUMNS:
        sample = column_sample()
        log, config = from_frame(sample.rows, items=sample.items, path=place / "log"), PRESETS["best"]
    else:
        log, config = random_log(place / "log", 200), PRESETS["tiny" if name == ODD_BEAM else name]
    if name == ODD_BEAM:
        config = replace(config, policy=replace(config.policy, beam=5))
    train, valid, _ = log.split()
    Recommender(small(config)).fit(train, valid, show=False).save(place / "model")
    return place / "model"


@cache
def column_sample() -> SampleLog:
    """The log of the model that reads columns."""
    return sample_log(requests=200, seed=1)
