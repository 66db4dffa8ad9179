"""What the columns of a service's log are for: those of the model that served, and what came in beside them.

Knows names and kinds, no journal and no table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exactk.data.columns.fitted import FittedColumns
from exactk.data.columns.roles import SENT_MEASURES, Columns
from exactk.serving.log.entities import free_name


@dataclass
class SeenNames:
    """Names that came along, by kind: of candidates, and of requests as a whole."""

    numbers: set[str] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)
    of_requests: dict[str, bool] = field(default_factory=dict)  # whether all its values were numbers
    has_rewards: bool = False

    def see(self, numbers: Iterable[str], categories: Iterable[str]) -> None:
        """Names of candidates' columns."""
        self.numbers.update(numbers)
        self.categories.update(categories)

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
