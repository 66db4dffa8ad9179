"""Files of scored candidates in, cards out, one request at a time: no file need fit into memory.

Knows how rows become requests; `solving.py` knows how a request becomes a card.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from exactk.errors import DataError, ExactKError, InputError, place_of, without_place
from exactk.problem.given import columns_of_rows
from exactk.problem.row_files import scored_rows
from exactk.problem.rules.constraints import Constraints
from exactk.problem.solving import Card, solve

REQUEST_KEYS = ("request_id", "items", "k", "pair_scores", "include", "exclude")
REQUESTS_AT_ONCE = 512


@dataclass(frozen=True)
class ScoredRequest:
    """One request of a file: its candidates as columns (`item_id` and `score` among them), and where it was read."""

    request_id: Any
    columns: Mapping[str, Sequence[Any]]
    where: str
    k: int | None = None
    pair_scores: Sequence[Any] = ()  # [item_id, other item_id, number] each
    include: Sequence[Any] = ()
    exclude: Sequence[Any] = ()


@dataclass(frozen=True)
class Solved:
    """What became of one request: a card (or the n best), or the reason why there is none."""

    request_id: Any
    cards: tuple[Card, ...] = ()
    error: str | None = None
    blocking: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """One JSON object: the card, or the error with what blocks it; more cards under `others`."""
        if self.error is not None:
            return {"request_id": self.request_id, "error": self.error, "blocking": list(self.blocking)}
        best, *others = [card.as_dict() for card in self.cards]
        return {"request_id": self.request_id, **best} | ({"others": others} if others else {})


def solve_file(
    path: Path,
    k: int,
    constraints: Constraints | None = None,
    score: str = "score",
    progress: Callable[[int], None] = lambda _: None,
    text_ids: bool = False,
    **settings: Any,
) -> Iterator[Solved]:
    """Solve a CSV, JSON lines or Parquet file; `settings` go to `solve`. A request without a card ends nothing; an
    item to include or exclude that no request offers is an error, said at the end.

    `progress` is called with how many bytes of the file have been read. `text_ids` as in `scored_rows`.
    """
    wished = {name: {str(item) for item in settings.get(name, ())} for name in ("include", "exclude")}
    requests = read_requests(path, score, progress, text_ids)
    while chunk := list(islice(requests, REQUESTS_AT_ONCE)):
        yield from solve_chunk(chunk, k, constraints, score, **settings)
        offered = (
            {str(item) for request in chunk for item in request.columns["item_id"]}
            if any(wished.values())
            else set()
        )
        wished = {name: items - offered for name, items in wished.items()}
    for name, items in wished.items():
        if items:
            raise InputError(f"{path}: no request offers the {name}d item {min(items)!r}")


def solve_chunk(
    chunk: Sequence[ScoredRequest],
    k: int,
    constraints: Constraints | None = None,
    score: str = "score",
    include: Sequence[Any] = (),
    exclude: Sequence[Any] = (),
    **settings: Any,
) -> list[Solved]:
    """The cards of some requests, solved side by side. Wishes given for all hold where a request names the item."""
    names = dict.fromkeys(name for request in chunk for name in request.columns)
    columns = {
        name: [value for r in chunk for value in r.columns.get(name, [None] * len(r.columns["item_id"]))]
        for name in names
    }
    columns["request_id"] = [place for place, r in enumerate(chunk) for _ in r.columns["item_id"]]
    pairs = [pair_matrix(request) for request in chunk] if any(r.pair_scores for r in chunk) else None
    try:
        answers = solve(
            score,
            k=[request.k or k for request in chunk],
            items=columns,
            constraints=constraints,
            pair_scores=pairs,
            include=[_wishes(request, include, request.include) for request in chunk],
            exclude=[_wishes(request, exclude, request.exclude) for request in chunk],
            infeasible="return",
            **settings,
        )
    except InputError as error:
        raise _placed(error, chunk) from error
    return [_solved(request, answer) for request, answer in zip(chunk, answers, strict=True)]


def _solved(request: ScoredRequest, answer: Any) -> Solved:
    if isinstance(answer, ExactKError):
        reason = without_place(answer)
        if isinstance(answer, InputError):
            reason = f"{request.where}: {reason}"
        return Solved(request.request_id, error=reason, blocking=getattr(answer, "blocking", ()))
    cards = (answer,) if isinstance(answer, Card) else tuple(answer)
    return Solved(request.request_id, cards=tuple(replace(c, request_id=request.request_id) for c in cards))


def _placed(error: InputError, chunk: Sequence[ScoredRequest]) -> InputError:
    """The same error, naming the place in the file instead of the place in the chunk."""
    if (place := place_of(error)) is not None:
        return InputError(f"{chunk[place].where}: {without_place(error)}")
    return InputError(f"{chunk[0].where}: {error}")


def _wishes(request: ScoredRequest, for_all: Sequence[Any], own: Sequence[Any]) -> list[Any]:
    """Own wishes, and those for all requests that this one can honour; the command line's text matches numeric ids."""
    named = {str(item): item for item in request.columns["item_id"]}
    return [*own, *(named[str(item)] for item in for_all if str(item) in named)]


