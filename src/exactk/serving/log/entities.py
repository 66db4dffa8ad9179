"""Items and users of a service's log as tables: what the model's catalogue knows, and over it what requests said.

Knows ids as texts, no impressions.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from exactk.serving.log.columns import free_name
from exactk.serving.log.impressions import ITEMS
from exactk.serving.log.journal import tables_in

MOST_COLUMNS = 1000  # attributes of items, the most frequent ones

Said = Mapping[str, Mapping[str, Any]]


def said_of_items(folder: Any) -> Said:
    """What was last said of each item that came inline."""
    said: dict[str, dict[str, Any]] = {}
    moments: dict[str, int] = {}
    for _, table in tables_in(folder, "items", ITEMS):
        for row in table.to_pylist():
            moment, item_id = row.pop("timestamp"), row["item_id"]
            if moment < moments.get(item_id, 0):
                continue
            rest = json.loads(row.pop("attributes") or "{}")
            held = {free_name(name): value for name, value in rest.items()} | row
            moments[item_id] = moment
            said[item_id] = {name: value for name, value in held.items() if value is not None}
    return said


def described(
    key: str,
    ids: Sequence[str],
    known: pa.Table | None,
    said: Said,
    numbers: Sequence[str],
    left_out: Counter[str],
) -> pa.Table:
    """One row per id: the catalogue's, and over it what was said; features are made of the columns `numbers`."""
    kept: dict[str, dict[str, Any]] = {}
    if known is not None:
        wanted = set(ids)
        texts = [str(each) for each in known[key].to_pylist()]
        places = [place for place, text in enumerate(texts) if text in wanted]
        kept = {texts[place]: row for place, row in zip(places, known.take(places).to_pylist(), strict=True)}
    rows: list[dict[str, Any]] = [{**kept.get(each, {}), **said.get(each, {}), key: each} for each in ids]
    for each, row in zip(ids, rows, strict=True):
        _set_numbers(row, said.get(each, {}), numbers)
    types = {field.name: field.type for field in known.schema} if known is not None else {}
    columns = {key: pa.array(ids, pa.string())}
    frequent = Counter(name for row in rows for name in row if name != key).most_common()
    left_out[f"rare attributes of {key.removesuffix('_id')}s"] += len(frequent[MOST_COLUMNS:])
    for name, _ in frequent[:MOST_COLUMNS]:
        values = [row.get(name) for row in rows]
        columns[name] = (
            _vectors(values, len(numbers), left_out)
            if name == "features"
            else _column(values, types.get(name))
        )
    return pa.table(columns)


def _set_numbers(row: dict[str, Any], said: Mapping[str, Any], numbers: Sequence[str]) -> None:
    """Numbers said by name into the list of features."""
    told = [name for name in numbers if isinstance(said.get(name), int | float)]
    held = row.get("features")
    if told and (held is None or len(held) == len(numbers)):
        features = list(held or [None] * len(numbers))
        for name in told:
            features[numbers.index(name)] = float(said[name])
        row["features"] = features


def _vectors(values: list[Any], size: int, left_out: Counter[str]) -> pa.Array:
    """Features of one length, unknown ones NaN; those of another length are left out and counted."""
    lengths = Counter(len(value) for value in values if value is not None)
    size = size or lengths.most_common(1)[0][0]
    odd = sum(count for length, count in lengths.items() if length != size)
    left_out["features left out, since others have another number of them"] += odd
    unknown = [math.nan] * size
    fitting = [unknown if value is None or len(value) != size else value for value in values]
    numbers = [[math.nan if each is None else each for each in value] for value in fitting]
    return pa.array(numbers, pa.list_(pa.float64()))


def _column(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Values of one kind as that kind; anything else as text, what is no text as JSON."""
    if all(value is None or _is_plain(value) for value in values):
        with suppress(pa.ArrowException, OverflowError):
            return pa.array(values, kind)
        if kind is not None:
            with suppress(pa.ArrowException, OverflowError):
                return pa.array(values)
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value, default=str)
        for value in values
    ]
    return pa.array(texts, pa.string())


def _is_plain(value: Any) -> bool:
    """Neither an object nor a list of anything but plain values of one kind: those no table can always hold."""
    if isinstance(value, list):
        return len({type(each) for each in value}) <= 1 and not any(
            isinstance(each, list | dict) for each in value
        )
    return not isinstance(value, dict)
