"""What callers bring: its types, for type checkers alone; items of any kind (frames, columns, rows) read into arrays.

Knows no request and no rule; `problem/reading.py` makes requests of it. At run time everything is read, and refused in
words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from exactk.errors import InputError
from exactk.problem.rules.columns import nearest

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


class SolveOptions(TypedDict, total=False):
    """Options of `solve` that do not change the type of its answer."""

    constraints: Rules
    allowed: Matrices | None
    include: Ids | Mapping[Any, Ids] | None
    exclude: Ids | Mapping[Any, Ids] | None
    relax: RelaxOrder | str | Constraint
    explain: bool
    time_limit: float | None


def table_of(items: Any, fields: Sequence[str] | None, score_column: str | None) -> dict[str, np.ndarray]:
    """The columns wanted, as arrays, from a mapping, a list of rows or any frame narwhals knows."""
    if (
        isinstance(items, Sequence)
        and not isinstance(items, str)
        and all(isinstance(row, Mapping) for row in items)
    ):
        known = dict.fromkeys(field for row in items for field in row)
        items = {field: [row.get(field) for row in items] for field in known}
    if isinstance(items, Mapping):
        names, column = list(items), items.__getitem__
    else:
        # Imported here: most calls bring arrays.
        import narwhals as nw

        try:
            frame = nw.from_native(items, eager_only=True)
        except nw.exceptions.DuplicateError as error:
            twice = str(error).rpartition("- ")[2]
            raise InputError(f"items have a column more than once: {twice}; rename or drop one") from None
        except TypeError:
            raise InputError(
                f"items must be a frame, columns by name or a list of rows, got {type(items).__name__}"
            ) from None
        names, column = frame.columns, lambda field: _series(frame[field])
    wanted = [*(names if fields is None else fields), *([score_column] if score_column else [])]
    for field in wanted:
        if field not in names:
            raise InputError(f'the items have no field "{field}"{nearest(field, names)}')
    also = [field for field in ("item_id", "request_id") if field in names]
    return {field: array_of(column(field)) for field in dict.fromkeys([*also, *wanted])}


def _series(series: Any) -> Any:
    """Numbers without gaps stay arrays; anything else becomes plain Python values, with None for gaps."""
    plain = series.dtype.is_numeric() and series.null_count() == 0
    return series.to_numpy() if plain else series.to_list()


def array_of(values: Any) -> np.ndarray:
    """An array of numbers where they are that, else of Python objects, never one type for a mixture."""
    if isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray):
        return values
    if hasattr(values, "to_numpy") and len(getattr(values, "shape", ())) == 2:  # a frame as a matrix
        return np.asarray(values.to_numpy())
    if hasattr(
        values, "tolist"
    ):  # what is masked as None; elements of tensors and Arrow arrays are no plain values
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise InputError(f"a column, or a matrix, must be a sequence of values, got {values!r:.80}")
    try:
        listed = list(values)
    except TypeError as error:
        raise InputError(f"a column, or a matrix, must be a sequence of values: {error}") from None
    if listed and all(isinstance(value, int | float) and not isinstance(value, bool) for value in listed):
        numbers = np.array(listed)
        whole = all(isinstance(value, int | np.integer) for value in listed)
        if numbers.dtype.kind == "f" and whole:  # beyond 64 bits; as fractions they would lose digits
            return _objects(listed)
        return numbers
    nested = bool(listed) and all(isinstance(value, list | tuple | np.ndarray) for value in listed)
    if nested:  # [B, N] lists, or vectors; ragged ones stay objects, for the rule to refuse
        try:
            return np.array(listed)
        except ValueError:
            pass
    return _objects(listed)


def _objects(values: Sequence[Any]) -> np.ndarray:
    objects = np.empty(len(values), object)
    for place, value in enumerate(values):
        objects[place] = value
    return objects
