"""From the service's log to a dataset folder: what was served today trains, and judges other models, tomorrow.

Knows the log's tables and the dataset's, no service that runs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from exactk.data.catalogue import Catalogue
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError
from exactk.serving.log.impressions import FEEDBACK, IMPRESSIONS, ITEMS
from exactk.serving.log.journal import read_all

MOST_COLUMNS = 1000  # attributes of items, the most frequent ones
RESERVED = {"user_id", "request_id", "candidates", "card", "clicked", "clicked_item", "propensity", "graph", "split",
            "timestamp"}  # fmt: skip


class BuiltLog(NamedTuple):
    """How many rows a log gave, and what it held that is not in them."""

    rows: int
    clicked: int
    left_out: dict[str, int]


def collect(
    log: Path | str,
    out: Path | str,
    constraint: Mapping[str, Any] | None = None,
    catalogue: Catalogue | None = None,
) -> BuiltLog:
    """Join a log folder into a dataset folder, with propensities.

    A request counts as clicked when any feedback says so, unless it names an item that was not on the card; the first
    clicked item stands. `catalogue`, as a model keeps it, tells of the items and users that requests named by id alone;
    what came inline with a request goes before it. An attribute named like a column of impressions gets the prefix
    "item_". Whatever is not used is counted in what is returned.
    """
    folder = Path(log)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a log folder: it does not exist")
    shown = read_all(folder, "impressions", IMPRESSIONS)
    if not len(shown):
        raise DataError(f"{folder} holds no impressions")
    integers = {of: _all_integers(shown, of) for of in ("users", "items")}
    left_out: Counter[str] = Counter()
    impressions = _joined(shown, read_all(folder, "feedback", FEEDBACK), left_out)
    offered = pc.unique(pc.list_flatten(shown["candidates"])).to_pylist()
    items = _described("item_id", offered, catalogue and catalogue.items, _inline(folder), left_out)
    users = _described(
        "user_id", pc.unique(shown["user_id"]).to_pylist(), catalogue and catalogue.users, {}, left_out
    )
    counted = {what: count for what, count in left_out.items() if count}
    provenance = {"source": "serving log", "left_out": counted}
    with DatasetWriter(out, {"constraint": constraint, "provenance": provenance}) as writer:
        writer.write_items(_with_ids(items, ("item_id",), integers["items"]))
        writer.write_users(_with_ids(users, ("user_id",), integers["users"]))
        impressions = _with_ids(impressions, ("candidates", "card", "clicked_item"), integers["items"])
        writer.write_impressions(_with_ids(impressions, ("user_id",), integers["users"]))
    return BuiltLog(len(impressions), int(pc.sum(impressions["clicked"]).as_py()), counted)


def _all_integers(shown: pa.Table, of: str) -> bool:
    """Whether all ids were whole numbers; `integer_ids`, in older logs, says it of users and items together."""
    return bool(pc.all(pc.coalesce(shown[f"integer_{of}"], shown["integer_ids"])).as_py())


def _joined(shown: pa.Table, feedback: pa.Table, left_out: Counter[str]) -> pa.Table:
    """Impressions with what was clicked; feedback that cannot be believed is counted."""
    cards = dict(zip(shown["request_id"].to_pylist(), shown["card"].to_pylist(), strict=True))
    feedback = feedback.sort_by("timestamp")
    first: dict[str, str | None] = {}
    for request_id, clicked, item in zip(
        *(feedback[name].to_pylist() for name in ("request_id", "clicked", "clicked_item")), strict=True
    ):
        if request_id not in cards:
            left_out["feedback for requests that are not in the log"] += 1
        elif clicked and item is not None and item not in cards[request_id]:
            left_out["clicks on items that were not on the card"] += 1
        elif clicked and first.get(request_id) is not None:
            left_out["clicks after the first of a request"] += 1
        elif clicked:
            first[request_id] = item
    requests = shown["request_id"].to_pylist()
    columns = ["request_id", "user_id", "candidates", "card", "propensity", "arm", "model"]
    return (
        shown.select(columns)
        .append_column("timestamp", shown["timestamp"].cast(pa.timestamp("us", tz="UTC")))
        .append_column("clicked", pa.array([each in first for each in requests], pa.bool_()))
        .append_column("clicked_item", pa.array([first.get(each) for each in requests], pa.string()))
    )


def _inline(folder: Path) -> dict[str, dict[str, Any]]:
    """What was last said of each item that came inline."""
    said = {}
    for row in read_all(folder, "items", ITEMS).sort_by("timestamp").to_pylist():
        rest = json.loads(row.pop("attributes") or "{}")
        del row["timestamp"]
        rest = {f"item_{name}" if name in RESERVED else name: value for name, value in rest.items()}
        said[row["item_id"]] = {name: value for name, value in {**rest, **row}.items() if value is not None}
    return said


def _described(
    name: str,
    ids: Sequence[str],
    known: pa.Table | None,
    said: Mapping[str, Mapping[str, Any]],
    left_out: Counter[str],
) -> pa.Table:
    """One row per id: the catalogue's, and over it what was said. Features are for all or for none."""
    kept: dict[str, dict[str, Any]] = {}
    if known is not None:
        wanted = set(ids)
        texts = [str(each) for each in known[name].to_pylist()]
        places = [place for place, text in enumerate(texts) if text in wanted]
        kept = {texts[place]: row for place, row in zip(places, known.take(places).to_pylist(), strict=True)}
    rows: list[dict[str, Any]] = [{**kept.get(each, {}), **said.get(each, {}), name: each} for each in ids]
    types = {field.name: field.type for field in known.schema} if known is not None else {}
    columns = {name: pa.array(ids, pa.string())}
    frequent = Counter(key for row in rows for key in row if key != name).most_common()
    left_out["rare attributes of items"] += len(frequent[MOST_COLUMNS:])
    for column, _ in frequent[:MOST_COLUMNS]:
        values = [row.get(column) for row in rows]
        if column != "features":
            columns[column] = _column(values, types.get(column))
        elif (vectors := _vectors(values)) is not None:
            columns[column] = vectors
        else:
            left_out["items whose features were left out, since others have none or another number"] += sum(
                value is not None for value in values
            )
    return pa.table(columns)


def _vectors(values: list[Any]) -> pa.Array | None:
    """Features, where all items have equally many."""
    if any(value is None or len(value) != len(values[0] or ()) for value in values):
        return None
    numbers = [[math.nan if each is None else each for each in value] for value in values]
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


def _with_ids(table: pa.Table, names: Sequence[str], integers: bool) -> pa.Table:
    if not integers:
        return table
    for name in names:
        kind = pa.list_(pa.int64()) if pa.types.is_list(table[name].type) else pa.int64()
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    return table
