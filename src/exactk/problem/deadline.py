"""Until when an answer must stand: one value, handed to every part of the work that makes it.

Knows no work. The clock is the monotonic one that compiled searches read, too.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from exactk.errors import OutOfTimeError


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock; `Deadline()` never comes."""

    ends: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now; None: never."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds from now until then, 0 once it has passed."""
        return max(self.ends - time.monotonic(), 0.0) if self.ends < math.inf else math.inf

    @property
    def passed(self) -> bool:
        """Whether it has come."""
        return self.ends < math.inf and time.monotonic() >= self.ends

    def part(self, share: float) -> Deadline:
        """The moment at which this share of the time left will have gone: 0.5 is half-way."""
        return Deadline(time.monotonic() + share * self.left) if self.ends < math.inf else self

    def limit(self) -> float | None:
        """The seconds left as the engine takes a time limit: None for ever."""
        return self.left if self.ends < math.inf else None

    def check(self, doing: str) -> None:
        """Refuse to go on once it has come; `doing` is what was not finished."""
        if self.passed:
            raise OutOfTimeError(f"{doing} in the time given; give more, or ask for less")


ENDLESS = Deadline()
