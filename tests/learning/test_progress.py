"""Reports of a training: the file, the line, the extras."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from exactk.errors import MissingExtraError
from exactk.learning.progress import MetricsFile, MLflow, TensorBoard, summary, trackers

TRAIN = {"task": "policy", "event": "train", "step": 20, "steps": 90, "epoch": 0, "loss": 1.25}
VALID = {
    "task": "policy",
    "event": "valid",
    "step": 40,
    "steps": 90,
    "epoch": 1,
    "precision": 0.5,
    "best": True,
}


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_report_is_one_line_of_json_and_not_a_number_is_null(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "run" / "metrics.jsonl")
    file.begin("policy", 0)
    file.hear(TRAIN)
    file.hear({**VALID, "precision": float("nan")})
    assert lines(tmp_path / "run" / "metrics.jsonl") == [TRAIN, {**VALID, "precision": None}]
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_a_resumed_task_cuts_what_came_after_its_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    value = {**TRAIN, "task": "value", "step": 80}
    for figures in (value, TRAIN, VALID):
        file.hear(figures)
    with path.open("a") as cut:
        cut.write('{"task": "policy", "st')  # a kill in the middle of a line
    again = MetricsFile(path)
    again.begin("policy", 25)
    assert lines(path) == [value, TRAIN]
    again.begin("policy", 0)
    assert lines(path) == [value]


def test_the_summary_names_what_people_look_for() -> None:
    told = summary({**TRAIN, **VALID, "hit_ratio": 0.25, "samples_per_second": 2950.4, "odd": 3.0})
    assert told == "loss 1.2500  clicked item 0.5000  overlap 0.2500  2,950/s"


def test_tensorboard_gets_every_figure(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'track' brings it")
    board = TensorBoard(tmp_path)
    board.hear(TRAIN)
    board.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    [point] = events.Scalars("policy/train/loss")
    assert (point.step, point.value) == (20, 1.25)


def test_mlflow_gets_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="the extra 'track' brings it")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    tracker = MLflow("run")
    tracker.hear(VALID)
    tracker.close()
    [run] = mlflow.search_runs(output_format="list")
    assert run.data.metrics == {"policy.valid.precision": 0.5}


def test_mlflow_is_asked_only_where_it_knows_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert not any(isinstance(listener, MLflow) for listener in trackers(tmp_path))


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    if find_spec("tensorboard") is not None or find_spec("mlflow") is not None:
        pytest.skip("the extra 'track' is installed")
    assert trackers(tmp_path) == []
    with pytest.raises(MissingExtraError, match=r"exactk\[track\]"):
        TensorBoard(tmp_path)
    with pytest.raises(MissingExtraError, match=r"exactk\[track\]"):
        MLflow("run")