def read_requests(
    path: Path,
    score: str = "score",
    progress: Callable[[int], None] = lambda _: None,
    text_ids: bool = False,
) -> Iterator[ScoredRequest]:
    """The requests of a file. Rows of one request stand together; without `request_id` all rows are one."""
    empty = True
    for request in _grouped(scored_rows(path, progress, text_ids), path, score):
        empty = False
        yield request
    if empty:
        raise DataError(f"{path}: holds no candidates")


def _grouped(
    rows: Iterable[tuple[str, Mapping[str, Any]]], path: Path, score: str
) -> Iterator[ScoredRequest]:
    """Neighbouring rows with one `request_id` become a request; a line with `items` is one by itself."""
    finished: set[Any] = set()
    for (request_id, _), neighbours in groupby(rows, _request_of):
        listed = list(neighbours)
        where, first = listed[0]
        if request_id in finished:
            raise DataError(
                f"{where}: request {request_id!r} appears again after other requests; sort {path.name} by request_id"
            )
        finished.add(request_id)
        if "items" in first:
            yield _from_nested(where, request_id, first, score)
        else:
            columns = columns_of_rows([row for _, row in listed])
            columns.pop("request_id", None)
            yield ScoredRequest(request_id, _checked(columns, where, score), where)


def _request_of(placed: tuple[str, Mapping[str, Any]]) -> tuple[Any, str | None]:
    """What the rows of one request have in common: its id, and its place where it is a line by itself."""
    where, row = placed
    alone = where if "items" in row else None
    request_id = row.get("request_id", alone)
    if not isinstance(request_id, Hashable):
        raise DataError(f"{where}: request_id must be text or a number, got {request_id!r:.80}")
    return request_id, alone


def _from_nested(where: str, request_id: Any, row: Mapping[str, Any], score: str) -> ScoredRequest:
    unknown = set(row) - set(REQUEST_KEYS)
    if unknown:
        raise DataError(
            f"{where}: unknown key {sorted(unknown)[0]!r}; a request may have {', '.join(REQUEST_KEYS)}"
        )
    items = row["items"]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise DataError(f"{where}: items must be a list of objects with item_id and {score}")
    if row.get("k") is not None and type(row["k"]) is not int:
        raise DataError(f"{where}: k must be a whole number, got {row['k']!r}")
    for key in ("pair_scores", "include", "exclude"):
        if not isinstance(row.get(key, []), list):
            raise DataError(f"{where}: {key} must be a list, got {row[key]!r}")
    request = ScoredRequest(request_id, _checked(columns_of_rows(items), where, score), where)
    return replace(request, **{key: row[key] for key in REQUEST_KEYS[2:] if row.get(key) is not None})


def _checked(columns: dict[str, list[Any]], where: str, score: str) -> dict[str, list[Any]]:
    for needed in ("item_id", score):
        if needed not in columns:
            raise DataError(
                f"{where}: there is no column {needed!r}; the columns are {', '.join(columns) or 'none'}"
            )
    wrong = [
        (item, value)
        for item, value in zip(columns["item_id"], columns[score], strict=True)
        if isinstance(value, bool) or not isinstance(value, int | float)
    ]
    if wrong:  # one odd cell of a CSV file makes texts of its whole column
        item, value = next((pair for pair in wrong if not _is_written_number(pair[1])), wrong[0])
        raise DataError(f"{where}: the {score} of item {item!r:.80} is {value!r:.80}, not a number")
    return columns


def _is_written_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def pair_matrix(request: ScoredRequest) -> np.ndarray:
    """Listed pairs as a symmetric matrix; a pair that names no candidate is refused."""
    ids = list(request.columns["item_id"])
    place = {item: position for position, item in enumerate(ids) if isinstance(item, Hashable)}
    matrix = np.zeros((len(ids), len(ids)))
    said: dict[tuple[int, int], float] = {}
    for entry in request.pair_scores:
        try:
            first, second, value = entry
            i, j, worth = place[first], place[second], float(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            i, j, worth = 0, 0, 0.0
        if i == j:
            raise InputError(
                f"{request.where}: pair_scores holds {entry!r}; each entry is [item_id, other item_id, number]"
            )
        if said.setdefault((min(i, j), max(i, j)), worth) != worth:
            raise InputError(
                f"{request.where}: pair_scores says {ids[i]!r:.80} and {ids[j]!r:.80} twice, and not the same of them"
            )
        matrix[i, j] = matrix[j, i] = worth
    return matrix
