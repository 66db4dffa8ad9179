"""What callers of `solve` bring: its types, for type checkers alone; read into flat columns and padded requests.

Knows no rule and no search. At run time everything is read, and refused in words.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, no_type_check

import numpy as np
from jaxtyping import Float64, Int64

from exactk.errors import InputError
from exactk.problem.compiling import compiled
from exactk.problem.given import GivenRequests, array_of, table_of
from exactk.problem.rules.columns import RequestError, flat_ids, is_missing, shown

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from exactk.problem.rules.rule_set import Constraint, Constraints

    Scores = Sequence[float] | np.ndarray[tuple[int], np.dtype[Any]]  # of one request
    ScoresOfMany = Sequence[Sequence[float]] | np.ndarray[tuple[int, int], np.dtype[Any]]
    CardSize = int | np.integer[Any]
    Matrix = Sequence[Sequence[float]] | np.ndarray[Any, np.dtype[Any]]
    Matrices = Matrix | Sequence[Matrix]
    Rules = Constraints | Constraint | Sequence[Constraint] | AbstractSet[Constraint] | None
    Ids = Sequence[Any] | AbstractSet[Any] | np.ndarray[Any, np.dtype[Any]]
    RelaxOrder = Sequence[str | Constraint]
else:
    Scores = ScoresOfMany = CardSize = Matrix = Matrices = Rules = Ids = RelaxOrder = Any

MOST_CARDS = 10_000  # of one request
MOST_SECONDS = 1e9  # beyond it nobody waits, and whole numbers are no fractions any more
TILE = 32  # rows and columns read together: a tile and its mirror image stay in the nearest cache


class SolveOptions(TypedDict, total=False):
    """Options of `solve` that do not change the type of its answer."""

    constraints: Rules
    allowed: Matrices | None
    include: Ids | Mapping[Any, Ids] | None
    exclude: Ids | Mapping[Any, Ids] | None
    relax: RelaxOrder | str | Constraint
    explain: bool
    time_limit: float | None


@dataclass(frozen=True)
class CandidateTable:
    """M candidates in flat columns; `rows` says which make up each request, padded with -1."""

    scores: Float64[np.ndarray, "M"]
    columns: dict[str, np.ndarray]
    rows: Int64[np.ndarray, "B N"]
    request_ids: tuple[Any, ...] | None
    single: bool
    named: bool  # whether the items have ids of their own; else their positions serve

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, b: int) -> str:
        """How messages name a request."""
        return f"request {b}" if self.request_ids is None else f"request {b} ({self.request_ids[b]!r})"

    def part(self, here: slice, card_size: np.ndarray) -> Part:
        """Some requests, padded to the longest among them; nobody is asked for by name yet."""
        rows = self.rows[here]
        rows = rows[:, : int((rows >= 0).sum(1).max(initial=0))]
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Part(
            self.scores[rows], GivenRequests(columns, card_size[here], rows >= 0, ties_by_id=self.named)
        )


class Part(NamedTuple):
    """Requests padded to one N."""

    scores: Float64[np.ndarray, "B N"]
    asked: GivenRequests

    def one(self, b: int) -> Part:
        """One of them, still with a batch axis."""
        return Part(self.scores[b : b + 1], self.asked.one(b))


def read(scores: Any, items: Any, fields: Sequence[str] | None) -> CandidateTable:
    """One request from N scores, B requests from [B, N] scores or from items with a `request_id` column.

    `fields` names the columns of the items that rules read (None: keep all there are).
    """
    score_column = scores if isinstance(scores, str) else None
    table = {} if items is None else table_of(items, fields, score_column)
    if score_column is not None:
        if items is None:
            raise InputError(f"scores = {score_column!r} names a column, but no items were given")
        scores = table[score_column]
    score = _scores(scores)
    request_id = table.pop("request_id", None)
    if score.ndim == 1:
        if request_id is None:
            rows, names = np.arange(len(score))[None], None
        else:
            rows, names = _grouped(request_id, len(score))
        columns = {field: _flat(field, values, 1, len(score)) for field, values in table.items()}
    elif request_id is not None:
        raise InputError(
            "scores are [B, N] but items have a request_id: give one score for each row of items"
        )
    else:
        B, N = score.shape
        rows, names = np.arange(B * N).reshape(B, N), None
        columns = {field: _flat(field, values, B, N) for field, values in table.items()}
    named = "item_id" in columns
    if not named:
        columns["item_id"] = np.empty(score.size, np.int64)
        columns["item_id"][rows[rows >= 0]] = np.nonzero(rows >= 0)[1]
    single = score.ndim == 1 and request_id is None
    return CandidateTable(score.reshape(-1), columns, rows, names, single, named)


def _flat(field: str, values: np.ndarray, B: int, N: int) -> np.ndarray:
    """A column [N] (shared by all requests) or [B, N], either with a vector axis more, as [B * N]."""
    if B > 1 and values.shape[:2] == (B, N):
        return values.reshape(B * N, *values.shape[2:])
    if len(values) != N:
        raise InputError(f'"{field}" has shape {values.shape}, but there are {N} scores for each request')
    return values if B == 1 else np.concatenate([values] * B)


def _scores(scores: Any) -> Float64[np.ndarray, "..."]:
    unordered = isinstance(scores, str | bytes | bytearray | memoryview | Mapping | set | frozenset)
    if unordered or not hasattr(scores, "__len__") or (isinstance(scores, np.ndarray) and scores.ndim == 0):
        raise InputError(f"scores must be a sequence of numbers, one for each candidate, got {scores!r:.80}")
    given = _array_of_scores(scores)
    if given.dtype.kind not in "fiub":
        given = _numbers(given)
    if isinstance(scores, np.ma.MaskedArray):  # what is masked is missing, whatever number lies below
        given = np.where(np.ma.getmaskarray(scores), np.nan, given)
    if given.ndim not in (1, 2):
        raise InputError(f"scores must be [N] or [B, N], got shape {given.shape}")
    if given.size == 0:
        raise InputError(f"there are no candidates: scores have shape {given.shape}")
    with np.errstate(over="ignore"):  # infinite: refused with its place
        return given.astype(np.float64)


def _array_of_scores(scores: Any) -> np.ndarray:
    """Scores as numpy reads them; a tensor that it refuses (with a gradient, of half size, on a GPU) by its values."""
    try:
        given = np.asarray(scores)
    except (ValueError, TypeError, RuntimeError):
        if hasattr(scores, "tolist"):
            return np.asarray(scores.tolist())
        lengths = {len(row) for row in scores if isinstance(row, Sequence | np.ndarray)}
        if len(lengths) > 1:
            raise InputError(
                f"scores are ragged: rows have {min(lengths)} to {max(lengths)} entries; give [B, N], "
                "or a frame with a request_id column"
            ) from None
        given = np.empty((), object)
    if given.ndim == 0:
        raise InputError(f"scores must be a list or an array of numbers, [N] or [B, N], got {scores!r:.80}")
    return given


def _numbers(given: np.ndarray) -> np.ndarray:
    """Objects as floats, None as NaN; text is refused even where it looks like a number."""
    numbers = np.full(given.shape, np.nan)
    for where in np.ndindex(given.shape):
        value: Any = given[where]
        if is_missing(value):
            continue
        try:
            if isinstance(value, str | bytes | np.datetime64 | np.timedelta64 | np.complexfloating):
                raise ValueError
            numbers[where] = float(value)
        except OverflowError:
            numbers[where] = np.inf  # refused with its place, as any number that is not finite
        except (TypeError, ValueError):
            raise InputError(f"score at {list(where)} is not a number: {shown(value)[:80]}") from None
    return numbers


def check_scores(part: Part) -> None:
    """Refuse the first score that is not finite."""
    wrong = ~np.isfinite(part.scores) & part.asked.everywhere()
    if wrong.any():
        b, position = np.argwhere(wrong)[0].tolist()
        item = shown(part.asked.columns["item_id"][b, position])
        raise RequestError(
            b,
            f"the score at position {position} (item {item}) is {part.scores[b, position]}; scores must be finite "
            "(to keep it out, exclude it)",
        )


def _grouped(request_id: np.ndarray, num_rows: int) -> tuple[Int64[np.ndarray, "B N"], tuple[Any, ...]]:
    """Rows of each request, requests in order of first appearance."""
    if request_id.shape != (num_rows,):
        raise InputError(f'"request_id" has shape {request_id.shape}, but there are {num_rows} scores')
    members: dict[Any, list[int]] = {}
    for row, name in enumerate(request_id.tolist()):
        if is_missing(name):
            raise InputError(f"row {row} has no request_id")
        members.setdefault(name, []).append(row)
    rows = np.full((len(members), max(map(len, members.values()))), -1, np.int64)
    for b, own in enumerate(members.values()):
        rows[b, : len(own)] = own
    return rows, tuple(members)


def matrices(given: Any, name: str, asked: CandidateTable) -> Sequence[np.ndarray] | np.ndarray | None:
    """Pair scores or allowed matrices: [N, N] for all requests, [B, N, N], or one matrix per request."""
    if given is None:
        return None
    num_candidates = (asked.rows >= 0).sum(1)
    if isinstance(given, Sequence) and not asked.single:
        each: Any = [array_of(one) for one in given]
        if len({one.shape for one in each}) == 1:
            each = np.array(each)
    else:
        each = array_of(given)
    if isinstance(each, np.ndarray) and each.ndim == 2:
        each = np.broadcast_to(each, (len(asked), *each.shape))
    if len(each) != len(asked):
        raise InputError(f"{name} has {len(each)} matrices for {len(asked)} requests")
    shapes = [each.shape[1:]] * len(asked) if isinstance(each, np.ndarray) else [one.shape for one in each]
    for b, (shape, N) in enumerate(zip(shapes, num_candidates.tolist(), strict=True)):
        if shape != (N, N):
            raise InputError(f"{asked.name(b)}: {name} must be [{N}, {N}] for {N} candidates, got {shape}")
    return each  # type: ignore[no-any-return]


def padded(each: Sequence[np.ndarray] | np.ndarray, N: int) -> np.ndarray:
    """Matrices side by side, padded to [N, N] with zeros."""
    if isinstance(each, np.ndarray):
        return each
    side_by_side = np.zeros((len(each), N, N), np.result_type(*each))
    for b, matrix in enumerate(each):
        side_by_side[b, : len(matrix), : len(matrix)] = matrix
    return side_by_side


def checked_pair_scores(each: Sequence[np.ndarray] | np.ndarray, N: int) -> Float64[np.ndarray, "B N N"]:
    """Pair scores as the engine reads them: finite, symmetric up to rounding; the diagonal means nothing."""
    held = padded(each, N)
    try:
        if held.dtype.kind not in "fiubO":  # texts and complex numbers would be turned, without a word
            raise ValueError
        pairs = np.ascontiguousarray(held, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError("pair_scores must hold numbers of a size that computers can add") from None
    if are_plain(pairs):  # nearly always
        return pairs
    if not np.isfinite(pairs).all():
        pairs = pairs.copy()
        pairs[:, np.arange(N), np.arange(N)] = 0.0
        wrong = np.argwhere(~np.isfinite(pairs))
        if len(wrong):
            b, i, j = wrong[0].tolist()
            raise RequestError(
                b,
                f"pair_scores[{i}, {j}] is {pairs[b, i, j]}; pair scores must be finite "
                "(to keep two items apart, use a rule or an allowed matrix)",
            )
    mirrored = pairs.transpose(0, 2, 1)
    crooked = np.argwhere(~np.isclose(pairs, mirrored, rtol=1e-6, atol=1e-9))
    if len(crooked):
        b, i, j = crooked[0].tolist()
        raise RequestError(
            b,
            f"pair_scores are not symmetric: [{i}, {j}] is {pairs[b, i, j]:g} but [{j}, {i}] is "
            f"{pairs[b, j, i]:g}; a card is a set, a pair has one score",
        )
    return np.asarray(pairs / 2 + mirrored / 2)  # in this order, so that large ones do not overflow


@compiled
@no_type_check
def are_plain(pairs):
    """Whether all pair scores are finite and equal to their mirror images, read tile by tile."""
    N = pairs.shape[1]
    for b in range(len(pairs)):
        for top in range(0, N, TILE):
            for edge in range(top, N, TILE):
                for i in range(top, min(top + TILE, N)):
                    for j in range(max(edge, i), min(edge + TILE, N)):
                        if not np.isfinite(pairs[b, i, j]) or pairs[b, i, j] != pairs[b, j, i]:
                            return False
    return True


def wishes_of(wished: Any, word: str, asked: CandidateTable) -> list[list[Any]] | None:
    """Ids per request. For a batch: a list for each request, a mapping by request id, or ids for all of them.

    Ids excluded from all requests need not be candidates of every one of them, but of one at least.
    """
    listed = hasattr(wished, "__len__") and np.iterable(wished)
    if isinstance(wished, str) or (wished is not None and not listed):
        raise InputError(f"{word} must be a list of item ids, got {wished!r:.80}")
    if wished is None or len(wished) == 0:
        return None
    if asked.single:
        if isinstance(wished, Mapping):
            raise InputError(f"{word} must be a list of item ids for a single request, got {wished!r:.80}")
        return [flat_ids(wished)]
    if isinstance(wished, Mapping):
        known = asked.request_ids or tuple(range(len(asked)))
        for name in wished:
            if name not in known:
                raise InputError(f"{word} names request {name!r}, which is not there")
        for name, own in wished.items():
            if isinstance(own, str) or not np.iterable(own):
                raise InputError(f"{word} of request {name!r} must be a list of item ids, got {own!r:.80}")
        return [flat_ids(wished.get(name, ())) for name in known]
    nested = [one is None or isinstance(one, list | tuple | set | frozenset | np.ndarray) for one in wished]
    if all(nested):
        if len(wished) != len(asked):
            raise InputError(f"{word} has {len(wished)} lists of item ids for {len(asked)} requests")
        return [flat_ids(one) if one is not None else [] for one in wished]
    if any(nested):
        raise InputError(f"{word} mixes item ids and lists of them: {wished!r}")
    return _for_all(flat_ids(wished), word, asked)


def _for_all(ids: list[Any], word: str, asked: CandidateTable) -> list[list[Any]]:
    if word == "include":
        return [ids] * len(asked)
    held = [set(asked.columns["item_id"][row[row >= 0]].tolist()) for row in asked.rows]
    for item in ids:
        if not isinstance(item, Hashable) or not any(item in own for own in held):
            raise InputError(f"{word}d item {shown(item)} is among the candidates of no request")
    return [[item for item in ids if item in own] for own in held]


def card_sizes(k: Any, num_requests: int) -> np.ndarray:
    """k for each request; whether the numbers make sense is checked with the candidates."""
    try:
        sizes = np.asarray(k)
    except ValueError:
        sizes = np.empty(0, object)
    if sizes.ndim > 1 or sizes.dtype.kind not in "iu":
        raise InputError(f"k must be a whole number (or one for each request), got {k!r:.80}")
    if sizes.ndim == 1 and len(sizes) != num_requests:
        raise InputError(f"got {len(sizes)} card sizes k for {num_requests} requests")
    return np.broadcast_to(sizes, num_requests)


def card_count(n: Any) -> int:
    """How many cards of each request."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= MOST_CARDS:
        raise InputError(
            f"n, the number of cards, must be a whole number from 1 to {MOST_CARDS:,}, got {n!r}"
        )
    return int(n)


def seconds_of(time_limit: Any, name: str = "time_limit") -> float | None:
    """A time limit; None: there is none."""
    if time_limit is None:
        return None
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
        raise InputError(f"{name} must be a number of seconds above 0, got {time_limit!r:.80}")
    return float(min(time_limit, MOST_SECONDS))


def relax_order(relax: Any) -> tuple[Any, ...]:
    """The rules that may be let go; one alone may stand without a list."""
    return tuple(relax) if isinstance(relax, list | tuple | np.ndarray) else (relax,)
