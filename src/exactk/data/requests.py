"""Request: one question at serving time, and a batch of them in a model's vocabulary.

Knows no log. Unknown ids are no error: index 0, plus whatever attributes and features came along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32

from exactk.data.catalogue import Catalogue
from exactk.data.request_columns import named_numbers, request_columns
from exactk.data.rolling import RollingCounts
from exactk.data.vocabulary import Vocabulary
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.rules.constraints import Constraints

_FIELDS = {"user_id", "candidates", "k", "include", "exclude", "user_features", "context"}


@dataclass(frozen=True)
class Request:
    """Candidates for one user, of whom exactly `k` make the card.

    `attributes` holds what was sent along for some items, by id: fields that rules read, the log's columns by name,
    and "features". `context` holds what is true of the request: the log's columns of context, and of users, by name.
    Names that a model does not know are left aside; what it knows and was not sent is missing, a value of its own.
    """

    user_id: Any
    candidates: tuple[Any, ...]
    k: int
    include: tuple[Any, ...] = ()
    exclude: tuple[Any, ...] = ()
    attributes: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict)
    user_features: tuple[Any, ...] | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, written: Mapping[str, Any], k: int | None = None) -> Request:
        """From JSON: candidates are ids, or objects with an `item_id` and anything else known of the item."""
        unknown = set(written) - _FIELDS
        if unknown:
            raise InputError(
                f"a request has no field {sorted(unknown)[0]!r}; it has {', '.join(sorted(_FIELDS))}"
            )
        candidates = written.get("candidates")
        if isinstance(candidates, str) or not isinstance(candidates, Sequence):
            raise InputError(f"candidates must be a list of items, got {candidates!r}")
        ids, attributes = [], {}
        for place, candidate in enumerate(candidates):
            if isinstance(candidate, Mapping):
                if "item_id" not in candidate:
                    raise InputError(f"candidate {place} has no item_id")
                ids.append(candidate["item_id"])
                attributes[ids[-1]] = {name: value for name, value in candidate.items() if name != "item_id"}
            else:
                ids.append(candidate)
        size = written.get("k", k)
        if isinstance(size, bool) or not isinstance(size, int):
            raise InputError(f"k must be a whole number, got {size!r}")
        features, context = written.get("user_features"), written.get("context")
        if context is not None and not isinstance(context, Mapping):
            raise InputError(f"context must be an object of names and values, got {context!r}")
        return cls(
            user_id=written.get("user_id"),
            candidates=tuple(ids),
            k=size,
            include=tuple(written.get("include") or ()),
            exclude=tuple(written.get("exclude") or ()),
            attributes=attributes,
            user_features=None if features is None else tuple(features),
            context=dict(context or {}),
        )


def request_batch(
    requests: Sequence[Request],
    vocabulary: Vocabulary,
    constraints: Constraints | None = None,
    catalogue: Catalogue | None = None,
    counts: RollingCounts | None = None,
    deadline: Deadline = ENDLESS,
) -> Batch:
    """Requests side by side. What a request says of an item goes before what the catalogue says.

    `counts` are the rolling counts as they stand; those a request sends itself go before them.
    """
    if not requests:
        raise InputError("there is no request to answer")
    known = catalogue or Catalogue(_NO_ITEMS, _NO_USERS)
    rules = constraints or Constraints()
    rules.refuse_functions_of_cards()
    B, N = len(requests), max(1, max(len(request.candidates) for request in requests))
    present = np.zeros((B, N), bool)
    item = np.zeros((B, N), np.int64)
    for b, request in enumerate(requests):
        count = len(request.candidates)
        present[b, :count] = True
        item[b, :count] = vocabulary.item_index(request.candidates)
    rows = [known.item_rows(request.candidates) for request in requests]
    asked = rules.requests(
        _columns(requests, rows, rules.fields, known, present),
        np.array([request.k for request in requests]),
        present,
        include=[request.include for request in requests],
        exclude=[request.exclude for request in requests],
        deadline=deadline,
    )
    return Batch(
        user=np.array([vocabulary.user_index(request.user_id) for request in requests], np.int64),
        item=item,
        present=asked.present,
        graph=asked.graph,
        card_size=asked.card_size.astype(np.int64),
        pinned=asked.pinned,
        group=asked.group,
        cap=asked.cap,
        tie_key=asked.tie_key,
        brief=asked.brief,
        user_features=_user_features(requests, vocabulary, known),
        item_features=_item_features(requests, rows, present, vocabulary, known),
        **request_columns(requests, rows, present, vocabulary.columns, known, counts),
    )


def rule_columns(request: Request, fields: Sequence[str], catalogue: Catalogue) -> dict[str, np.ndarray]:
    """What rules read of one request, [1, N] each: for saying why, after a batch has said what."""
    present = np.ones((1, len(request.candidates)), bool)
    return _columns([request], [catalogue.item_rows(request.candidates)], fields, catalogue, present)


_NO_ITEMS = pa.table({"item_id": pa.array([], pa.string())})
_NO_USERS = pa.table({"user_id": pa.array([], pa.string())})


def _columns(
    requests: Sequence[Request],
    rows: Sequence[Sequence[int]],
    fields: Sequence[str],
    known: Catalogue,
    present: Bool[np.ndarray, "B N"],
) -> dict[str, np.ndarray]:
    """The columns rules read, as objects; None where nobody knows."""
    columns = {name: np.full(present.shape, None, object) for name in ("item_id", *fields)}
    for b, request in enumerate(requests):
        count = len(request.candidates)
        columns["item_id"][b, :count] = request.candidates
        for name in fields:
            values = known.attribute(name, rows[b])
            for n, item_id in enumerate(request.candidates):
                sent = request.attributes.get(item_id, {})
                columns[name][b, n] = sent.get(name, values[n])
    return columns


def _user_features(requests: Sequence[Request], vocabulary: Vocabulary, known: Catalogue) -> Any:
    scaling = vocabulary.user_scaling
    if scaling is None:
        return None
    raw = np.full((len(requests), len(scaling)), np.nan, np.float32)
    held = known.user_features
    for b, request in enumerate(requests):
        row = known.user_row(request.user_id)
        if request.user_features is not None:
            raw[b] = _sent(request.user_features, len(scaling), "user_features", b)
        elif row >= 0 and held.shape[1] == len(scaling):
            raw[b] = held[row]
        if request.context and len(names := vocabulary.columns.columns.user.numbers) == len(scaling):
            named_numbers(request.context, names, raw[b], b)
    return scaling(raw)


def _item_features(
    requests: Sequence[Request],
    rows: Sequence[Sequence[int]],
    present: Bool[np.ndarray, "B N"],
    vocabulary: Vocabulary,
    known: Catalogue,
) -> Any:
    scaling = vocabulary.item_scaling
    if scaling is None:
        return None
    raw = np.full((*present.shape, len(scaling)), np.nan, np.float32)
    held = known.item_features
    for b, request in enumerate(requests):
        row = np.array(rows[b], np.int64)
        if held.shape[1] == len(scaling):
            raw[b, : len(row)][row >= 0] = held[row[row >= 0]]
        for n, item_id in enumerate(request.candidates):
            sent = request.attributes.get(item_id, {})
            if sent.get("features") is not None:
                raw[b, n] = _sent(sent["features"], len(scaling), f"features of item {item_id!r}", b)
            if sent and len(vocabulary.columns.item_numbers):
                named_numbers(sent, vocabulary.columns.item_numbers.names, raw[b, n], b)
    return scaling(raw)


def _sent(values: Any, size: int, what: str, b: int) -> Float32[np.ndarray, "F"]:
    try:
        read = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"request {b}: {what} must be numbers, got {values!r}") from error
    if read.shape != (size,):
        raise InputError(f"request {b}: {what} must be {size} numbers, got {read.shape}")
    return read
