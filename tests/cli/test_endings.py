"""How commands end when something outside ends them: Ctrl-C, a reader that leaves, a disk that is full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exactk.cli import main

SCORES = "item_id,score\n1,3\n2,2\n"


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    file = tmp_path / "scores.csv"
    file.write_text(SCORES)
    return file


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit status of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["exactk", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("", "exactk: interrupted\n"),
        (
            "stopped at step 3 and saved in runs; the same call with resume=True resumes it",
            "exactk: stopped at step 3 and saved in runs; the same command with --resume resumes it\n",
        ),
        ("stopped; the same call resumes there", "exactk: stopped; the same command resumes there\n"),
    ],
)
def test_ctrl_c_ends_with_130_and_says_how_to_resume(
    monkeypatch: pytest.MonkeyPatch,
    scores: Path,
    capsys: pytest.CaptureFixture[str],
    reason: str,
    said: str,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt(reason)

    monkeypatch.setattr("exactk.problem.solving_file.solve_file", interrupted)
    assert ended(monkeypatch, "solve", scores, "-k", 1) == 130
    assert capsys.readouterr().err == said


def test_a_full_disk_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, scores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "solve", scores, "-k", 1, "--out", "/dev/full") == 2
    assert capsys.readouterr().err == "exactk: --out /dev/full cannot be written: No space left on device\n"


def test_a_place_below_a_file_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, scores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    below = scores / "below"
    log = scores.with_name("log.csv")
    log.write_text("user_id,candidates,clicked_item\n1,1|2|3,1\n")
    assert ended(monkeypatch, "data", "build", "frame", "--impressions", log, "--out", below) == 2
    assert capsys.readouterr().err.startswith(f"exactk: {below} could not be written (")


@pytest.mark.parametrize("reader", ["head -c 1", "true"])
def test_a_reader_that_leaves_is_no_error(reader: str) -> None:
    pipe = f"{sys.executable} -m exactk settings | {reader}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].endswith("0")
    assert done.stderr == ""


def test_results_that_do_not_fit_on_the_disk_are_one_line_and_exit_2() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "exactk", "settings"], stdout=full, stderr=subprocess.PIPE
        )
    assert (done.returncode, done.stderr) == (2, b"exactk: No space left on device\n")


def test_a_share_of_users_without_a_second_model_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "serve", "--share", "0.5", "--port", "-1") == 2
    assert "name the second one (--challenger)" in capsys.readouterr().err


@pytest.mark.parametrize("letters", ["ascii", "latin-1", "utf-8"])
def test_letters_that_a_terminal_lacks_end_nothing(tmp_path: Path, letters: str) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text('{"item_id": "\u0416\u00e9", "score": 1, "price": 2}\n', encoding="utf-8")
    command = [sys.executable, "-m", "exactk", "solve", str(file), "-k", "1"]
    surroundings = os.environ | {"PYTHONIOENCODING": letters}
    for more in ([], ["--json"], ["--include", "\udcff"]):  # the last is no text at all
        done = subprocess.run([*command, *more], capture_output=True, env=surroundings, timeout=120)
        assert (done.returncode, b"Traceback" in done.stderr) == (2 if "--include" in more else 0, False)
        if "--json" in more:
            assert json.loads(done.stdout.decode(letters))["cards"][0]["items"] == ["\u0416\u00e9"]


DEAF = "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"  # machine code that hears of nothing, as a search
HEARD = "\nfor _ in range(10**9): time.sleep(0.01)"


@pytest.mark.parametrize("work", [DEAF, HEARD])
def test_ctrl_c_ends_a_search_that_hears_of_no_signal(work: str) -> None:
    code = f"""
import hashlib, time
from exactk.cli.output import interruptible
try:
    with interruptible():
        print("begun", flush=True)
        {work.strip()}
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert done.stdout is not None
    assert done.stdout.readline() == "begun\n"
    time.sleep(2)  # until it is at its work
    done.send_signal(signal.SIGINT)
    said, complained = done.communicate(timeout=120)
    ends = (130, "", "exactk: interrupted\n") if work == DEAF else (0, "heard\n", "")
    assert (done.returncode, said, complained) == ends
