"""Where the page's requests come from: embedded examples, the embedded world, a dataset folder given at start.

Knows no route. No path ever comes from a request; folders are opened when they are first looked at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exactk.atomic import temporary_folder
from exactk.data.dataset import Dataset
from exactk.serving.http import RefusalError

if TYPE_CHECKING:
    from exactk.data.world import World

SHOWN = 200  # requests of a folder that the page lists
SHOWN_TRUE = 40  # where each brings its matrix of pairs along


class Sources:
    """All sources of one service."""

    def __init__(self, dataset: Path | None) -> None:
        self._makers: dict[str, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
            "world": ("Embedded world", world_requests),
            "examples": ("Examples", examples),
        }
        if dataset is not None:
            self._makers["dataset"] = (dataset.name or "Dataset", lambda: DatasetRequests(dataset).requests())
        self._kept: dict[str, list[dict[str, Any]]] = {}

    def names(self) -> list[dict[str, Any]]:
        """What the first list on the page offers; a folder given at start comes first."""
        return [{"key": key, "name": name} for key, (name, _) in reversed(self._makers.items())]

    def requests(self, source: str) -> list[dict[str, Any]]:
        """All requests of one source."""
        if source not in self._makers:
            raise RefusalError(404, "missing", "No such source", f"there are: {', '.join(self._makers)}")
        if source not in self._kept:
            self._kept[source] = self._makers[source][1]()
        return self._kept[source]

    def request(self, source: str, index: int) -> dict[str, Any]:
        """One request of one source."""
        requests = self.requests(source)
        if not 0 <= index < len(requests):
            there = f"{source} holds requests 0 to {len(requests) - 1}"
            raise RefusalError(404, "missing", "No such request", there)
        return requests[index]


def examples() -> list[dict[str, Any]]:
    """Small requests that each teach one thing."""
    text = files("exactk.serving.studio").joinpath("examples.json").read_text(encoding="utf-8")
    read: list[dict[str, Any]] = json.loads(text)
    return read


def world_requests() -> list[dict[str, Any]]:
    """Requests of a small embedded world, made when first looked at; its true values are known."""
    from exactk.data.world import (
        World,  # here and below: a service whose page nobody opens need not hold worlds
    )
    from exactk.data.world.recipe import WorldConfig

    folder = temporary_folder("world")
    World(WorldConfig(users=60, items=400, impressions=200, n=30, seed=7)).write(folder, workers=1)
    return DatasetRequests(folder).requests()


class DatasetRequests:
    """The first requests of a dataset folder, scored by how often an item was clicked when shown.

    A folder that a world wrote is scored by the world's true values instead, pairs included.
    """

    def __init__(self, folder: Path) -> None:
        self._data = Dataset.open(folder)
        self._items = {row["item_id"]: _plain(row) for row in self._data.items.to_pylist()}

    def requests(self) -> list[dict[str, Any]]:
        """Each with its candidates' columns, the data's rules, and what was shown and clicked."""
        data = self._data
        rates = self._click_rates()
        rules = [] if data.constraints is None else data.constraints.to_dict()["rule"]
        first: dict[Any, int] = {}
        rows = data.impressions(slice(0, SHOWN * 4)).to_pylist()
        for place, row in enumerate(rows):
            first.setdefault(row["request_id"], place)
        chosen = list(first.values())
        if data.meta.provenance.get("source") == "world":
            from exactk.data.world import World

            world = World.of(data)
            few = [self._request(rows[at], at, rules, rates) for at in chosen[:SHOWN_TRUE]]
            return [_with_truth(request, world) for request in few]
        return [self._request(rows[at], at, rules, rates) for at in chosen[:SHOWN]]

    def _request(
        self, row: dict[str, Any], place: int, rules: list[Any], rates: dict[Any, float]
    ) -> dict[str, Any]:
        """Row `place` of the folder as the page takes it."""
        candidates, folder = row["candidates"], self._data.folder
        card = row.get("card") or []
        lesson = f"User {row['user_id']}, {len(candidates)} candidates."
        if card:
            outcome = "clicked" if row.get("clicked") else "not clicked"
            titles = ", ".join(str(self._items.get(i, {}).get("title") or i) for i in card)
            lesson += f" The log shows: {titles} ({outcome})."
        said = zip(candidates, folder.candidates_said(place), strict=True)
        items = [self._items.get(item_id, {"item_id": item_id}) | own for item_id, own in said]
        upstream = bool(items) and all("score" in item for item in items)
        scores = "the upstream ranker’s" if upstream else "clicks for each showing"
        lesson += f" Scores as given are {scores}."
        return {
            "name": f"{row['request_id']} · user {row['user_id']}",
            "lesson": lesson,
            "user": row["user_id"],
            "context": _plain({name: row.get(name) for name in folder.columns.context.names}),
            "k": len(card) or self._data.meta.K or 4,
            "items": items,
            "scores": None if upstream else [rates.get(item_id, 0.0) for item_id in candidates],
            "constraints": rules,
        }

    def _click_rates(self) -> dict[Any, float]:
        """Clicks per showing, drawn towards the mean by ten showings' worth."""
        shown: Counter[Any] = Counter()
        clicked: Counter[Any] = Counter()
        rows = self._data.impressions(slice(0, 50_000))
        if "card" not in rows.column_names or "clicked" not in rows.column_names:
            return {}
        named = [name for name in ("card", "clicked", "clicked_item") if name in rows.column_names]
        for row in rows.select(named).to_pylist():
            card, item = row["card"] or (), row.get("clicked_item")
            shown.update(card)
            if row["clicked"]:
                clicked.update(card if item is None else [item])
        mean = sum(clicked.values()) / max(sum(shown.values()), 1)
        return {item: (clicked[item] + 10 * mean) / (count + 10) for item, count in shown.items()}


def _with_truth(request: dict[str, Any], world: World) -> dict[str, Any]:
    """Scores and pairs as the world made them, in log-odds of a click."""
    ids = np.array([[item["item_id"] for item in request["items"]]])
    node, pair = world.node_pair(np.array([request["user"]]), ids)
    pairs = np.round((pair[0] + pair[0].T) / 2, 6)
    np.fill_diagonal(pairs, 0.0)
    return {
        **request,
        "lesson": f"{request['lesson'].partition(' Scores as given')[0]} Scores as given, and pairs, are the world’s "
        "true ones, in log-odds of a click.",
        "scores": np.round(node[0], 6).tolist(),
        "pair_scores": pairs.tolist(),
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON values only, nothing missing, vectors rounded: what the page and the rules need."""
    kept = {name: value for name, value in row.items() if value is not None and value == value}  # NaN is not
    for name, value in kept.items():
        if isinstance(value, list) and value and isinstance(value[0], float):
            kept[name] = [float(f"{number:.6g}") for number in value]
        elif not isinstance(value, str | int | float | list):
            kept[name] = str(value)
    return kept
