"""Columns of a service's log: what came along with a request parted as it is kept, and what each is for when collected.

Knows names and kinds, no journal and no table. The model's columns of candidates, and numbers and flags under names it
does not know, are kept with the impression, as they may differ from request to request; everything else, and what rules
read, is kept with the item, once for each content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from exactk.data.columns import SENT_MEASURES, Columns
from exactk.data.columns.fitted import FittedColumns
from exactk.model_folder import TrainedModel

OF_ITEMS = frozenset(("item_id", "features", "title", "category"))


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

    def parted(
        self, inline: Sequence[Mapping[str, Any]], rules: Sequence[str] = ()
    ) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
        """Name -> a value for each candidate, None where nothing was sent; and what is said of items.

        `rules` are the names that rules of the request read.
        """
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
        return columns, items


RESERVED = {
    "user_id", "request_id", "candidates", "card", "clicked", "clicked_item", "clicked_items", "propensity", "graph",
    "split", "timestamp", "reward", "arm", "model", "value", "item_id", "on_card",
}  # fmt: skip


def free_name(name: str) -> str:
    """A name that no column of impressions has."""
    return f"item_{name}" if name in RESERVED else name


@dataclass
class SeenNames:
    """Names that came along, by kind: of candidates, and of requests as a whole."""

    numbers: set[str] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)
    of_requests: dict[str, bool] = field(default_factory=dict)  # whether all its values were numbers
    has_rewards: bool = False

    def see_context(self, context: Mapping[str, Any]) -> None:
        """One request's; what is no plain value is no column."""
        for name, value in context.items():
            if value is None or isinstance(value, list | dict):
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            self.of_requests[name] = self.of_requests.get(name, True) and number


@dataclass(frozen=True)
class LoggedNames:
    """The columns of a dataset, and the name each has in the log."""

    columns: Columns
    numbers: Mapping[str, str]  # of candidates: score and position among them
    categories: Mapping[str, str]
    context_numbers: Mapping[str, str]
    context_categories: Mapping[str, str]


def logged_names(seen: SeenNames, served: FittedColumns | None, left_out: Counter[str]) -> LoggedNames:
    """The columns of the model that served keep their kinds; new numbers of candidates and plain context join them."""
    known = served or FittedColumns()
    base, candidate, context = known.columns, known.columns.candidate, known.columns.context
    held = (*candidate.names, *known.rolling)
    numbers = {name: name for name in (*candidate.numbers, *known.rolling)}
    categories = {name: name for name in candidate.categories}
    measures = {name: name for name in SENT_MEASURES if name in base.roles or name in seen.numbers}
    of_context = {name: name for name in (*context.numbers, *context.categories)}
    taken = {*held, *of_context, *base.user.names, *measures}
    for name in sorted(seen.categories - set(held) - set(measures)):
        _join(categories, name, taken, left_out)
    for name in sorted(seen.numbers - seen.categories - set(held) - set(measures)):
        _join(numbers, name, taken, left_out)
    context_numbers = {name: name for name in context.numbers}
    context_categories = {name: name for name in context.categories}
    for name, all_numbers in sorted(seen.of_requests.items()):
        if name not in of_context and name not in base.user.names:
            _join(context_numbers if all_numbers else context_categories, name, taken, left_out)
    roles = {name: theirs for name, theirs in base.roles.items() if name != "reward" or seen.has_rewards}
    roles |= {name: name for name in measures if name not in roles}
    roles |= {"reward": "reward"} if seen.has_rewards and "reward" not in roles else {}
    columns = Columns(
        roles={ours: theirs for ours, theirs in roles.items() if ours not in ("on_card", "item_id", "split")},
        candidate=replace(candidate, numbers=tuple(numbers), categories=tuple(categories)),
        context=replace(context, numbers=tuple(context_numbers), categories=tuple(context_categories)),
        item=base.item,
        user=base.user,
        rolling=known.rolling or None,
        pair_features=base.pair_features,
    )
    return LoggedNames(columns, numbers | measures, categories, context_numbers, context_categories)


def _join(into: dict[str, str], name: str, taken: set[str], left_out: Counter[str]) -> None:
    """One more column, under a name of its own."""
    free = free_name(name)
    if free in taken:
        left_out[f"the column {name!r}, since another has its name"] += 1
        return
    taken.add(free)
    into[free] = name
