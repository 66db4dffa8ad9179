"""Which items of a catalogue may share a card, decided once for all pairs: many requests ask of the same pairs.

Knows rules on titles, the only ones that are dear to ask; every other rule is asked as always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Int64, UInt8
from numba import njit

from exactk.data.catalogue import Catalogue
from exactk.problem.rules.constraints import TitleDistance
from exactk.problem.rules.titles import NEAR, title_pairs


@dataclass(frozen=True, eq=False)
class TitleVerdicts:
    """For one rule: the number of every catalogue row's title, and the verdict on every two numbers."""

    number: Int64[np.ndarray, "I"]
    verdict: UInt8[np.ndarray, "T T"]

    @classmethod
    def of(cls, rule: TitleDistance, catalogue: Catalogue) -> TitleVerdicts | None:
        """None where the catalogue is too large, or lacks a title: then the rule is asked."""
        if rule.field not in catalogue.items.column_names or catalogue.items[rule.field].null_count:
            return None
        titles = catalogue.items[rule.field].to_pylist()
        pairs = title_pairs(float(rule.minimum), rule.metric)
        if not all(isinstance(title, str) and title for title in titles) or not pairs.remember(titles):
            return None
        return cls(np.array([pairs.number[title] for title in titles], np.int64), pairs.verdict.copy())

    def part_near(self, row: Int64[np.ndarray, "B N"], graph: Bool[np.ndarray, "B N N"]) -> None:
        """Take the pairs whose titles are too near out of the graph; all items are of the catalogue."""
        _part_near(self.number[np.maximum(row, 0)], self.verdict, graph)


@njit(cache=True, nogil=True)
@no_type_check
def _part_near(number, verdict, graph):
    B, N = number.shape
    for b in range(B):
        for i in range(N):
            own = verdict[number[b, i]]
            for j in range(i + 1, N):
                if graph[b, i, j] and own[number[b, j]] == NEAR:
                    graph[b, i, j] = False
                    graph[b, j, i] = False
