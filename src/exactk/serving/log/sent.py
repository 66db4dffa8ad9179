"""What came along with the candidates of a request, parted: what is true of this request, and what of the items.

Knows the names a model and its rules read, no journal. The model's columns of candidates, and numbers and flags under
names it does not know, are kept with the impression, as they may differ from request to request; everything else, and
what rules read, is kept with the item, once for each content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from exactk.data.columns.roles import SENT_MEASURES, Columns
from exactk.model_folder import TrainedModel

OF_ITEMS = frozenset(("item_id", "features", "title", "category"))


class Parted(NamedTuple):
    """`columns`: name -> a value for each candidate, None where nothing was sent; `items`: what is said of items."""

    columns: dict[str, list[Any]]
    items: list[dict[str, Any]]


@dataclass(frozen=True)
class SentNames:
    """Which names are of candidates in a request, and which of items."""

    columns: Columns
    rolling: tuple[str, ...] = ()
    ruled: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fitted: TrainedModel) -> SentNames:
        """Of a model that serves."""
        known = fitted.vocabulary.columns
        return cls(known.columns, known.rolling, frozenset(fitted.constraints.fields))

    @cached_property
    def of_candidates(self) -> dict[str, str]:
        """Names as they may be sent, and as they are kept: score and position under our own."""
        columns = self.columns
        held = dict.fromkeys((*columns.candidate.names, *self.rolling, *SENT_MEASURES))
        logged = {columns.roles[name]: name for name in SENT_MEASURES if name in columns.roles}
        return {name: name for name in held} | logged

    @cached_property
    def of_items(self) -> frozenset[str]:
        """Names that are never of a request alone."""
        return OF_ITEMS.union(self.columns.item.names).difference(self.of_candidates)

    def parted(self, inline: Sequence[Mapping[str, Any]], rules: Sequence[str] = ()) -> Parted:
        """Items as they were sent with one request; `rules` are the names that rules of the request read."""
        columns: dict[str, list[Any]] = {}
        items: list[dict[str, Any]] = []
        ruled = self.ruled.union(rules)
        for n, sent in enumerate(inline):
            item: dict[str, Any] = {}
            for name, value in sent.items():
                known = self.of_candidates.get(name)
                free = name not in self.of_items and isinstance(value, int | float)
                if known is not None or free:
                    columns.setdefault(known or name, [None] * len(inline))[n] = value
                if name == "item_id" or not (known is not None or free) or name in ruled:
                    item[name] = value
            if len(item) > 1:
                items.append(item)
        return Parted(columns, items)
