"""Several processes at one job: same cards, same weights, same curve, whoever is killed. One local Ray for all."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_scale_data import in_files, log, reading
from test_scale_score import cards, made_requests, written

import test_column_doors
from exactk.data.dataset import Dataset
from exactk.errors import ConfigError
from exactk.recommender import Recommender
from exactk.scale.building import build_parts
from exactk.scale.cluster import Placement, cluster, deployed
from exactk.scale.score import ScoringJob, score
from exactk.scale.training import TrainingJob, learn, train
from exactk.serving.settings import Settings
from exactk.settings.presets import preset
from serving_model import ITEMS, fitted, write_data
from small_models import COLUMNS, folder_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray warns of its own past and future
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "log")


@pytest.fixture(scope="module")
def pair_model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair") / "model"
    fitted(data, "pair_value").save(folder)
    return folder


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'exactk[scale]'")
    with cluster(workers=2):
        yield


def test_rows_with_columns_get_the_cards_of_the_log_on_ray_too(tmp_path: Path, local_ray: None) -> None:
    for name in ("rows.parquet", "rows.jsonl"):
        source = test_column_doors.written(name, tmp_path)
        job = ScoringJob(str(folder_of(COLUMNS)), str(tmp_path / f"{name}-cards"))
        report = score(job, source, Placement(True, None, 2), rows=70)
        assert report.parts > 2
        assert (report.unread, report.missing) == ((), ())
        test_column_doors.same(test_column_doors.cards_in(Path(job.out)))


def test_ray_gives_the_same_rows_also_when_a_worker_is_killed(
    pair_model: Path, tmp_path: Path, local_ray: None
) -> None:
    source = written(tmp_path / "in", made_requests(num=3000), files=3)
    plain = score(ScoringJob(str(pair_model), str(tmp_path / "plain")), source, rows=40)
    killed: list[int] = []

    def kill_one(done: int, total: int) -> None:
        if not killed and done > 100:
            killed.append(ray_worker("PartWorker"))
            os.kill(killed[0], signal.SIGKILL)

    report = score(
        ScoringJob(str(pair_model), str(tmp_path / "out")), source, Placement(True, None, 2), 40, kill_one
    )
    assert killed
    assert (report.requests, report.infeasible) == (plain.requests, plain.infeasible)
    assert cards(tmp_path / "out") == cards(tmp_path / "plain")


LONG = ("reward.epochs=40", "training.epochs=30", "training.checkpoint_seconds=0", "training.device=cpu")
SHORT = ("reward.epochs=4", "training.epochs=4", "training.device=cpu")


def job(data: Path, place: Path, overrides: tuple[str, ...]) -> TrainingJob:
    settings = preset("tiny").with_overrides(overrides)
    return TrainingJob(str(data), str(place / "model"), str(place / "model.run"), settings.to_dict())


def weights(place: Path) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": t
        for name in ("policy", "value")
        if (file := place / "model" / f"{name}.safetensors").exists()
        for key, t in load_file(file).items()
    }


def curve(place: Path, task: str, event: str, figure: str) -> list[float]:
    lines = [json.loads(line) for line in (place / "model.run" / "metrics.jsonl").read_text().splitlines()]
    return [line[figure] for line in lines if (line["task"], line["event"]) == (task, event)]


def by_torchrun(data: Path, place: Path, overrides: tuple[str, ...], processes: int) -> None:
    """The command line, started by torchrun."""
    script = place.parent / "train.py"
    script.write_text("from exactk.cli import main\nmain()\n")
    settings = [part for text in overrides for part in ("--set", text)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += [str(script), "train", str(data), "--out", str(place / "model")]
    done = subprocess.run(
        [*command, "--preset", "tiny", *settings, "--json"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1  # only the first process talks


@pytest.fixture(scope="module")
def two_processes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never interrupted, never on Ray."""
    place = tmp_path_factory.mktemp("torchrun") / "two"
    by_torchrun(data, place, LONG, 2)
    return place


