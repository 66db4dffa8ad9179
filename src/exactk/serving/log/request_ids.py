"""Names for what was shown: when, chance, arm, and a print of the card, so that feedback is matched without any memory.

Knows no log. An id says of itself that it was made here, and which items were on its card, in every worker and after
any restart. Its prints are hashes of 16 bits: a wrong item passes once in 65,536 times; what is joined later is joined
exactly.

>>> name = new_request_id("champion", ["a", "b"])
>>> is_ours(name), is_on_card(name, "a"), is_on_card(name, "c"), is_ours("made up")
(True, True, False, False)
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from hashlib import blake2b

from exactk.serving.model.split import CHALLENGER, CHAMPION

_MARKS = {CHAMPION: "a", CHALLENGER: "b"}
HEAD = 26  # time, chance and arm
PRINT = 4  # hex digits of one item
CHECK = 6  # hex digits over all that stands before them

_drawn: list[str] = []
os.register_at_fork(after_in_child=_drawn.clear)  # parent and child must not use the same


def _draw() -> str:
    """48 random bits as hex; the system is asked for many at once."""
    if not _drawn:
        drawn = os.urandom(6 * 512).hex()
        _drawn.extend(drawn[start : start + 12] for start in range(0, len(drawn), 12))
    return _drawn.pop()


def new_request_id(arm: str, card: Sequence[int | str]) -> str:
    """Sorts by time; 48 random bits keep processes apart."""
    head = f"{time.time_ns() // 1000:013x}{_draw()}{_MARKS[arm]}"
    body = head + "".join([_hash(head, str(item), PRINT) for item in card])
    return body + _hash("", body, CHECK)


def is_ours(request_id: str) -> bool:
    """Whether the id was made by this kind of service and came back whole."""
    prints = len(request_id) - HEAD - CHECK
    whole = prints > 0 and prints % PRINT == 0
    return whole and request_id[-CHECK:] == _hash("", request_id[:-CHECK], CHECK)


def is_on_card(request_id: str, item: int | str) -> bool:
    """Whether an item was on the card of one of our ids."""
    head, prints = request_id[:HEAD], request_id[HEAD:-CHECK]
    wanted = _hash(head, str(item), PRINT)
    return any(prints[at : at + PRINT] == wanted for at in range(0, len(prints), PRINT))


def moment_of(request_id: str) -> int | None:
    """When one of our ids was made, in microseconds since 1970; None of any other."""
    return int(request_id[:13], 16) if is_ours(request_id) else None


def arm_in(request_id: str) -> str:
    """The arm a request id speaks of; an id that is not ours counts as unknown."""
    if is_ours(request_id):
        for arm, mark in _MARKS.items():
            if request_id[HEAD - 1] == mark:
                return arm
    return "unknown"


def _hash(salt: str, text: str, digits: int) -> str:
    return blake2b(f"{salt}\0{text}".encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()[:digits]
