"""Following a run from elsewhere: the figures that workers write down, passed on as they appear.

Knows no training and no Ray; it reads metrics.jsonl.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exactk.learning.progress import Listener

EVERY = 0.5  # seconds between two looks


@contextmanager
def following(path: Path, listener: Listener | None) -> Iterator[None]:
    """Tell the listener every line of the file that is written while the block runs."""
    if listener is None:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_follow, args=(path, listener, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        listener.close()


def _follow(path: Path, listener: Listener, done: threading.Event) -> None:
    told: set[tuple[str, int, str]] = set()
    while True:
        last = done.is_set()  # one more look after the end
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines():
            try:
                figures = json.loads(line)
            except json.JSONDecodeError:
                continue  # half written: whole at the next look
            key = (figures["task"], figures["step"], figures["event"])
            if key not in told:
                if not any(task == figures["task"] for task, _, _ in told):
                    listener.begin(figures["task"], 0)
                told.add(key)
                listener.hear(figures)
        if last:
            return
        done.wait(EVERY)
