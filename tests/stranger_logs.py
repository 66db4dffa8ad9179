"""Logs as other teams have them, made up, small and seeded: other names, other types, other layouts, a known truth.

Each says what must be read of it; `best` is the share of clicks that the truth itself, without its noise, would hold
among the first K.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
_WORDS = (
    "storm harbour vote bridge coach budget rescue winter court singer market signal forest engine hospital match "
    "teacher festival island tunnel farmer record lawyer museum river summit phone robot garden bakery"
)
WORDS = _WORDS.split()


@dataclass(frozen=True)
class StrangerLog:
    """Files by name (tables), what a build must take each column for, and how well the truth itself would do."""

    log: pa.Table
    file: str  # how the log is written: its ending says as what; without an ending, a folder of files
    K: int
    best: float
    roles: Mapping[str, str]
    ignored: frozenset[str]  # of the log: no feature may come of these
    features: Mapping[str, frozenset[str]] = field(
        default_factory=dict
    )  # "candidate numbers" -> at least these
    items: pa.Table | None = None
    items_file: str = "items.parquet"

    def write(self, folder: Path) -> tuple[Path, Path | None]:
        """The files of the log, and of the items."""
        items = None
        if self.items is not None:
            items = folder / self.items_file
            _write(self.items, items)
        path = folder / self.file
        if path.suffix:
            _write(self.log, path)
        else:
            path.mkdir(exist_ok=True)
            half = len(self.log) // 2
            _write(self.log.slice(0, half), path / "part-0.jsonl")
            _write(self.log.slice(half), path / "part-1.jsonl")
        return path, items


def _write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix in (".csv", ".tsv"):
        parted_by = {"queries": ";", "laden": ";", "behaviors": "\t", "news": "\t"}.get(path.stem, ",")
        pacsv.write_csv(table, path, pacsv.WriteOptions(delimiter=parted_by))
        if path.stem == "laden":
            path.write_text(path.read_text(encoding="utf-8"), encoding="utf-16")
    else:
        lines = "".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()).encode()
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


@dataclass(frozen=True)
class _Lists:
    """R requests of N candidates each, end to end."""

    rng: np.random.Generator
    sizes: np.ndarray
    item: np.ndarray

    @property
    def request(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def place(self) -> np.ndarray:
        before = np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)
        return np.asarray(np.arange(len(self.item)) - before)

    def among(self, values: np.ndarray) -> np.ndarray:
        """Rank of each value within its request, the largest first."""
        order = np.lexsort((-values, self.request))
        rank = np.empty(len(values), np.int64)
        rank[order] = self.place
        return rank

    def clicked(self, worth: np.ndarray, K: int, twice: float = 0.0) -> tuple[np.ndarray, float]:
        """One click a request by worth plus noise, sometimes two; and the share of them the worth alone puts first."""
        wanted = np.where(self.rng.random(len(self.sizes)) < twice, 2, 1)[self.request]
        clicks = self.among(worth + self.rng.gumbel(size=len(worth))) < wanted
        return clicks, float((self.among(worth) < K)[clicks].mean())


def _lists(
    rng: np.random.Generator, requests: int, items: int, least: int, most: int, fresh: float = 0.0
) -> _Lists:
    """`fresh`: how far the window of items on offer moves from the first request to the last, as a share of all."""
    sizes = rng.integers(least, most + 1, requests)
    window = max(most + 1, int(items * (1 - fresh)))
    first = np.linspace(0, items - window, requests).astype(int)
    item = np.concatenate(
        [
            start + rng.choice(window, size, replace=False)
            for start, size in zip(first, sizes.tolist(), strict=True)
        ]
    )
    return _Lists(rng, sizes, item)


def news(requests: int = 600, seed: int = 1) -> StrangerLog:
    """Whole numbers as ids, categories and flags; titles; hours since published; a zone; most articles new."""
    rng = np.random.default_rng(seed)
    articles, topics = requests * 3, 12
    lists = _lists(rng, requests, articles, 6, 20, fresh=0.95)
    topic = rng.integers(topics, size=articles)
    titles = [
        " ".join([WORDS[(t * 2 + int(n)) % len(WORDS)] for n in rng.integers(0, 6, 5)])
        for t in topic.tolist()
    ]
    user = rng.integers(requests // 8, size=requests)
    taste = rng.normal(0, 1.2, (requests // 8, topics))
    moment = START + np.sort(rng.integers(14 * 86_400, size=requests))
    hours = rng.exponential(10, len(lists.item)).round(1)
    liked = taste[user[lists.request], topic[lists.item]]
    read_before = rng.poisson(np.exp(liked))
    worth = 0.9 * np.log1p(read_before) - 0.12 * hours + 0.4 * (topic[lists.item] % 3 == 0)
    clicks, best = lists.clicked(worth, 5)
    rows = {
        "impression_id": 48_401 + lists.request * 3,
        "user_id": 1_000_000 + user[lists.request] * 17,
        "article_id": 9_700_000 + lists.item * 7,
        "clicked": clicks.astype(np.int64),
        "category": 100 + topic[lists.item],
        "title": np.array(titles)[lists.item],
        "hours_since_published": np.where(rng.random(len(hours)) < 0.05, np.nan, hours),
        "category_reads": read_before,
        "history_length": rng.poisson(40, requests)[lists.request],
        "device_type": rng.integers(1, 4, requests)[lists.request],
        "is_subscriber": (rng.random(requests) < 0.2)[lists.request],
        "hour": ((moment // 3600) % 24)[lists.request],
        "impression_time": pa.array(
            moment[lists.request] * 1_000_000, pa.timestamp("us", "Europe/Copenhagen")
        ),
        "read_time": np.where(clicks, rng.exponential(40, len(clicks)).round(), 0.0),
        "scroll_percentage": np.where(clicks, rng.uniform(5, 100, len(clicks)).round(), np.nan),
        "site": np.full(len(clicks), "main"),
    }
    return StrangerLog(
        pa.table(rows), "news.parquet", 5, best,
        {"request_id": "impression_id", "user_id": "user_id", "item_id": "article_id", "clicked": "clicked",
         "timestamp": "impression_time"},
        frozenset({"read_time", "scroll_percentage", "site"}),
        {"candidate numbers": frozenset({"hours_since_published", "category_reads"}),
         "item categories": frozenset({"category"}), "item texts": frozenset({"title"}),
         "context numbers": frozenset({"history_length"}), "context categories": frozenset({"device_type"})},
    )  # fmt: skip


def clothing(requests: int = 600, seed: int = 2) -> StrangerLog:
    """CSV: uuids, codes with leading zeros, Y and N, text moments with a zone, and a column written after the click."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 300, 8, 24)
    brand, colour = rng.integers(15, size=300), rng.integers(8, size=300)
    usual = np.exp(rng.normal(3.5, 0.5, 300))
    price = (usual[lists.item] * rng.uniform(0.6, 1.2, len(lists.item))).round(2)
    quality = rng.normal(0, 0.8, 15)
    worth = quality[brand[lists.item]] - 1.2 * np.log(price / usual[lists.item]) * 3 - 0.05 * lists.place
    clicks, best = lists.clicked(worth, 4, twice=0.2)
    moment = START + np.sort(rng.integers(30 * 86_400, size=requests))[lists.request]
    when = [datetime.fromtimestamp(at, UTC).isoformat() for at in moment.tolist()]
    delay = rng.integers(2, 90, len(clicks))
    ids = [str(UUID(int=int(n), version=4)) for n in rng.integers(1, 2**62, requests)]
    visitors = [str(UUID(int=int(n), version=4)) for n in rng.integers(1, 2**62, 90)]
    visitor = rng.integers(90, size=requests)[lists.request]
    rows = {
        "search_id": [ids[r] for r in lists.request.tolist()],
        "visitor_id": [visitors[v] for v in visitor.tolist()],
        "sku": [f"{n:06d}" for n in lists.item.tolist()],
        "rank": lists.place + 1,
        "brand": [f"Brand {b}" for b in brand[lists.item].tolist()],
        "colour": np.array(["red", "blue", "", "grey", "black", "green", "white", "sand"])[
            colour[lists.item]
        ],
        "price": pa.array(price, mask=rng.random(len(price)) < 0.08),
        "on_sale": np.where(price < 0.8 * usual[lists.item], "Y", "N"),
        "is_clicked": np.where(clicks, "Y", "N"),
        "clicked_at": [
            datetime.fromtimestamp(at + wait, UTC).isoformat() if hit else ""
            for at, wait, hit in zip(moment.tolist(), delay.tolist(), clicks.tolist(), strict=True)
        ],
        "event_time": when,
        "query": np.array(["dress", "shoes", "coat", "jeans"])[rng.integers(4, size=requests)[lists.request]],
        "page": np.ones(len(clicks), np.int64),
    }
    return StrangerLog(
        pa.table(rows), "search.csv", 4, best,
        {"request_id": "search_id", "user_id": "visitor_id", "item_id": "sku", "clicked": "is_clicked",
         "timestamp": "event_time", "position": "rank"},
        frozenset({"clicked_at", "page"}),
        {"candidate numbers": frozenset({"price"}), "item categories": frozenset({"brand", "colour"}),
         "candidate categories": frozenset({"on_sale"}), "context categories": frozenset({"query"})},
    )  # fmt: skip


