"""Workers that die, hang, or never start: noticed, replaced, and never in the way of a service that was told to end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from exactk.serving.run import Supervisor, is_stuck, serve, shared_metrics
from exactk.serving.schemas import SOLVE_EXAMPLE
from serving_server import workers_of

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="workers are found through /proc"
)

SERVE = """
import json, sys
from exactk.serving.run import serve
serve(log_level="critical", **json.loads(sys.argv[1]))
"""


# What workers may do instead of serving; run in processes of their own.


def beat(config: uvicorn.Config, sockets: list[socket.socket], pulse: Any) -> None:
    """Live until told to end."""
    while True:
        pulse.value += 1
        time.sleep(0.02)


def beat_then_hang(config: uvicorn.Config, sockets: list[socket.socket], pulse: Any) -> None:
    """The first to come leaves a mark and hangs, deaf to SIGTERM; who comes later lives."""
    pulse.value = 1
    try:
        Path(os.environ["MARK"]).touch(exist_ok=False)
    except FileExistsError:
        beat(config, sockets, pulse)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def beat_once_allowed(config: uvicorn.Config, sockets: list[socket.socket], pulse: Any) -> None:
    """Not ready before there is a mark."""
    until(Path(os.environ["MARK"]).exists)
    beat(config, sockets, pulse)


def hang(config: uvicorn.Config, sockets: list[socket.socket], pulse: Any) -> None:
    """Deaf to everything from the start."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pulse.value = 1
    time.sleep(600)


def fail(config: uvicorn.Config, sockets: list[socket.socket], pulse: Any) -> None:
    """Never ready."""
    sys.exit(3)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> float:
    """Waits for something; how long it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - begun


@contextmanager
def supervised(target: Any, **more: Any) -> Iterator[tuple[Supervisor, threading.Thread]]:
    """A supervisor in a thread, of workers that do as `target` does."""
    supervisor = Supervisor(uvicorn.Config("none"), [], target=target, **more)
    thread = threading.Thread(target=supervisor.watch)
    thread.start()
    try:
        yield supervisor, thread
    finally:
        supervisor.stop()
        thread.join(60)
        assert not thread.is_alive()


def pids(supervisor: Supervisor) -> list[int | None]:
    return [worker.process.pid for worker in list(supervisor.workers) if worker.is_ready]


def test_the_first_worker_comes_alone_and_the_others_once_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    with supervised(beat_once_allowed, count=3) as (supervisor, _):
        until(lambda: len(supervisor.workers) == 1)
        time.sleep(0.5)
        assert len(supervisor.workers) == 1
        (tmp_path / "mark").touch()
        until(lambda: len(pids(supervisor)) == 3)


def test_a_dead_worker_is_replaced_at_once() -> None:
    with supervised(beat, count=2) as (supervisor, _):
        until(lambda: len(pids(supervisor)) == 2)
        gone = pids(supervisor)[0]
        assert gone is not None
        os.kill(gone, signal.SIGKILL)
        until(lambda: len(pids(supervisor)) == 2 and gone not in pids(supervisor))


def test_a_worker_whose_pulse_stands_still_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    with supervised(beat_then_hang, count=1, hang_seconds=0.5) as (supervisor, _):
        until(lambda: len(pids(supervisor)) == 1)
        hung = pids(supervisor)[0]
        until(lambda: bool(pids(supervisor)) and pids(supervisor)[0] != hung)
        replaced = supervisor.workers[0]
        seen = replaced.seen
        until(lambda: replaced.seen > seen + 50)  # the new one lives on


def test_a_service_ends_in_its_time_though_its_workers_hear_nothing() -> None:
    with supervised(hang, count=2, shutdown_seconds=1.5) as (supervisor, thread):
        until(lambda: len(pids(supervisor)) == 2)
        workers = list(supervisor.workers)
        supervisor.stop()
        assert until(lambda: not thread.is_alive()) < 3
        assert all(worker.process.exitcode == -signal.SIGKILL for worker in workers)


def test_a_service_that_cannot_start_says_so_and_ends() -> None:
    with supervised(fail, count=2) as (supervisor, thread):
        until(lambda: not thread.is_alive())
        assert supervisor.has_failed


def test_a_supervisor_that_was_stopped_with_its_workers_blames_nobody() -> None:
    with supervised(beat, count=1, hang_seconds=1.0) as (supervisor, _):
        until(lambda: len(pids(supervisor)) == 1)
        (worker,) = supervisor.workers
        worker.look(3600.0)  # an hour's sleep of the whole machine
        worker.seen = int(worker.pulse.value)
        worker.look(3600.0)
        assert worker.still < 1.0


def test_work_that_never_ends_stops_the_pulse() -> None:
    class Service:
        def __init__(self, stuck: bool) -> None:
            self.stuck = stuck

        def is_stuck(self) -> bool:
            return self.stuck

    class App:
        class state:  # noqa: N801
            service: Any = None

    assert not is_stuck(App)
    App.state.service = Service(False)
    assert not is_stuck(App)
    App.state.service = Service(True)
    assert is_stuck(App)


# The real service.


@contextmanager
def service(scratch: Path, workers: int, **settings: Any) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`exactk serve`, every worker of it ready; what it leaves in the temporary directory is left in `scratch`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    order = json.dumps({"port": port, "workers": workers, "budget_ms": 2000.0, **settings})
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, order], env={**os.environ, "TMPDIR": str(scratch)}
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: listeners(port) == workers and answers(address, timeout=60), 240)
        yield address, process
    finally:
        process.terminate()
        process.wait(60)


def listeners(port: int) -> int:
    """How many sockets listen at a port: several workers have one each, from when they are ready (state 0A)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def answers(address: str, timeout: float = 5) -> bool:
    try:
        return httpx.get(f"{address}/healthz", timeout=timeout).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.timeout(300)
