"""The exported value weighs requests as the compiled engine does, and exact search makes the same cards of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from exactk.data.requests import Request
from exactk.errors import ConfigError
from exactk.learning.onnx import export_onnx, export_value, value_inputs
from exactk.problem.solving import solve
from exactk.recommender import Recommender
from small_models import COLUMNS, folder_of
from test_column_doors import bodies, requests_of

onnxruntime = pytest.importorskip("onnxruntime", reason="the export is checked with onnxruntime")
pytest.importorskip("onnxscript", reason="the extra 'onnx' brings it")
N = 15


def exported(name: str, folder: Path) -> Path:
    """By the command, in a process of its own: shapes are checked in this one, which would make them fixed."""
    path = folder / "value.onnx"
    command = [sys.executable, "-c", "from exactk.cli import main; main()", "export", str(folder_of(name))]
    subprocess.run([*command, "--out", str(path), "--candidates", str(N)], check=True)
    return path


def test_columns_of_requests_weigh_the_same_in_another_runtime(tmp_path: Path) -> None:
    recommender = Recommender.load(folder_of(COLUMNS))
    session = onnxruntime.InferenceSession(str(exported(COLUMNS, tmp_path)))
    wanted = {given.name for given in session.get_inputs()}
    requests = requests_of(bodies()[:9])
    batch = recommender.fitted.builder.batch(requests)
    inputs = {name: array for name, array in value_inputs(batch, N).items() if name in wanted}
    bias, node, pair = session.run(["bias", "node", "pair"], inputs)
    values = recommender.decider.value.values(batch)  # type: ignore[union-attr]
    longest = batch.present.shape[1]
    np.testing.assert_allclose(bias, values.bias, atol=1e-5)
    np.testing.assert_allclose(node[:, :longest], np.where(batch.present, values.node, 0), atol=1e-5)
    assert not node[:, longest:].any()
    for b, (request, card) in enumerate(zip(requests, recommender.recommend_many(requests), strict=True)):
        count = len(request.candidates)
        found = solve(node[b, :count].astype(float), 4, pair[b, :count, :count].astype(float))
        assert set(found.positions) == set(card.positions)


def test_a_pair_value_is_exported_too(tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(str(exported("pair-value", tmp_path)))
    recommender = Recommender.load(folder_of("pair-value"))
    items = recommender.fitted.catalogue.items["item_id"].to_pylist()[:6]
    batch = recommender.fitted.builder.batch([Request(None, tuple(items), 2)])
    wanted = {given.name for given in session.get_inputs()}
    inputs = {name: array for name, array in value_inputs(batch, N).items() if name in wanted}
    _, node, pair = session.run(["bias", "node", "pair"], inputs)
    values = recommender.decider.value.values(batch)  # type: ignore[union-attr]
    np.testing.assert_allclose(node[:, :6], values.node, atol=1e-5)
    np.testing.assert_allclose(pair[:, :6, :6], values.pair, atol=1e-5)


def test_what_cannot_be_exported_is_refused_by_name(tmp_path: Path) -> None:
    value, policy = Recommender.load(folder_of(COLUMNS)), Recommender.load(folder_of("tiny"))
    with pytest.raises(ConfigError, match="this model has none: export_value writes"):
        export_onnx(value, tmp_path / "x.onnx")
    with pytest.raises(ConfigError, match="at least 2 candidates"):
        export_value(value, tmp_path / "x.onnx", 1)
    with pytest.raises(ConfigError, match="items and pairs only"):
        export_value(policy, tmp_path / "x.onnx", 5)
    assert not list(tmp_path.iterdir())