def outfits(requests: int = 400, seed: int = 3) -> StrangerLog:
    """Positives only, other names for the lists: what was looked at, and what of it was put together."""
    rng = np.random.default_rng(seed)
    styles, pieces, count = 10, 6, 500
    style, piece = rng.integers(styles, size=count), rng.integers(pieces, size=count)
    pool, chosen, right = [], [], 0
    for _ in range(requests):
        theme = int(rng.integers(styles))
        K = int(rng.integers(2, 5))
        own = rng.choice(np.flatnonzero(style == theme), K, replace=False)
        others = rng.choice(np.flatnonzero(style != theme), 9 - K, replace=False)
        right += len(np.unique(style[others], return_counts=True)[1]) > 0
        whole = rng.permutation(np.concatenate([own, others]))
        pool.append([f"p{n}" for n in whole.tolist()])
        chosen.append([f"p{n}" for n in whole.tolist() if n in set(own.tolist())])
    items = pa.table({
        "piece_id": [f"p{n}" for n in range(count)],
        "name": [f"{WORDS[s]} {WORDS[s + 10]} {WORDS[20 + p]} {n % 40}"
                 for n, (s, p) in enumerate(zip(style.tolist(), piece.tolist(), strict=True))],
        "garment": [f"garment {p}" for p in piece.tolist()],
    })  # fmt: skip
    log = pa.table({
        "outfit_id": np.arange(requests) * 11 + 5,
        "stylist": [f"s{n}" for n in rng.integers(30, size=requests)],
        "seen": pool,
        "outfit": chosen,
    })  # fmt: skip
    return StrangerLog(
        log, "outfits.jsonl", 3, 0.9,
        {"request_id": "outfit_id", "candidates": "seen", "card": "outfit"},
        frozenset(), {"item texts": frozenset({"name"}), "item categories": frozenset({"garment"}),
                      "context categories": frozenset({"stylist"})},
        items, "pieces.csv",
    )  # fmt: skip