def test_a_lone_worker_that_is_stopped_or_killed_is_replaced_and_nobody_is_turned_away(
    tmp_path: Path,
) -> None:
    with service(tmp_path, 1, hang_seconds=1.0, log=None) as (address, process):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            (before,) = workers_of(process.pid)
            os.kill(before, number)
            until(lambda gone=before: gone not in workers_of(process.pid), 10)  # type: ignore[misc]
            # Whoever comes meanwhile waits in the queue of the port, which the supervisor keeps open.
            told = httpx.post(f"{address}/v1/solve", json=SOLVE_EXAMPLE, timeout=200)
            assert told.json()["card"] == ["scarf-red", "beanie", "boots"]
    assert process.returncode == 0


@pytest.mark.timeout(300)
def test_a_worker_killed_while_it_starts_leaves_no_hole(tmp_path: Path) -> None:
    with service(tmp_path, 2) as (address, process):
        before = workers_of(process.pid)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(set(workers_of(process.pid)) - set(before)) == 1, 10)
        (starting,) = set(workers_of(process.pid)) - set(before)
        os.kill(starting, signal.SIGKILL)
        until(lambda: bool(set(workers_of(process.pid)) - {*before, starting}), 10)
        for _ in range(50):  # the other one answers everybody: a worker takes connections once it is ready
            assert answers(address)
            time.sleep(0.02)


@pytest.mark.timeout(300)
def test_a_service_with_a_stopped_worker_ends_within_its_promise(tmp_path: Path) -> None:
    with service(tmp_path, 2, shutdown_seconds=3.0, hang_seconds=60.0) as (_, process):
        os.kill(workers_of(process.pid)[0], signal.SIGSTOP)
        begun = time.monotonic()
        process.terminate()
        assert process.wait(30) == 0
        assert time.monotonic() - begun < 4
        assert workers_of(process.pid) == []


@pytest.mark.timeout(300)
def test_workers_whose_supervisor_was_killed_end_too(tmp_path: Path) -> None:
    with service(tmp_path, 1) as (_, process):
        (worker,) = workers_of(process.pid)
        process.kill()
        process.wait()
        until(lambda: not Path(f"/proc/{worker}").exists(), 20)


def test_a_service_whose_settings_no_worker_accepts_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("exactk.serving.run.Supervisor", partial(Supervisor, target=fail))
    with pytest.raises(SystemExit, match="3"):
        serve(port=0, log_level="critical")


def test_what_a_killed_service_left_is_cleared_by_the_next_and_what_a_living_one_uses_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = tmp_path / "exactk-metrics-killed"
    killed.mkdir()
    (killed / "lock").touch()
    (killed / "counter_1.db").touch()
    with shared_metrics(2):
        living = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
        assert list(tmp_path.iterdir()) == [living]
        with shared_metrics(3):
            assert living in tmp_path.iterdir()
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ
    assert list(tmp_path.iterdir()) == []


def test_a_lone_worker_needs_no_folder_for_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with shared_metrics(1):
        assert list(tmp_path.iterdir()) == []


def test_a_worker_goes_without_pandas_and_takes_memory_as_the_system_gives_it() -> None:
    held = "[name for name in sys.modules if name.partition('.')[0] == 'pandas']"
    code = f"""
import sys
from exactk.serving.run import hold_less
hold_less()
import pyarrow, exactk.serving.app
pyarrow.array([1, 2])
assert not {held}, {held}
assert pyarrow.default_memory_pool().backend_name == "system"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
