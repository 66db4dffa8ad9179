"""Rules on named pairs: forbidden pairs of ids, a ready matrix, a function of the user's own.

Knows no search and no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exactk.errors import ConfigError, InputError
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.graph import pairs_of
from exactk.problem.rules.columns import (
    Columns,
    Mask,
    PairMask,
    RequestError,
    RuleColumn,
    RuleFunction,
    flat_ids,
    label,
)
from exactk.problem.rules.rule_set import Constraint


@dataclass(frozen=True)
class Forbid(Constraint):
    """Pairs of item ids that may not share a card. Ids that are not among the candidates are ignored."""

    type = "forbid"
    pairs: Any  # tuple of pairs once made; any list of pairs may be given

    def __post_init__(self) -> None:
        if isinstance(self.pairs, str) or not isinstance(self.pairs, Sequence | set | frozenset | np.ndarray):
            raise ConfigError(
                f'rule "forbid": pairs must be a list of [item id, item id], got {self.pairs!r}'
            )
        object.__setattr__(self, "pairs", tuple(_pair(n, pair) for n, pair in enumerate(self.pairs)))

    @property
    def name(self) -> str:
        """For example: forbidden pairs (3)."""
        return f"forbidden pairs ({len(self.pairs)})"

    @property
    def fields(self) -> tuple[str, ...]:
        """Ids only."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Pairs as lists, the JSON way."""
        return {"type": self.type, "pairs": [list(pair) for pair in self.pairs]}

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:  # noqa: ARG002
        """Everything but the pairs, both ways round."""
        B, N = present.shape
        allowed = np.ones((B, N, N), bool)
        partners: dict[Any, list[Any]] = {}
        for first, second in self.pairs:
            partners.setdefault(first, []).append(second)
        for b, ids in enumerate(columns["item_id"].tolist()):
            position = {item: p for p, item in enumerate(ids) if present[b, p]}
            for first in partners.keys() & position.keys():
                for second in partners[first]:
                    if second in position:
                        i, j = position[first], position[second]
                        allowed[b, i, j] = allowed[b, j, i] = False
        return allowed


def _pair(number: int, pair: Any) -> tuple[Any, Any]:
    two = not isinstance(pair, str) and isinstance(pair, Sequence | np.ndarray) and len(pair) == 2
    ids = flat_ids(pair) if two else []
    if not two or any(isinstance(item, bool) or not isinstance(item, str | int) for item in ids):
        raise ConfigError(f'rule "forbid": pair {number} must be two item ids, got {pair!r}')
    if ids[0] == ids[1]:
        raise ConfigError(f'rule "forbid": pair {number} names one item twice: {ids[0]!r}')
    return ids[0], ids[1]


