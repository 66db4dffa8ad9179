"""How commands speak: results to stdout, talk to stderr, JSON as exactly one object.

Knows no command.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

from exactk.atomic import followed
from exactk.errors import InputError

DEAF_SECONDS = 1.0  # a command that has not heard of Ctrl-C by then will not soon

# Options that several commands share.
JSON = typer.Option(False, "--json", help="Print exactly one JSON object.")
RAY = typer.Option(False, "--ray", help="Run on a Ray cluster (needs the extra `scale`).")
MAP = typer.Option(
    [], "--map", help="Say what your columns are called: user_id=uid, item_id=sku. May be repeated."
)
MODEL = typer.Argument(help="A model folder (exactk train).")
DATASET = typer.Argument(help="A dataset folder (exactk data build).")
LOST = 3  # exit status where --strict was asked for: made, but of no use (much was lost, nothing was learned)
ADDRESS = typer.Option(
    None,
    "--address",
    help="Address of the Ray cluster; by default RAY_ADDRESS, or else a local Ray for this run.",
)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends a search, too: machine code hears of no signal, and the search may run for ever.

    A thread is woken by the signal itself. If the main thread stands where it stood `DEAF_SECONDS` later, the process
    ends; drafts of files stay beside their places, as after a kill.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield
        return

    def place() -> tuple[int, int]:
        frame = sys._current_frames()[main.ident or 0]
        return id(frame), frame.f_lasti

    def watch() -> None:
        while os.read(reading, 1):
            stood = place()
            if not over.wait(DEAF_SECONDS) and place() == stood:
                os.write(2, b"exactk: interrupted\n")
                os._exit(130)

    over = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(writing)
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.join()
        os.close(reading)


def talk(line: str) -> None:
    """A line for the person watching."""
    sys.stderr.write(line + "\n")


def emit(text: str) -> None:
    sys.stdout.write(text + "\n")


def emit_json(value: Any) -> None:
    """The result as one JSON object; not-a-number becomes null, which JSON can say."""
    letters = "utf-8" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    emit(json.dumps(plain(value), ensure_ascii=not letters, allow_nan=False))


def keep_json(document: Any, path: Path) -> None:
    """A plain document as a file, whole or not at all."""
    from exactk.atomic import write_text

    write_text(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    talk(f"written: {path}")


@contextmanager
def kept_file(path: Path, *inputs: Path | None) -> Iterator[TextIO]:
    """A text file that takes its name when it is whole; a link is followed, a device or pipe is written to.

    A place that cannot be written, or is one of the inputs, is refused before any work is done.
    """
    if path == Path("/dev/stdout"):  # opened anew, a file behind it would be written over
        yield sys.stdout
        return
    if path.is_dir():
        raise InputError(f"--out {path} is a folder; name a file in it")
    if path.absolute().is_relative_to("/dev") or (path.exists() and not path.is_file()):
        try:
            with path.open("w", encoding="utf-8", newline="") as device:
                yield device
        except OSError as error:
            raise InputError(f"--out {path} cannot be written: {error.strerror or error}") from None
        return
    try:
        target = followed(path)
    except OSError as error:
        raise InputError(f"--out {path} cannot be written: {error.strerror}") from None
    if not target.parent.is_dir():
        raise InputError(f"--out {path}: there is no folder {target.parent}; make it first")
    if any(given is not None and given.exists() and _same(given, target) for given in inputs):
        raise InputError(f"--out {path} is the file that is read; name another")
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8", newline="") as lines:
            yield lines
        draft.replace(target)
    except OSError as error:
        raise InputError(f"--out {path} cannot be written: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)


def _same(given: Path, target: Path) -> bool:
    return target.exists() and given.samefile(target)


def plain(value: Any) -> Any:
    """The same value in JSON's own types: numpy scalars and arrays, tuples and paths turned, NaN as null."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)  # dates, ids


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """A table for people, on stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, str) else _figure(cell) for cell in row))
    console = Console(file=sys.stdout, markup=False, emoji=False)  # a cell may hold [brackets] and :words:
    if not (console.is_terminal or "COLUMNS" in os.environ):  # a file or a pipe has no edge that cuts columns
        console.width = max(
            console.width, console.measure(table, options=console.options.update(width=10_000)).maximum
        )
    console.print(table)


FIGURES = {
    "infeasible": "requests without any valid card, left out",
    "rewards": "share of the list's rewards on the card",
    "precision": "clicked item on the card (P@K)",
    "hit_ratio": "overlap with the logged card (HR@K)",
    "whole_card": "whole card recovered",
    "value": "value: the model's estimate of a click",
    "valid": "valid cards",
    "true_value": "true value",
    "share_of_optimum": "of the optimum",
}


def emit_figures(figures: Mapping[str, float], part: str) -> None:
    """What a model scored, a table, and in plain words the figure that people ask for; unknown ones are left out."""
    known = {name: value for name, value in figures.items() if value == value}
    emit_table(
        (f"figure on {part}", "value"), [(FIGURES.get(name, name), value) for name, value in known.items()]
    )
    if "precision" in known:
        emit(f"clicked items on the card: {known['precision']:.1%} ({part}; all clicks of a list count)")
    elif "rewards" in known:
        emit(f"rewards on the card: {known['rewards']:.1%} ({part}; of all that a list brought)")
    elif "whole_card" in known:
        emit(f"whole cards recovered: {known['whole_card']:.1%} ({part}; no card was shown and passed over)")


def column_lines(unread: Sequence[str], missing: Sequence[str], notes: Mapping[str, int]) -> Iterator[str]:
    """What a person should know of the columns of requests."""
    if missing:
        yield f"missing: the model reads {', '.join(missing)}, and no request has it"
    if unread:
        yield f"not read by the model or a rule: {', '.join(unread)}"
    for said, count in notes.items():
        yield f"note, {count:,} times: {said}"


def _figure(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() or abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for work of a known size, silent where nobody watches; called with how much is done."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    with _bar(TextColumn(label), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(label, total=total or None)
        yield lambda done: bar.update(task, completed=done)


def _bar(*columns: Any) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def download_bar() -> Iterator[Callable[[int, int | None], None]]:
    """A bar for bytes on their way, silent where nobody watches."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    with _bar(TextColumn("downloading"), BarColumn(), DownloadColumn(), TransferSpeedColumn()) as bar:
        task = bar.add_task("downloading", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
