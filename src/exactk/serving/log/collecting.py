"""From the service's log to a dataset folder: what was served today trains, and judges other models, tomorrow.

Knows the log's tables and the dataset's, no service that runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exactk.data.catalogue import Catalogue
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError
from exactk.serving.log.impressions import FEEDBACK, IMPRESSIONS, ITEMS
from exactk.serving.log.journal import read_all


def collect(
    log: Path | str,
    out: Path | str,
    constraint: Mapping[str, Any] | None = None,
    catalogue: Catalogue | None = None,
) -> int:
    """Join a log folder into a dataset folder, with propensities; returns its rows.

    A request counts as clicked when any feedback says so; the first clicked item stands. Feedback for a request
    that was never logged is left out. `catalogue`, as a model keeps it, tells of the items and users that requests
    named by id alone; what came inline with a request goes before it.
    """
    folder = Path(log)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a log folder: it does not exist")
    shown = read_all(folder, "impressions", IMPRESSIONS)
    if not len(shown):
        raise DataError(f"{folder} holds no impressions")
    integers = bool(pc.all(shown["integer_ids"]).as_py())
    impressions = _joined(shown, read_all(folder, "feedback", FEEDBACK))
    offered = pc.unique(pc.list_flatten(shown["candidates"])).to_pylist()
    items = _described("item_id", offered, catalogue and catalogue.items, _inline(folder))
    users = _described("user_id", pc.unique(shown["user_id"]).to_pylist(), catalogue and catalogue.users, {})
    with DatasetWriter(out, {"constraint": constraint, "provenance": {"source": "serving log"}}) as writer:
        writer.write_items(_with_ids(items, ("item_id",), integers))
        writer.write_users(_with_ids(users, ("user_id",), integers))
        writer.write_impressions(
            _with_ids(impressions, ("user_id", "candidates", "card", "clicked_item"), integers)
        )
    return len(impressions)


def _joined(shown: pa.Table, feedback: pa.Table) -> pa.Table:
    clicks = feedback.filter(feedback["clicked"]).sort_by("timestamp")
    first: dict[str, str | None] = {}
    for request_id, item in zip(
        clicks["request_id"].to_pylist(), clicks["clicked_item"].to_pylist(), strict=True
    ):
        if first.get(request_id) is None:
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
        said[row["item_id"]] = {name: value for name, value in {**rest, **row}.items() if value is not None}
    return said


def _described(
    name: str, ids: Sequence[str], known: pa.Table | None, said: Mapping[str, Mapping[str, Any]]
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
    for column in dict.fromkeys(key for row in rows for key in row if key != name):
        values = [row.get(column) for row in rows]
        if column == "features" and any(value is None for value in values):
            continue
        columns[column] = _column(column, values, types.get(column))
    return pa.table(columns)


def _column(name: str, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        if name == "features":
            raise DataError("the log holds features that are no lists of numbers of one length") from None
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _with_ids(table: pa.Table, names: Sequence[str], integers: bool) -> pa.Table:
    if not integers:
        return table
    for name in names:
        kind = pa.list_(pa.int64()) if pa.types.is_list(table[name].type) else pa.int64()
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    return table