def graded(requests: int = 500, seed: int = 4) -> StrangerLog:
    """A set of judged pages: grades 0 to 4, twenty numbers without names, no user, no time, no click."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 4_000, 10, 20)
    numbers = rng.normal(size=(len(lists.item), 12)).astype(np.float32)
    worth = 1.6 * numbers[:, 0] - 1.2 * numbers[:, 3] + numbers[:, 7]
    grade = np.digitize(worth + rng.normal(0, 0.5, len(worth)), [0.5, 1.5, 2.5, 4.0])
    top = lists.among(worth) < 4
    rows = {"qid": lists.request + 1, "docid": [f"d{n}" for n in lists.item.tolist()], "relevance": grade}
    rows |= {f"f{n}": numbers[:, n] for n in range(12)}
    return StrangerLog(
        pa.table(rows), "judged.csv", 4, float(grade[top].sum() / max(1, _ideal(grade, lists, 4))),
        {"request_id": "qid", "item_id": "docid", "reward": "relevance"},
        frozenset(), {"candidate numbers": frozenset(f"f{n}" for n in range(12))},
    )  # fmt: skip


def _ideal(grade: np.ndarray, lists: _Lists, K: int) -> float:
    return float(grade[lists.among(grade.astype(float)) < K].sum())


def shelves(requests: int = 600, seed: int = 5) -> StrangerLog:
    """Lists in one row, written as text with bars; several clicks; milliseconds; parallel lists of prices."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 200, 10, 16)
    price = np.exp(rng.normal(2, 0.6, len(lists.item))).round(2)
    loved = rng.normal(0, 1.0, 200)
    worth = loved[lists.item] - 1.5 * np.log(price)
    clicks, best = lists.clicked(worth, 4, twice=0.3)
    starts = np.cumsum(lists.sizes)[:-1]
    moment = (START + np.sort(rng.integers(20 * 86_400, size=requests))) * 1000 + rng.integers(
        1000, size=requests
    )
    log = pa.table({
        "query_id": [f"q-{n}" for n in range(requests)],
        "customer": rng.integers(120, size=requests),
        "shown_items": ["|".join(map(str, part)) for part in np.split(lists.item, starts)],
        "clicks": ["|".join(map(str, part[hit])) for part, hit in
                   zip(np.split(lists.item, starts), np.split(clicks, starts), strict=True)],
        "prices": ["|".join(map(str, part)) for part in np.split(price, starts)],
        "ts": moment,
        "store": np.array(["north", "south", "east"])[rng.integers(3, size=requests)],
    })  # fmt: skip
    return StrangerLog(
        log, "shelves.csv", 4, best,
        {"request_id": "query_id", "user_id": "customer", "candidates": "shown_items", "clicked_items": "clicks",
         "timestamp": "ts"},
        frozenset(), {"candidate numbers": frozenset({"prices"}), "context categories": frozenset({"store"})},
    )  # fmt: skip


