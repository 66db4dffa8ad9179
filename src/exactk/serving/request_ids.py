"""Names for what was shown: when, chance, and the arm, so that feedback finds its arm without any memory.

Knows no log.
"""

from __future__ import annotations

import secrets
import time

from exactk.serving.split import CHALLENGER, CHAMPION

_MARKS = {CHAMPION: "a", CHALLENGER: "b"}


def new_request_id(arm: str) -> str:
    """Sorts by time; 48 random bits keep processes apart."""
    return f"{time.time_ns() // 1000:013x}{secrets.token_hex(6)}{_MARKS[arm]}"


def arm_in(request_id: str) -> str:
    """The arm a request id speaks of; an id that is not ours counts as unknown."""
    if len(request_id) == 26:
        for arm, mark in _MARKS.items():
            if request_id.endswith(mark):
                return arm
    return "unknown"
