"""A model remembers how its log was split, and is judged by that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from exactk.cli import app
from exactk.cli.model import split_of
from exactk.data import Dataset
from exactk.data.dataset import SplitRecord
from exactk.data.logs.frame import build_frame
from exactk.errors import InputError
from exactk.evaluation.compare import Existing, compare
from exactk.evaluation.verdict import verdict
from exactk.recommender import Recommender
from exactk_lab.bench.pages.kept import comparison_of


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("log") / "log"
    rng = np.random.default_rng(0)
    rows = [
        {
            "user_id": int(rng.integers(20)),
            "candidates": (items := rng.permutation(30)[:6].tolist()),
            "card": items[:2],
            "clicked": (clicked := bool(rng.random() < 0.5)),
            "clicked_item": items[0] if clicked else None,
            "timestamp": int(rng.integers(10**6)),
        }
        for _ in range(300)
    ]
    build_frame(folder, pa.Table.from_pylist(rows))
    return Dataset.open(folder)


def test_a_model_remembers_its_split_and_is_judged_on_rows_it_never_saw(log: Dataset, tmp_path: Path) -> None:
    learned, held_out, test = log.split("time", seed=3)
    recommender = Recommender("tiny").fit(learned, held_out, show=False)
    recommender.save(tmp_path / "model")
    kept = Recommender.load(tmp_path / "model")
    assert kept.fitted.split == learned.parted
    parts, caution = split_of(kept.fitted.split, log, None, 0)
    assert caution is None
    assert [part.rows.tolist() for part in parts] == [
        part.rows.tolist() for part in (learned, held_out, test)
    ]
    # another split of the same log would show the model its own lessons
    with pytest.raises(InputError, match="was trained by another split of this log"):
        compare(log.split("random"), [kept], quick=True)


def test_what_is_not_known_of_a_split_is_said(log: Dataset) -> None:
    here = log.split("random")[0].parted
    assert here is not None
    cases: list[tuple[SplitRecord | None, Any, str]] = [
        (None, None, "does not say how its log was split"),
        (here._replace(impressions="other"), None, "was trained on other impressions"),
        (here._replace(seed=9), "random", "trained by another split (split random, seed 9)"),
        (here._replace(cutoffs=["5", "9"]), None, "which only Python can repeat"),
        (here, "random", ""),
    ]
    for trained, split, told in cases:
        parts, said = split_of(trained, log, split, 0)
        assert told in (said or "")
        assert bool(told) == bool(said)
        assert parts[0].rows.tolist() == log.split(split)[0].rows.tolist()


def test_a_comparison_names_the_models_whose_split_is_not_known(log: Dataset) -> None:
    learned, held_out, test = log.split("random")
    known = Recommender("tiny").fit(learned, held_out, show=False)
    of_my_own = Recommender("tiny").fit(Dataset(log.folder, log.rows[:200]), None, show=False)
    assert "split" not in " ".join(verdict(compare(test, [known])))
    found = compare(test, [Existing("mine", of_my_own.decider, of_my_own.fitted.vocabulary), known])
    assert found.facts["split_unknown"] == ["mine"]
    assert "How the log was split for mine is not known" in " ".join(verdict(found))
    assert comparison_of(found.as_dict()).facts["split_unknown"] == ["mine"]


def test_evaluate_says_so_in_its_object_too(log: Dataset, tmp_path: Path) -> None:
    Recommender("tiny").fit(Dataset(log.folder, log.rows[:200]), None, show=False).save(tmp_path / "model")
    words = ["evaluate", str(tmp_path / "model"), str(log.path), "--json"]
    told = CliRunner().invoke(app, words)
    assert "does not say how its log was split" in json.loads(told.stdout)["caution"]
    assert "does not say how its log was split" in told.stderr