def courses(requests: int = 500, seed: int = 6) -> StrangerLog:
    """A folder of JSON lines: panels of three of a longer list, their clicks and chances, minutes watched."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 150, 9, 9)
    level = rng.integers(1, 6, size=150)
    wanted = rng.integers(1, 6, requests)
    panel = lists.among(rng.random(len(lists.item))) < 3
    worth = -0.9 * np.abs(level[lists.item] - wanted[lists.request])
    pick = rng.random(len(worth)) < 0.6 * np.exp(worth)
    clicks = (
        panel & pick & (lists.among(np.where(panel & pick, 1.0, 0.0) + 0.01 * rng.random(len(worth))) < 1)
    )
    rows = {
        "requestId": [f"{r:05d}" for r in lists.request.tolist()],
        "userId": [f"student-{n}" for n in rng.integers(80, size=requests)[lists.request].tolist()],
        "courseId": lists.item,
        "shown": panel,
        "click": clicks,
        "minutes_watched": np.where(clicks, rng.exponential(20, len(clicks)).round(1), 0.0),
        "level": level[lists.item],
        "student_level": wanted[lists.request],
        "propensity": np.full(len(clicks), 1 / 84),
        "date": [datetime.fromtimestamp(START + 900 * r, UTC).strftime("%Y-%m-%d %H:%M:%S")
                 for r in lists.request.tolist()],
    }  # fmt: skip
    best = float((lists.among(worth) < 3)[clicks].mean())
    return StrangerLog(
        pa.table(rows), "courses", 3, best,
        {"request_id": "requestId", "user_id": "userId", "item_id": "courseId", "clicked": "click",
         "on_card": "shown", "timestamp": "date", "propensity": "propensity"},
        frozenset({"minutes_watched"}),
        {"item numbers": frozenset({"level"}), "context numbers": frozenset({"student_level"})},
    )  # fmt: skip


def impressions(requests: int = 500, seed: int = 7) -> StrangerLog:
    """Lists in one text, each item with its mark (N12-1 N7-0), several clicks, American times, histories."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 400, 5, 30)
    topic = rng.integers(7, size=400)
    clicks, best = lists.clicked(1.5 * (topic[lists.item] % 3 == 0), 4, twice=0.4)
    starts = np.cumsum(lists.sizes)[:-1]
    moment = START + 7_000 * np.arange(requests)
    shown = [f"N{n}-{int(hit)}" for n, hit in zip(lists.item.tolist(), clicks.tolist(), strict=True)]
    log = pa.table({
        "impression_id": np.arange(1, requests + 1),
        "user_id": [f"U{n}" for n in rng.integers(90, size=requests)],
        "time": [datetime.fromtimestamp(at, UTC).strftime("%m/%d/%Y %I:%M:%S %p") for at in moment.tolist()],
        "history": [" ".join(f"N{n}" for n in rng.integers(400, size=rng.integers(30))) for _ in range(requests)],
        "impressions": [" ".join(part) for part in np.split(np.array(shown), starts)],
    })  # fmt: skip
    items = pa.table({
        "news_id": [f"N{n}" for n in range(400)],
        "category": [f"topic {n}" for n in topic.tolist()],
        "title": [" ".join(rng.choice(WORDS, 6)) for _ in range(400)],
    })  # fmt: skip
    return StrangerLog(
        log, "behaviors.tsv", 4, best,
        {"request_id": "impression_id", "user_id": "user_id", "candidates": "impressions", "timestamp": "time"},
        frozenset({"history"}), {"item categories": frozenset({"category"}), "item texts": frozenset({"title"})},
        items, "news.tsv",
    )  # fmt: skip


