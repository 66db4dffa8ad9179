"""Batches for the usual request: known items, the model's own rules, nothing sent along. Equal to `request_batch`.

Knows the catalogue. Everything that depends on an item alone is looked up once, when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float32, Int64

from exactk.data.requests import Request
from exactk.model_folder import TrainedModel
from exactk.problem.batch import Batch
from exactk.problem.compiling import compiled
from exactk.problem.graph import Requests
from exactk.problem.rules.columns import absent_values
from exactk.problem.rules.constraints import AtMost, Constraints, Distinct
from exactk.problem.ties import tie_keys


@compiled
@no_type_check
def fill_complete(present, graph):
    """Everyone present may stand with everyone else."""
    for b in range(len(graph)):
        for i in range(graph.shape[1]):
            for j in range(graph.shape[1]):
                graph[b, i, j] = present[b, i] & present[b, j]
            graph[b, i, i] = False


@compiled
@no_type_check
def part_equals(values, graph):
    """Whoever has the same value must not stand together."""
    for b in range(len(graph)):
        for i in range(graph.shape[1]):
            for j in range(graph.shape[1]):
                graph[b, i, j] &= values[b, i] != values[b, j]


class Found(NamedTuple):
    """Requests by row of the catalogue (any row where nobody is present), and what decides validity."""

    rows: Int64[np.ndarray, "B N"]
    user: Int64[np.ndarray, "B"]
    user_features: Float32[np.ndarray, "B Fu"] | None
    requests: Requests


@dataclass(frozen=True, eq=False)
class QuickBatches:
    """Tables by row of the catalogue: vocabulary index, scaled features, the columns rules read."""

    rows: dict[Any, int]
    index: Int64[np.ndarray, "I"]
    features: Float32[np.ndarray, "I F"] | None
    columns: dict[str, np.ndarray]
    fitted: TrainedModel
    keys: Int64[np.ndarray, "I"]  # what settles ties

    @classmethod
    def of(cls, fitted: TrainedModel) -> QuickBatches | None:
        """None where some rule reads a column that the catalogue lacks, in whole or in part."""
        catalogue, vocabulary = fitted.catalogue, fitted.vocabulary
        ids = catalogue.items["item_id"].to_pylist()
        columns = _columns(fitted.constraints, fitted)
        if not ids or columns is None:
            return None
        features = None
        if vocabulary.item_scaling is not None:
            held = catalogue.item_features
            if held.shape[1] != len(vocabulary.item_scaling):
                return None
            features = vocabulary.item_scaling(held)
        return cls(
            rows={item_id: row for row, item_id in enumerate(ids)},
            index=np.array(vocabulary.item_index(ids), np.int64),
            features=features,
            columns=columns,
            fitted=fitted,
            keys=tie_keys(ids),
        )

    def places(self, request: Request) -> list[int] | None:
        """The catalogue's rows of the candidates; None where the request needs the long way."""
        if request.attributes or request.include or request.exclude or request.user_features is not None:
            return None
        if len(set(request.candidates)) != len(request.candidates) or not 0 < request.k <= len(
            request.candidates
        ):
            return None
        try:
            return list(map(self.rows.__getitem__, request.candidates))
        except (KeyError, TypeError):
            return None

    def find(self, requests: Sequence[Request]) -> Found | None:
        """All of them side by side; None where one of them needs the long way."""
        placed = [self.places(request) for request in requests]
        B, N = len(requests), max(len(request.candidates) for request in requests)
        rows = np.zeros((B, N), np.int64)
        present = np.zeros((B, N), bool)
        for b, places in enumerate(placed):
            if places is None:
                return None
            rows[b, : len(places)] = places
            present[b, : len(places)] = True
        constraints, user_index = self.fitted.constraints, self.fitted.vocabulary.user_index
        columns = {name: values[rows] for name, values in self.columns.items()}
        group, cap = constraints.caps(columns, present)
        sizes = np.array([request.k for request in requests], np.int32)
        return Found(
            rows=rows,
            user=np.array([user_index(request.user_id) for request in requests], np.int64),
            user_features=self._user_features(requests),
            requests=Requests(
                graph=self._graph(columns, present),
                present=present,
                card_size=sizes,
                pinned=np.zeros((B, N), bool),
                group=group,
                cap=cap,
                brief=constraints.brief(columns, present, sizes),
                tie_key=np.where(present, self.keys[rows], 0),
            ),
        )

    def batch(self, requests: Sequence[Request]) -> Batch | None:
        """The same as a batch, for a model."""
        found = self.find(requests)
        if found is None:
            return None
        asked, features = found.requests, None
        if self.features is not None:
            features = self.features[found.rows]
            if not asked.present.all():
                features[~asked.present] = self._nothing()
        return Batch(
            user=found.user,
            item=np.where(asked.present, self.index[found.rows], 0),
            present=asked.present,
            graph=asked.graph,
            card_size=asked.card_size.astype(np.int64),
            pinned=asked.pinned,
            group=asked.group,
            cap=asked.cap,
            brief=asked.brief,
            tie_key=asked.tie_key,
            user_features=found.user_features,
            item_features=features,
        )

    def _graph(
        self, columns: dict[str, np.ndarray], present: Bool[np.ndarray, "B N"]
    ) -> Bool[np.ndarray, "B N N"]:
        """As the rules draw it; where all say "distinct", numbers are compared without further questions."""
        rules = self.fitted.constraints.rules
        if not all(isinstance(rule, Distinct) for rule in rules):
            return self.fitted.constraints.graph(columns, present)
        graph = np.empty((*present.shape, present.shape[1]), bool)
        fill_complete(present, graph)
        for rule in rules:
            part_equals(columns[rule.fields[0]], graph)
        return graph

    def _nothing(self) -> Float32[np.ndarray, "F"]:
        """What the model sees where nothing is known."""
        scaling = self.fitted.vocabulary.item_scaling
        assert scaling is not None
        return np.asarray(scaling(np.full((1, len(scaling)), np.nan, np.float32))[0])

    def _user_features(self, requests: Sequence[Request]) -> Float32[np.ndarray, "B Fu"] | None:
        scaling = self.fitted.vocabulary.user_scaling
        if scaling is None:
            return None
        held = self.fitted.catalogue.user_features
        raw = np.full((len(requests), len(scaling)), np.nan, np.float32)
        if held.shape[1] == len(scaling):
            for b, request in enumerate(requests):
                row = self.fitted.catalogue.user_row(request.user_id)
                if row >= 0:
                    raw[b] = held[row]
        return np.asarray(scaling(raw))


def _columns(constraints: Constraints, fitted: TrainedModel) -> dict[str, np.ndarray] | None:
    """The columns rules read, by row. A field that is only compared for equality becomes numbers."""
    items = fitted.catalogue.items
    count = len(items)
    columns = {"item_id": np.arange(count)}
    for name in constraints.fields:
        if name not in items.column_names:
            return None
        values = np.empty(count, object)
        values[:] = items[name].to_pylist()
        missing: Bool[np.ndarray, "1 I"] = absent_values(values[None])
        if missing.any():
            return None
        readers = [rule for rule in constraints.rules if name in rule.fields]
        if all(isinstance(rule, Distinct | AtMost) for rule in readers):
            number: dict[Any, int] = {}
            values = np.array([number.setdefault(value, len(number)) for value in values.tolist()], np.int64)
        columns[name] = values
    if "item_id" in constraints.fields or any(not rule.fields for rule in constraints.rules):
        columns["item_id"] = np.array(items["item_id"].to_pylist(), object)
    return columns
