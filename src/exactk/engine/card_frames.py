"""Cards as a table: one row a request, joined back to it by `request_id`.

Knows no model and no request but its name; frames come back in the library they came in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import narwhals as nw
import pyarrow as pa

from exactk.errors import ExactKError, without_place
from exactk.problem.solving import Card


def cards_table(
    request_ids: Sequence[Any], users: Sequence[Any], answers: Sequence[Card | ExactKError]
) -> pa.Table:
    """request_id, user_id, card (ids), value, bound, relaxed, and the problem where there is no card."""
    cards = [answer if isinstance(answer, Card) else None for answer in answers]
    problems = [None if isinstance(answer, Card) else without_place(answer) for answer in answers]
    return pa.table({
        "request_id": pa.array(request_ids),
        "user_id": pa.array(users),
        "card": pa.array([None if card is None else list(card.items) for card in cards]),
        "value": pa.array([None if card is None else _known(card.value) for card in cards], pa.float64()),
        "bound": pa.array([None if card is None else _known(card.bound) for card in cards], pa.float64()),
        "relaxed": pa.array([list(card.relaxed) if card else [] for card in cards], pa.list_(pa.string())),
        "problem": pa.array(problems, pa.string()),
    })  # fmt: skip


def in_the_library_of(frame: Any, table: pa.Table) -> Any:
    """The table as pandas, polars or Arrow, as `frame` is."""
    known = nw.from_native(frame)
    return nw.from_arrow(table, backend=known.implementation).to_native()


def named_error(error: ExactKError, request_id: Any) -> ExactKError:
    """The same error, of the request that its caller knows by this name."""
    named = copy(error)
    named.args = (f"request {request_id!r}: {without_place(error)}",)
    return named


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None