def results(requests: int = 500, seed: int = 8) -> StrangerLog:
    """JSON lines as a service writes them: a user and a context that are objects, results that are lists of objects."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 300, 5, 14)
    brand = rng.integers(9, size=300)
    price = np.exp(rng.normal(3, 0.5, len(lists.item))).round(2)
    worth = 1.5 * (brand[lists.item] % 3 == 0) - np.log(price)
    clicks, best = lists.clicked(worth, 4)
    offers = [
        {"sku": f"A-{n}", "price": cost, "brand": f"brand {brand[n]}", "rank": place, "clicked": hit}
        for n, cost, place, hit in zip(lists.item, price, lists.place, clicks, strict=True)
    ]
    ends = np.cumsum(lists.sizes).tolist()
    log = pa.table({
        "search_id": [str(UUID(int=int(n), version=4)) for n in rng.integers(1, 2**62, requests)],
        "user": [{"id": f"u{n % 60}", "country": ("de", "fr")[n % 2]} for n in range(requests)],
        "context": [{"device": ("ios", "web")[n % 2]} for n in rng.integers(9, size=requests).tolist()],
        "ts": (START + 60 * np.arange(requests)) * 1000,
        "results": [offers[end - size : end] for end, size in zip(ends, lists.sizes.tolist(), strict=True)],
    })  # fmt: skip
    return StrangerLog(
        log, "searches.jsonl", 4, best,
        {"request_id": "search_id", "user_id": "user.id", "candidates": "sku", "clicked": "clicked",
         "position": "rank", "timestamp": "ts"},
        frozenset(), {"candidate numbers": frozenset({"price"}), "item categories": frozenset({"brand"}),
                      "context categories": frozenset({"country", "device"})},
    )  # fmt: skip


def queries(requests: int = 500, seed: int = 9) -> StrangerLog:
    """Semicolons; lists of small numbers as text, flags beside them; a third of the users unknown; a name twice."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 600, 5, 20)
    clicks, best = lists.clicked((lists.item % 5) * 0.6 - 0.1 * lists.place, 4, twice=0.2)
    starts = np.cumsum(lists.sizes)[:-1]
    user = rng.integers(90, size=requests)
    log = pa.table({
        "queryId": np.arange(requests),
        "sessionId": np.arange(requests) // 3,
        "userId": pa.array(user, mask=user % 3 == 0),
        "timeframe": rng.integers(600, size=requests),
        "eventdate": [datetime.fromtimestamp(START + 3600 * r, UTC).strftime("%Y-%m-%d") for r in range(requests)],
        "categoryId": rng.integers(40, size=requests),
        "items": [",".join(map(str, part)) for part in np.split(lists.item, starts)],
        "feedback": [",".join(map(str, part)) for part in np.split(clicks.astype(int), starts)],
    })  # fmt: skip
    items = pa.table({
        "itemId": np.arange(600), "pricelog2": rng.integers(1, 14, 600), "categoryId": rng.integers(40, size=600),
    })  # fmt: skip
    return StrangerLog(
        log, "queries.csv", 4, best,
        {"request_id": "queryId", "user_id": "userId", "candidates": "items", "clicked": "feedback",
         "timestamp": "eventdate"},
        frozenset(), {"item numbers": frozenset({"pricelog2"}), "item categories": frozenset({"categoryId"}),
                      "context categories": frozenset({"categoryId", "sessionId"})},
        items, "products.csv",
    )  # fmt: skip


