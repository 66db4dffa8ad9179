"""Names for what was shown: when, chance, and the arm, so that feedback finds its arm without any memory.

Knows no log.
"""

from __future__ import annotations

import os
import time

from exactk.serving.model.split import CHALLENGER, CHAMPION

_MARKS = {CHAMPION: "a", CHALLENGER: "b"}


_drawn: list[str] = []
os.register_at_fork(after_in_child=_drawn.clear)  # parent and child must not use the same


def _draw() -> str:
    """48 random bits as hex; the system is asked for many at once."""
    if not _drawn:
        drawn = os.urandom(6 * 512).hex()
        _drawn.extend(drawn[start : start + 12] for start in range(0, len(drawn), 12))
    return _drawn.pop()


def new_request_id(arm: str) -> str:
    """Sorts by time; 48 random bits keep processes apart."""
    return f"{time.time_ns() // 1000:013x}{_draw()}{_MARKS[arm]}"


def arm_in(request_id: str) -> str:
    """The arm a request id speaks of; an id that is not ours counts as unknown."""
    if len(request_id) == 26:
        for arm, mark in _MARKS.items():
            if request_id.endswith(mark):
                return arm
    return "unknown"