@dataclass(frozen=True, eq=False)
class Allowed(Constraint):
    """A matrix over positions that you computed yourself: True where two candidates may share a card.

    Its shape is [N, N] for all requests, or [B, N, N].
    """

    type = "allowed"
    matrix: Any  # a boolean array once made; nested lists of booleans or 0/1 may be given

    def __post_init__(self) -> None:
        try:
            given = np.asarray(self.matrix)
        except ValueError:
            raise ConfigError('rule "allowed": the matrix is ragged; [N, N] is needed') from None
        matrix = given.astype(bool)
        if given.dtype.kind not in "biuf" or (given != matrix).any():
            raise ConfigError('rule "allowed": the matrix must hold only true and false (or 1 and 0)')
        if matrix.ndim not in (2, 3) or matrix.shape[-1] != matrix.shape[-2]:
            raise ConfigError(f'rule "allowed": the matrix must be [N, N], got shape {matrix.shape}')
        crooked = np.argwhere(matrix != matrix.swapaxes(-1, -2))
        if len(crooked):
            *where, i, j = crooked[0].tolist()
            reason = (
                f"the allowed matrix is not symmetric: [{i}, {j}] and [{j}, {i}] differ; "
                "'may share a card' must hold both ways"
            )
            raise RequestError(where[0], reason) if where else InputError(reason)
        matrix.flags.writeable = False
        object.__setattr__(self, "matrix", matrix)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allowed) and np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix.tobytes()))

    @property
    def name(self) -> str:
        """Always: allowed matrix."""
        return "allowed matrix"

    @property
    def fields(self) -> tuple[str, ...]:
        """Positions only."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """The matrix as nested lists."""
        return {"type": self.type, "matrix": self.matrix.tolist()}

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:  # noqa: ARG002
        """The matrix, for every request."""
        B, N = present.shape
        shape = self.matrix.shape
        if shape[-1] != N or (len(shape) == 3 and shape[0] != B):
            raise InputError(
                f"the allowed matrix has shape {shape}, but there are {B} requests of {N} candidates"
            )
        return np.broadcast_to(self.matrix, (B, N, N))


@dataclass(frozen=True)
class Rule(Constraint):
    """A rule of your own: `function(a, b)` gets two items, mappings from field to value; True if they may share a card.

    With `vectorised=True` it is called once per batch, with a's values shaped [B, N, 1] and b's [B, 1, N].
    With `on="card"` it gets the whole card as a list of items (in order of place, if there are places). It is asked
    about the best card, then about the second best, until one passes. Without `fields` it sees every column. It
    cannot be written to a file.
    """

    type = "rule"
    function: RuleFunction
    name: str = ""
    fields: tuple[str, ...] = ()
    vectorised: bool = False
    on: Any = "pairs"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f'rule "rule": function must be a function of two items, got {self.function!r}')
        if self.on not in ("pairs", "card") or (self.on == "card" and self.vectorised):
            raise ConfigError(
                f'rule "rule": on must be "pairs" or "card" (never vectorised), got {self.on!r}'
            )
        own_name = getattr(self.function, "__name__", type(self.function).__name__)
        object.__setattr__(self, "name", self.name or own_name)
        fields: Any = self.fields
        object.__setattr__(self, "fields", (fields,) if isinstance(fields, str) else tuple(fields))

    @property
    def _asked(self) -> Any:
        """The function, which takes two items or a card."""
        return self.function

    @property
    def speaks_of_pairs(self) -> bool:  # type: ignore[override]
        """Of pairs, or of whole cards."""
        return bool(self.on == "pairs")

    def allows_card(self, columns: Columns, b: int, card: Sequence[int]) -> bool:
        """The function's verdict on a whole card."""
        seen = {name: RuleColumn.of(columns, name, self.name).values for name in self.fields or columns}
        items = [{name: values[b, p] for name, values in seen.items()} for p in card]
        try:
            return bool(self._asked(items))
        except Exception as error:
            names = ", ".join(label(columns, b, p) for p in card)
            error.add_note(f'rule "{self.name}" looked at the card of {names}')
            raise

    def to_dict(self) -> dict[str, Any]:
        """Refused: a function has no JSON form."""
        raise ConfigError(
            f'rule "{self.name}" is a Python function and cannot be written to a file; '
            "give it in code, or write its verdict as an allowed matrix or forbidden pairs"
        )

    def allowed(self, columns: Columns, present: Mask, deadline: Deadline = ENDLESS) -> PairMask:
        """The function's verdict on every pair, asked both ways round and refused where the two differ."""
        if self.on == "card":
            return super().allowed(columns, present)
        seen = {name: RuleColumn.of(columns, name, self.name).values for name in self.fields or columns}
        verdict = (
            self._at_once(seen, present)
            if self.vectorised
            else self._one_by_one(seen, columns, present, deadline)
        )
        crooked = np.argwhere((verdict != verdict.transpose(0, 2, 1)) & pairs_of(present))
        if len(crooked):
            b, i, j = crooked[0].tolist()
            raise RequestError(
                b,
                f'rule "{self.name}" is not symmetric: it says {verdict[b, i, j]} of {label(columns, b, i)} '
                f"with {label(columns, b, j)}, and {verdict[b, j, i]} the other way round",
            )
        return verdict

    def _at_once(self, seen: Columns, present: Mask) -> PairMask:
        B, N = present.shape
        first = {name: values[:, :, None] for name, values in seen.items()}
        second = {name: values[:, None, :] for name, values in seen.items()}
        answer = np.asarray(self._asked(first, second))
        try:
            return np.broadcast_to(answer, (B, N, N)).astype(bool)
        except ValueError:
            raise InputError(
                f'rule "{self.name}" must answer with shape {(B, N, N)}, it gave {answer.shape}'
            ) from None

    def _one_by_one(self, seen: Columns, columns: Columns, present: Mask, deadline: Deadline) -> PairMask:
        B, N = present.shape
        verdict = np.zeros((B, N, N), bool)
        for b in range(B):
            here = np.flatnonzero(present[b]).tolist()
            rows = {p: {name: values[b, p] for name, values in seen.items()} for p in here}
            for i in here:
                deadline.check(f'rule "{self.name}" was not asked about all pairs')
                for j in here:
                    if i == j:
                        continue
                    try:
                        verdict[b, i, j] = bool(self._asked(rows[i], rows[j]))
                    except Exception as error:
                        error.add_note(
                            f'rule "{self.name}" compared {label(columns, b, i)} with {label(columns, b, j)}'
                        )
                        raise
        return verdict