def offers(requests: int = 400, seed: int = 10) -> StrangerLog:
    """Flights: an offer is never met twice, requests bear an unusual name, and companies are ids, too; many gaps."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 10**6, 5, 30)
    price = np.exp(rng.normal(9.5, 0.6, len(lists.item))).round(1)
    clicks, best = lists.clicked(-4 * np.log(price), 4)
    moment = (START + 2_220 * np.arange(requests)) * 1_000_000
    rows = {
        "Id": np.arange(len(price)),
        "companyID": rng.integers(60, size=requests)[lists.request],
        "ranker_id": np.array([f"{r:032x}" for r in range(requests)])[lists.request],
        "profileId": (2_000_000 + rng.integers(50, size=requests))[lists.request],
        "requestDate": pa.array(moment[lists.request], pa.timestamp("us")),
        "totalPrice": price,
        "milesEarned": rng.integers(2**26, 2**40, len(price)),
        "fee": pa.array(price / 10, mask=rng.random(len(price)) < 0.8),
        "carrier": np.array(["SU", "S7", "DP"])[rng.integers(3, size=len(price))],
        "selected": clicks.astype(int),
    }
    return StrangerLog(
        pa.table(rows), "flights.parquet", 4, best,
        {"request_id": "ranker_id", "user_id": "profileId", "item_id": "Id", "clicked": "selected",
         "timestamp": "requestDate"},
        frozenset(), {"candidate numbers": frozenset({"totalPrice", "milesEarned", "fee"}),
                      "candidate categories": frozenset({"carrier"})},
    )  # fmt: skip


def pages(requests: int = 500, seed: int = 11) -> StrangerLog:
    """Lists in sight and clicked beside the article that was open, mostly none; small integers; lists of labels."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 700, 5, 20, fresh=0.8)
    section, views = rng.integers(9, size=700), rng.lognormal(8, 1, 700).astype(int)
    clicks, best = lists.clicked(1.2 * (section[lists.item] % 3 == 0) + 0.6 * np.log(views[lists.item]), 4)
    starts = np.cumsum(lists.sizes)[:-1]
    shown = (9_700_000 + lists.item).astype(np.int32)
    open_page = rng.integers(9_700_000, 9_700_700, requests)
    log = pa.table({
        "impression_id": pa.array(rng.permutation(requests) + 149_474, pa.uint32()),
        "article_id": pa.array(open_page, pa.int32(), mask=rng.random(requests) < 0.6),
        "impression_time": pa.array((START + 1_700 * np.arange(requests)) * 1_000_000, pa.timestamp("us")),
        "read_time": rng.exponential(40, requests).astype(np.float32),
        "device_type": pa.array(rng.integers(1, 4, requests), pa.int8()),
        "article_ids_inview": np.split(shown, starts),
        "article_ids_clicked": [part[hit] for part, hit in
                                zip(np.split(shown, starts), np.split(clicks, starts), strict=True)],
        "user_id": pa.array(10_000 + rng.integers(requests // 5, size=requests), pa.uint32()),
        "session_id": pa.array(np.arange(requests) // 3, pa.uint32()),
    })  # fmt: skip
    items = pa.table({
        "article_id": pa.array(9_700_000 + np.arange(700), pa.int32()),
        "title": [" ".join(rng.choice(WORDS, 6)) for _ in range(700)],
        "category": pa.array(100 + section, pa.int16()),
        "subcategory": [rng.integers(200, 260, rng.integers(3)).astype(np.int16) for _ in range(700)],
        "total_pageviews": pa.array(views, pa.int32(), mask=rng.random(700) < 0.2),
    })  # fmt: skip
    return StrangerLog(
        log, "pages.parquet", 4, best,
        {"request_id": "impression_id", "user_id": "user_id", "candidates": "article_ids_inview",
         "clicked_items": "article_ids_clicked", "timestamp": "impression_time"},
        frozenset({"read_time"}),
        {"item categories": frozenset({"category"}), "item numbers": frozenset({"total_pageviews"}),
         "item texts": frozenset({"title", "subcategory"})},
        items,
    )  # fmt: skip


def laden(requests: int = 500, seed: int = 12) -> StrangerLog:
    """As a German Excel saves it: UTF-16, semicolons, decimal commas, days before months, Ja and Nein."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 200, 6, 14)
    price = np.exp(rng.normal(6, 1.2, len(lists.item))).round(2)
    brand, off = rng.integers(9, size=200), rng.random(len(price)).round(2)
    clicks, best = lists.clicked(0.8 * (brand[lists.item] % 3 == 0) - 1.2 * np.log(price) + 2 * off, 4)
    days = [datetime.fromtimestamp(START + 5_000 * r, UTC).strftime("%d.%m.%Y") for r in range(requests)]
    said = np.array(["Nein", "Ja"])
    rows = {
        "Anfrage_ID": lists.request + 1,
        "Kunde_ID": rng.integers(50, size=requests)[lists.request],
        "Artikel_ID": 1000 + lists.item,
        "Datum": np.array(days)[lists.request],
        "Preis": [f"{p:_.2f}".replace(".", ",").replace("_", ".") for p in price.tolist()],
        "Rabatt": [f"{p:.2f}".replace(".", ",") if p > 0.1 else "" for p in off.tolist()],
        "Marke": [f"Märke {b}" for b in brand[lists.item].tolist()],
        "Neu": said[(rng.random(len(price)) < 0.1).astype(int)],
        "geklickt": said[clicks.astype(int)],
    }
    return StrangerLog(
        pa.table(rows), "laden.csv", 4, best,
        {"request_id": "Anfrage_ID", "user_id": "Kunde_ID", "item_id": "Artikel_ID", "clicked": "geklickt",
         "timestamp": "Datum"},
        frozenset(),
        {"candidate numbers": frozenset({"Preis", "Rabatt"}), "candidate categories": frozenset({"Neu"}),
         "item categories": frozenset({"Marke"})},
    )  # fmt: skip


def videos(requests: int = 500, seed: int = 13) -> StrangerLog:
    """Compressed JSON lines of a shelf: no clicks, but seconds watched, and what follows from them."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 300, 12, 18)
    genre, length = rng.integers(8, size=300), rng.integers(60, 7_200, 300)
    clicks, best = lists.clicked(1.5 * (genre[lists.item] % 3 == 0), 4, twice=0.3)
    watched = np.where(
        clicks, np.minimum(length[lists.item], 1 + rng.exponential(900, len(clicks))), 0
    ).round(1)
    rows = {
        "view_id": [f"v{r}" for r in lists.request.tolist()],
        "profile": [f"p{u}" for u in rng.integers(90, size=requests)[lists.request].tolist()],
        "shelf_ts": START + 600 * lists.request,
        "video_id": [f"vid{n}" for n in lists.item.tolist()],
        "genre": [f"genre {g}" for g in genre[lists.item].tolist()],
        "duration_s": length[lists.item],
        "slot": lists.place,
        "watch_seconds": watched,
        "completed": watched >= 0.9 * length[lists.item],
    }
    return StrangerLog(
        pa.table(rows), "videos.jsonl.gz", 4, best,
        {"request_id": "view_id", "user_id": "profile", "item_id": "video_id", "reward": "watch_seconds",
         "timestamp": "shelf_ts", "position": "slot"},
        frozenset({"completed"}), {"item numbers": frozenset({"duration_s"}), "item categories": frozenset({"genre"})},
    )  # fmt: skip


def cells(requests: int = 500, seed: int = 14) -> StrangerLog:
    """A CSV file whose cells are JSON: an object of the request, a list of objects of the offers; words for nothing."""
    rng = np.random.default_rng(seed)
    lists = _lists(rng, requests, 200, 6, 14)
    price = np.exp(rng.normal(3, 0.6, len(lists.item))).round(2)
    clicks, best = lists.clicked(-1.5 * np.log(price) + 0.8 * (lists.item % 7 % 3 == 0), 4)
    offers = [
        {"sku": f"S{n}", "price": cost, "category": f"c{n % 7}", "clicked": hit}
        for n, cost, hit in zip(lists.item.tolist(), price.tolist(), clicks.tolist(), strict=True)
    ]
    ends = np.cumsum(lists.sizes).tolist()
    customer = rng.integers(70, size=requests).tolist()
    log = pa.table({
        "search_uuid": [f"{int(n):016x}" for n in rng.integers(2**60, size=requests)],
        "customer": ["NULL" if n % 3 == 0 else str(n) for n in customer],
        "searched_at": [datetime.fromtimestamp(START + 900 * r, UTC).isoformat() for r in range(requests)],
        "offers": [json.dumps(offers[end - size : end])
                   for end, size in zip(ends, lists.sizes.tolist(), strict=True)],
        "about": [json.dumps({"device": ("ios", "web")[n % 2], "nights": n % 5}) for n in customer],
    })  # fmt: skip
    return StrangerLog(
        log, "cells.csv", 4, best,
        {"request_id": "search_uuid", "user_id": "customer", "candidates": "sku", "clicked": "clicked",
         "timestamp": "searched_at"},
        frozenset(),
        {"candidate numbers": frozenset({"price"}), "item categories": frozenset({"category"}),
         "context categories": frozenset({"device"}), "context numbers": frozenset({"nights"})},
    )  # fmt: skip


KINDS: Mapping[str, Callable[..., StrangerLog]] = {
    "news": news, "clothing": clothing, "outfits": outfits, "graded": graded, "shelves": shelves, "courses": courses,
    "impressions": impressions, "results": results, "queries": queries, "offers": offers, "pages": pages,
    "laden": laden, "videos": videos, "cells": cells,
}  # fmt: skip
