"""Requests side by side, as columns: who asks for what, which rows of a catalogue that is, what was sent along.

Knows ids and values as callers hold them, no vocabulary. Requests come as objects, each with values of its own, or as
the columns of a table; both read the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from exactk.data.catalogue import Catalogue
from exactk.data.request_table import RequestTable
from exactk.data.requests import Request
from exactk.data.sent import IdColumn, IdLists, SentColumns, SentMappings, objects
from exactk.errors import InputError


@dataclass(frozen=True, eq=False)
class RequestSheet:
    """B requests of at most N candidates. `row` is that of the catalogue, -1 where it knows none or nobody is."""

    users: Sequence[Any]
    user_row: Int64[np.ndarray, "B"]
    row: Int64[np.ndarray, "B N"]
    present: Bool[np.ndarray, "B N"]
    card_size: Int64[np.ndarray, "B"]
    contexts: Sequence[Mapping[str, Any]]
    sent: SentMappings | SentColumns  # `places` are the cells b * N + n of which something is said
    candidates: IdLists | IdColumn
    all_known: bool  # the catalogue has every candidate
    include: Sequence[Sequence[Any]] | None = None
    exclude: Sequence[Sequence[Any]] | None = None
    user_features: Mapping[int, Sequence[Any]] | None = None  # of the requests that sent some

    @cached_property
    def ids(self) -> np.ndarray:
        """Ids of the candidates, None where nobody is."""
        held = np.full(self.present.shape, None, object)
        for b, candidates in enumerate(self.candidates.lists):
            held[b, : len(candidates)] = objects(candidates)
        return held

    def context_values(self, name: str) -> list[Any]:
        """What every request says under this name of itself, None where it does not."""
        return [context.get(name) for context in self.contexts]


def sheet_of(requests: Sequence[Request], known: Catalogue) -> RequestSheet:
    """Requests as they come from Python, JSON or HTTP, or from the columns of a table."""
    if not len(requests):
        raise InputError("there is no request to answer")
    if isinstance(requests, RequestTable):
        return _sheet_of_table(requests, known)
    listed = [request.candidates for request in requests]
    counts = np.array([*map(len, listed)])
    row = np.full((len(requests), max(1, int(counts.max()))), -1, np.int64)
    for b, candidates in enumerate(listed):
        row[b, : len(candidates)] = known.item_rows(candidates)
    N = row.shape[1]
    present = np.arange(N) < counts[:, None]
    features = {b: r.user_features for b, r in enumerate(requests) if r.user_features is not None}
    return RequestSheet(
        users=[request.user_id for request in requests],
        user_row=np.array([known.user_row(request.user_id) for request in requests], np.int64),
        row=row,
        present=present,
        card_size=np.array([request.k for request in requests]),
        contexts=[request.context for request in requests],
        sent=SentMappings(requests, N),
        candidates=IdLists(listed),
        all_known=bool(((row >= 0) == present).all()),
        include=_wishes([request.include for request in requests]),
        exclude=_wishes([request.exclude for request in requests]),
        user_features=features,
    )


def _sheet_of_table(requests: RequestTable, known: Catalogue) -> RequestSheet:
    counts, users = requests.counts, requests.users
    present = np.arange(max(1, int(counts.max()))) < counts[:, None]
    row = np.full(present.shape, -1, np.int64)
    row[present] = known.rows_of(requests.item_ids)
    return RequestSheet(
        users=users,
        user_row=np.array([*map(known.user_row, users)], np.int64),
        row=row,
        present=present,
        card_size=requests.card_size,
        contexts=requests.contexts,
        sent=SentColumns(requests.sent, present),
        candidates=IdColumn(requests.item_ids, counts),
        all_known=bool(((row >= 0) == present).all()),
        include=requests.wishes("include"),
        exclude=requests.wishes("exclude"),
    )


def _wishes(wishes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    return wishes if any(wishes) else None
