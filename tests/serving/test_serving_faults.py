"""What goes wrong in production, done on purpose: killed workers, slow senders, full disks, hostile bodies."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import httpx
import pytest

from exactk.errors import ConfigError, DataError
from exactk.serving.log import FEEDBACK
from exactk.serving.log.journal import read_all
from exactk.serving.run import for_workers, is_loopback, listening, serve
from exactk.serving.schemas import SOLVE_EXAMPLE
from exactk.serving.settings import Settings
from serving_server import client_of, served, workers_of

pytestmark = pytest.mark.slow

SERVE = """
import sys
from pathlib import Path
from exactk.serving.run import serve
serve(port=int(sys.argv[1]), workers=int(sys.argv[2]), log=Path(sys.argv[3]), log_level="critical")
"""


@contextmanager
def processes(workers: int, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The service as `exactk serve` runs it: a supervisor and its workers."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    scratch = log.with_name(f"{log.name}-scratch")
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port), str(workers), str(log)],
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 200
        while not _answers(address):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield address, process
    finally:
        process.terminate()
        process.wait(60)
    assert list(scratch.glob("exactk-*")) == []


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found through /proc")
@pytest.mark.timeout(600)  # two processes import torch, perhaps on a busy machine
def test_a_worker_killed_under_load_loses_no_acknowledged_feedback_and_is_replaced(tmp_path: Path) -> None:
    with processes(2, tmp_path / "log") as (address, supervisor):
        acknowledged: list[str] = []
        wrong: list[object] = []
        stop = threading.Event()

        def load(name: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                request_id = f"{name}-{number}"
                try:
                    with httpx.Client(base_url=address, timeout=10) as client:
                        told = client.post("/v1/feedback", json={"request_id": request_id, "clicked": True})
                        if told.status_code == 200:
                            acknowledged.append(request_id)
                        card = client.post("/v1/solve", json=SOLVE_EXAMPLE)
                        if card.status_code == 200 and sorted(card.json()["card"]) != [
                            "beanie",
                            "boots",
                            "scarf-red",
                        ]:
                            wrong.append(card.json())
                except httpx.HTTPError:
                    continue  # the connection of a killed worker breaks: the client asks again

        senders = [threading.Thread(target=load, args=(f"t{n}",)) for n in range(3)]
        for sender in senders:
            sender.start()
        time.sleep(1.0)
        before = workers_of(supervisor.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        deadline = time.monotonic() + 150
        while len(set(workers_of(supervisor.pid)) - set(before)) < 1:
            assert time.monotonic() < deadline, "the worker was not replaced"
            time.sleep(0.1)
        time.sleep(1.0)
        stop.set()
        for sender in senders:
            sender.join(30)
        deadline = time.monotonic() + 150
        while not _answers(address):
            assert time.monotonic() < deadline, "the service did not recover"
        assert "exactk_responses_total" in httpx.get(f"{address}/metrics", timeout=30).text
    kept = read_all(tmp_path / "log", "feedback", FEEDBACK)["request_id"].to_pylist()
    assert len(acknowledged) > 20
    assert wrong == []
    assert len(kept) == len(set(kept))
    assert set(acknowledged) <= set(kept)


def test_a_service_told_to_end_ends_well(tmp_path: Path) -> None:
    with processes(1, tmp_path / "log") as (_, process):
        pass
    assert process.returncode == 0


def test_answers_leave_at_once_with_several_workers(tmp_path: Path) -> None:
    """Without TCP_NODELAY every answer would take 40 ms more: header and body would leave apart."""
    with listening("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted = socket.create_connection(listener.getsockname())
        served_side, _ = listener.accept()
        assert served_side.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()
        served_side.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux spreads connections over sockets")
def test_connections_are_spread_over_workers_of_which_each_has_its_own_socket() -> None:
    with for_workers("127.0.0.1", 0) as kept, ExitStack() as opened:
        address = kept.getsockname()
        with pytest.raises(ConnectionRefusedError):  # nobody is ready
            socket.create_connection(address)
        workers = [opened.enter_context(pickle.loads(ForkingPickler.dumps(kept))) for _ in range(2)]
        for worker in workers:
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            worker.setblocking(False)
            worker.listen()
        with pytest.raises(ConfigError, match="cannot listen"):  # a second service must not join in
            for_workers("127.0.0.1", address[1])
        for _ in range(40):
            opened.enter_context(socket.create_connection(address))
        taken = [0, 0]
        for which, worker in enumerate(workers):
            with suppress(BlockingIOError):
                while True:
                    opened.enter_context(worker.accept()[0])
                    taken[which] += 1
        assert sum(taken) == 40
        assert min(taken) >= 5  # by chance less than once in a million times


def test_a_slow_sender_is_cut_off_and_others_are_served_meanwhile() -> None:
    with served(Settings(body_timeout_s=0.5)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /v1/solve HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            assert httpx.post(f"{address}/v1/solve", json=SOLVE_EXAMPLE, timeout=30).status_code == 200
            slow.settimeout(30)
            reply = b"".join(iter(lambda: slow.recv(65536), b""))  # head and body may come apart
        assert reply.startswith(b"HTTP/1.1 408")
        assert b"urn:exactk:problem:slow" in reply


WHOLE = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HTTP/1.1\r\nx-slow: ", WHOLE + b"GET /healthz HTT"],
    ids=["nothing", "half a head", "half of a second head"],
)
def test_who_never_ends_a_head_is_cut_off_while_others_are_served(sent: bytes) -> None:
    with served(Settings(head_timeout_s=0.6)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.settimeout(30)
            slow.sendall(sent)
            begun = time.monotonic()
            heard = b""
            while not heard.endswith(b'alive"}') and sent.startswith(WHOLE):
                heard += slow.recv(65536)
            assert httpx.get(f"{address}/healthz", timeout=30).status_code == 200
            try:
                while time.monotonic() < begun + 20:  # a byte now and then must not buy more time
                    slow.sendall(b"a")
                    time.sleep(0.1)
            except OSError:
                pass
            assert time.monotonic() < begun + 15
        with socket.create_connection((host, int(port))) as silent:
            silent.settimeout(30)
            silent.sendall(sent)
            reply = b"".join(iter(lambda: silent.recv(65536), b""))
        assert b"HTTP/1.1 408" in reply
        assert b"urn:exactk:problem:slow" in reply


def test_endless_headers_and_one_connection_too_many_are_refused() -> None:
    with served(Settings(max_connections=3)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as endless:
            endless.settimeout(30)
            endless.sendall(b"GET /healthz HTTP/1.1\r\n" + b"x-more: yes\r\n" * 9000)
            assert endless.recv(65536).startswith(b"HTTP/1.1 431")
        crowd = [socket.create_connection((host, int(port))) for _ in range(4)]
        try:
            crowd[3].settimeout(30)
            assert crowd[3].recv(65536).startswith(b"HTTP/1.1 503")
            crowd[0].settimeout(30)
            crowd[0].sendall(WHOLE)
            assert crowd[0].recv(65536).startswith(b"HTTP/1.1 200")
        finally:
            for each in crowd:
                each.close()


def test_who_does_not_read_the_answers_is_cut_off() -> None:
    with served(Settings(unread_timeout_s=0.5), send_buffer=4096) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((host, int(port)))
            deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 30)
            time.sleep(3)
            deaf.settimeout(30)
            heard = b"".join(iter(lambda: deaf.recv(65536), b""))
        assert heard.count(b"HTTP/1.1 200") < 30
        assert httpx.get(f"{address}/healthz", timeout=30).status_code == 200


def test_a_flood_of_requests_on_one_connection_is_not_kept_in_memory() -> None:
    with served(Settings()) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as flood:
            flood.settimeout(30)
            flood.sendall(WHOLE * 500)
            reply = b"".join(iter(lambda: flood.recv(65536), b""))
        assert b"HTTP/1.1 400" in reply
        assert reply.count(b"HTTP/1.1 200") < 100
        assert httpx.get(f"{address}/healthz", timeout=30).status_code == 200


def test_a_sender_that_hangs_up_in_mid_body_harms_nobody() -> None:
    with served(Settings()) as address:
        host, port = address.removeprefix("http://").split(":")
        for _ in range(5):
            with socket.create_connection((host, int(port))) as rude:
                rude.sendall(b"POST /v1/solve HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert httpx.post(f"{address}/v1/solve", json=SOLVE_EXAMPLE, timeout=30).status_code == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /v1/solve HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST /v1/solve HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/solve HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\x00\x01\x02 nonsense\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_hostile_bytes_are_refused_and_the_service_lives(raw: bytes) -> None:
    with served(Settings()) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as rude:
            rude.sendall(raw)
            rude.settimeout(30)
            reply = rude.recv(65536)
            assert not reply or reply.split(b" ")[1].startswith(b"4")
        assert httpx.get(f"{address}/healthz", timeout=30).status_code == 200


def test_feedback_on_a_full_disk_is_refused_not_lost_silently(tmp_path: Path) -> None:
    """A folder that may not be written stands for a disk that is full; the full disk itself: test_serving_log."""
    with client_of(Settings(log=tmp_path / "log")) as client:
        kept = client.post("/v1/feedback", json={"request_id": "a", "clicked": True})
        assert kept.status_code == 200
        import resource

        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        try:
            full = client.post("/v1/feedback", json={"request_id": "b", "clicked": True})
            solved = client.post("/v1/solve", json=SOLVE_EXAMPLE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert full.status_code == 503
        assert full.headers["retry-after"] == "5"
        assert solved.status_code == 200
        assert client.post("/v1/feedback", json={"request_id": "c", "clicked": True}).status_code == 200
        assert "exactk_log_lost_rows_total 1.0" in client.get("/metrics").text
    assert read_all(tmp_path / "log", "feedback", FEEDBACK)["request_id"].to_pylist() == ["a", "c"]


def test_memory_stays_flat_over_a_short_soak() -> None:
    with client_of(Settings()) as client:

        def resident() -> int:
            told = Path("/proc/self/statm").read_text().split()
            return int(told[1]) * os.sysconf("SC_PAGE_SIZE")

        for _ in range(300):
            client.post("/v1/solve", json=SOLVE_EXAMPLE)
        before = resident()
        for _ in range(1500):
            client.post("/v1/solve", json=SOLVE_EXAMPLE)
        assert resident() < before + 8 * 2**20


def test_serve_refuses_what_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        serve(model=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="not a model folder"):
        serve(model=tmp_path / "empty", workers=2)
    with pytest.raises(DataError, match="not a dataset folder"):
        serve(dataset=tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot make the log folder"):
        serve(log=tmp_path / "file" / "log")
    with pytest.raises(ConfigError, match="workers"):
        serve(workers=0)
    with pytest.raises(ConfigError, match="0 to 65535"):
        serve(port=70_000)
    with listening("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="cannot listen"):
        serve(port=taken.getsockname()[1], workers=2)


def test_loopback_is_recognised() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "shop")] == [
        True, True, True, False, False, False
    ]  # fmt: skip