def test_two_processes_follow_the_curve_of_one_at_the_same_global_batch(
    data: Path, two_processes: Path, tmp_path: Path
) -> None:
    learn({"job": job(data, tmp_path / "one", LONG)})
    alone, together = tmp_path / "one", two_processes
    for event in ("train", "valid"):
        one, two = curve(alone, "value", event, "log_loss"), curve(together, "value", event, "log_loss")
        assert len(one) == len(two) >= 20
        assert two == pytest.approx(one, rel=0.02)  # the same sums in another order, 400 steps long
    one, two = (curve(place, "policy", "train", "supervised_loss") for place in (alone, together))
    assert len(one) == len(two) >= 5
    assert np.mean(two) == pytest.approx(np.mean(one), rel=0.1)  # each draws cards of its own
    assert one[-1] < one[0]


def test_one_worker_on_ray_learns_the_same_weights_as_no_ray(
    data: Path, tmp_path: Path, local_ray: None
) -> None:
    learn({"job": job(data, tmp_path / "plain", SHORT)})
    train(job(data, tmp_path / "ray", SHORT), Placement(True, None, 1))
    plain, on_ray = weights(tmp_path / "plain"), weights(tmp_path / "ray")
    assert plain.keys() == on_ray.keys()
    assert {key.split("/")[0] for key in plain} == {"policy", "value"}
    assert all(torch.equal(plain[key], on_ray[key]) for key in plain)


def test_a_worker_killed_mid_epoch_leaves_a_run_that_finishes_with_the_right_weights(
    data: Path, two_processes: Path, tmp_path: Path, local_ray: None
) -> None:
    place, killed = tmp_path / "ray", list[int]()

    def kill_one() -> None:
        metrics = place / "model.run" / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < 8:
            time.sleep(0.01)
        killed.append(ray_worker("RayTrainWorker"))
        os.kill(killed[0], signal.SIGKILL)

    threading.Thread(target=kill_one, daemon=True).start()
    train(job(data, place, LONG), Placement(True, None, 2))
    assert killed
    expected, found = weights(two_processes), weights(place)
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert curve(place, "value", "train", "loss") == curve(two_processes, "value", "train", "loss")


def test_what_no_second_try_mends_is_told_and_not_tried_again(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'exactk[scale]'")
    place = tmp_path / "ray"
    (place / "model.run").mkdir(parents=True)
    (place / "model.run" / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds an earlier run"):
        train(job(data, place, SHORT), Placement(True, None, 1))
    for _ in range(2):  # what a worker does, and what it does when Ray starts it again
        learn({"job": job(data, place, SHORT)})
        assert "cannot be resumed" in (place / "model.run" / "refused.txt").read_text()


def test_ray_workers_read_the_files_of_a_log(tmp_path: Path, local_ray: None) -> None:
    folder = in_files(tmp_path / "in", log(120))
    plain = build_parts(tmp_path / "plain", folder, reading(tmp_path))
    found = build_parts(tmp_path / "ray", folder, reading(tmp_path), Placement(True, None, 2))
    assert found.to_dict() == plain.to_dict()
    assert Dataset.open(tmp_path / "ray").meta.checksums == Dataset.open(tmp_path / "plain").meta.checksums


def test_the_same_app_answers_from_ray_serve(pair_model: Path, local_ray: None) -> None:
    asked = {"user": "u3", "candidates": ITEMS[:10], "k": 3, "budget_ms": 5000}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(model=pair_model, seed=0)
    with deployed(settings, Placement(True, None, 1), "127.0.0.1", port) as address:
        answer = httpx.post(f"{address}/v1/cards", json=asked, timeout=30)
    assert answer.status_code == 200, answer.text
    card = Recommender.load(pair_model).recommend("u3", ITEMS[:10], k=3)
    assert sorted(answer.json()["card"]) == sorted(card.items)


def ray_worker(name: str) -> int:
    """A process of Ray that runs this now; Ray names its workers for what they do."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (command := entry / "cmdline").exists():
            told = command.read_bytes().decode(errors="replace")
            if told.startswith("ray::") and name in told and descends(int(entry.name), os.getpid()):
                return int(entry.name)
    raise AssertionError(f"no worker runs {name}")


def descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return False
