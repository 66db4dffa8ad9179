"""Random logs with every kind of column, row by row, and the ways in which the same requests may be sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from exactk.data import Dataset
from exactk.data.requests import Request
from exactk.problem.batch import Batch

COLUMNS: dict[str, Any] = {
    "roles": {
        "request_id": "search", "user_id": "visitor", "item_id": "sku", "position": "rank", "score": "upstream",
        "reward": "dwell", "clicked": "clicked", "timestamp": "at",
    },
    "rolling": ["clicks_so_far", "user_rate_so_far"],
    "pair_features": ["same:maker", "cosine:title", "overlap:title", "gap:price", "cosine:look", "same:offer"],
    "candidate": {"numbers": ["price", "sale"], "categories": ["offer", "row"]},
    "context": {"numbers": ["nights"], "categories": ["device"]},
    "item": {"numbers": ["usual", "price"], "categories": ["maker"], "texts": ["title"], "vectors": ["look"]},
    "user": {"numbers": ["age"], "categories": ["country"]},
}  # fmt: skip
READ = (
    "user", "item", "present", "card_size", "tie_key", "candidate_numbers", "candidate_categories", "context_numbers",
    "context_categories", "item_categories", "user_categories", "item_vectors", "pair_features", "score", "position",
    "item_features", "user_features",
)  # fmt: skip
OF_CANDIDATES = ("upstream", "rank", "price", "sale", "offer", "row", "clicks_so_far", "user_rate_so_far")
OF_ITEMS = ("usual", "maker", "title", "look")
OF_REQUESTS = ("nights", "device")
OF_USERS = ("age", "country")
K = 2


@st.composite
def column_logs(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Rows, items and users; missing values and columns of one value among them."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    whole_ids = draw(st.booleans())
    gaps = draw(st.sampled_from([0.0, 0.3, 1.0]))
    items, users, requests = draw(st.integers(2, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 7))

    def name(kind: str, n: int) -> Any:
        return n if whole_ids else f"{kind}{n}"

    def some(value: Any) -> Any:
        return None if rng.random() < gaps else value

    item_rows = [
        {
            "sku": name("i", n),
            "usual": some(round(float(rng.normal(40, 9)), 2)),
            "price": some(float(rng.integers(9, 99))),
            "maker": some(f"m{rng.integers(3)}"),
            "title": some(" ".join(rng.choice(["red", "wool", "lamp", "old", "chair"], 3))),
            "look": rng.normal(size=2).tolist(),
        }
        for n in range(items)
    ]
    user_rows = [
        {"visitor": name("u", n), "age": some(int(rng.integers(18, 80))), "country": some(f"c{n % 2}")}
        for n in range(users)
    ]
    rows = []
    for r in range(requests):
        offered = rng.choice(items, rng.integers(min(2, items), items + 1), replace=False)
        user, nights, device = int(rng.integers(users)), some(int(rng.integers(1, 9))), some("phone")
        for place, item in enumerate(offered.tolist()):
            rows.append(
                {
                    "search": name("q", r), "visitor": name("u", user), "sku": name("i", item), "at": 100 + r,
                    "rank": place + 1, "upstream": some(float(rng.normal())), "price": some(float(rng.uniform(5, 90))),
                    "sale": some(bool(rng.random() < 0.5)), "offer": some(str(rng.choice(["none", "sale"]))),
                    "row": some(int(rng.integers(3))), "nights": nights, "device": device,
                    "clicked": bool(rng.random() < 0.3), "dwell": 0.0,
                }
            )  # fmt: skip
    return _table(rows, ROW_TYPES), _table(item_rows, ITEM_TYPES), _table(user_rows, USER_TYPES)


ROW_TYPES = {
    "at": pa.int64(), "rank": pa.int64(), "upstream": pa.float64(), "price": pa.float64(), "sale": pa.bool_(),
    "offer": pa.string(), "row": pa.int64(), "nights": pa.int64(), "device": pa.string(), "clicked": pa.bool_(),
    "dwell": pa.float64(),
}  # fmt: skip
ITEM_TYPES = {
    "usual": pa.float64(), "price": pa.float64(), "maker": pa.string(), "title": pa.string(),
    "look": pa.list_(pa.float32()),
}  # fmt: skip
USER_TYPES = {"age": pa.float64(), "country": pa.string()}


def _table(rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    names = list(rows[0])
    return pa.table({name: pa.array([row[name] for row in rows], types.get(name)) for name in names})


def with_counts(rows: pa.Table, dataset: Dataset) -> pa.Table:
    """The rows with the counts so far that the build computed for them: what a caller who keeps counts would send."""
    batch = dataset.batch(dataset.vocabulary())
    assert batch.candidate_numbers is not None
    names = dataset.vocabulary().columns.candidate_numbers.names
    for name in ("clicks_so_far", "user_rate_so_far"):
        rows = rows.append_column(
            name, pa.array(batch.candidate_numbers[..., names.index(name)][batch.present])
        )
    return rows


def beside_items(rows: pa.Table, items: pa.Table, users: pa.Table) -> pa.Table:
    """The rows with everything known of items and users beside them, as teams have it in one wide table."""
    of_item = {row["sku"]: row for row in items.to_pylist()}
    of_user = {row["visitor"]: row for row in users.to_pylist()}
    for name in OF_ITEMS:
        values = [of_item[item][name] for item in rows["sku"].to_pylist()]
        rows = rows.append_column(name, pa.array(values, ITEM_TYPES[name]))
    for name in OF_USERS:
        values = [of_user[user][name] for user in rows["visitor"].to_pylist()]
        rows = rows.append_column(name, pa.array(values, USER_TYPES[name]))
    return rows


def as_lists(rows: pa.Table) -> pa.Table:
    """One row per request, a list for every column of its candidates."""
    listed: dict[Any, dict[str, Any]] = {}
    for row in rows.to_pylist():
        request = listed.setdefault(
            row["search"], {name: row[name] for name in ("search", "visitor", *OF_REQUESTS)}
        )
        for name in OF_USERS:
            if name in row:
                request[name] = row[name]
        request.setdefault("candidates", []).append(row["sku"])
        for name in (*OF_CANDIDATES, *OF_ITEMS):
            if name in row:
                request.setdefault(name, []).append(row[name])
    types = {**ROW_TYPES, **ITEM_TYPES, "clicks_so_far": pa.float32(), "user_rate_so_far": pa.float32()}
    requests = list(listed.values())
    columns = {}
    for name in requests[0]:
        kind = types.get(name)
        beside = name in (*OF_CANDIDATES, *OF_ITEMS)
        columns[name] = pa.array(
            [request[name] for request in requests], pa.list_(kind) if beside and kind is not None else kind
        )
    return pa.table(columns)


def as_bodies(rows: pa.Table) -> list[dict[str, Any]]:
    """The same as JSON has it: candidates are objects, the context is one."""
    bodies: dict[Any, dict[str, Any]] = {}
    for row in rows.to_pylist():
        context = {name: row[name] for name in (*OF_REQUESTS, *OF_USERS) if name in row}
        body = bodies.setdefault(
            row["search"], {"user_id": row["visitor"], "candidates": [], "context": context, "k": K}
        )
        said = {name: row[name] for name in (*OF_CANDIDATES, *OF_ITEMS) if name in row}
        body["candidates"].append({"item_id": row["sku"], **said})
    return list(bodies.values())


def as_requests(rows: pa.Table) -> list[Request]:
    """The same as Python has it; a column of items or users that says nothing of one is left out."""
    for body in (bodies := as_bodies(rows)):
        body["context"] = {
            name: value
            for name, value in body["context"].items()
            if name not in OF_USERS or value is not None
        }
        for candidate in body["candidates"]:
            for name in OF_ITEMS:
                if name in candidate and candidate[name] is None:
                    del candidate[name]
    return [Request.from_dict(body) for body in bodies]


def assert_same(asked: Batch, logged: Batch, but: tuple[str, ...] = ()) -> None:
    """What a model reads of both is equal."""
    for name in READ:
        if name in but:
            continue
        ours, theirs = getattr(asked, name), getattr(logged, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=name)
