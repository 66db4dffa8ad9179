"""From the service's log to a dataset folder: what was served today trains, and judges other models, tomorrow.

Knows the log's tables and the dataset's; a service may go on writing meanwhile. Memory grows with items, users and
feedback, not with the impressions: these are read a journal at a time, twice.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from exactk.data.columns import NO_USER, SENT_MEASURES, Columns
from exactk.data.columns.codes import category_text
from exactk.data.columns.vocabulary import FittedColumns
from exactk.data.logs.rows import DistinctIds
from exactk.data.table import flatten, replaced
from exactk.data.writer import DatasetWriter
from exactk.errors import DataError
from exactk.model_folder import TrainedModel
from exactk.serving.log import FEEDBACK, IMPRESSIONS, ITEMS
from exactk.serving.log.journal import read_all, tables_in

MOST_COLUMNS = 1000  # attributes of items, the most frequent ones
_KEPT = ("request_id", "user_id", "candidates", "card", "propensity", "arm", "model")
_OF_ITEMS = ("candidates", "card", "clicked_item", "clicked_items")
Said = Mapping[str, Mapping[str, Any]]  # of items or users, by id
RESERVED = {
    "user_id", "request_id", "candidates", "card", "clicked", "clicked_item", "clicked_items", "propensity", "graph",
    "split", "timestamp", "reward", "arm", "model", "value", "item_id", "on_card",
}  # fmt: skip


def free_name(name: str) -> str:
    """A name that no column of impressions has."""
    return f"item_{name}" if name in RESERVED else name


@dataclass
class _Seen:
    """What a first reading tells of all impressions; `numbers` and `categories` are names that came with candidates."""

    numbers: set[str] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)
    of_requests: dict[str, bool] = field(
        default_factory=dict
    )  # names of context: whether all values were numbers
    items: DistinctIds = field(default_factory=DistinctIds)
    users: DistinctIds = field(default_factory=DistinctIds)
    cards: dict[str, list[str]] = field(default_factory=dict)  # of the requests that feedback names
    of_users: dict[str, dict[str, Any]] = field(default_factory=dict)
    integer_items: bool = True
    integer_users: bool = True
    nobody: bool = False  # whether somebody asked who is not known
    rows: dict[str, int] = field(
        default_factory=dict
    )  # of each journal: more may come before the second reading

    @property
    def unknown_user(self) -> str:
        """What stands for nobody, as ids are written in the log."""
        return str(NO_USER["int64" if self.integer_users else "string"])

    def see_users(self, table: pa.Table) -> None:
        """Of some impressions."""
        known = table.filter(pc.is_valid(table["user_id"]))
        self.users.add(known["user_id"])
        self.integer_users &= _all_integers(known, "users")
        self.nobody |= len(known) < len(table)

    def see_context(self, context: Mapping[str, Any]) -> None:
        """One request's; what is no plain value is no column."""
        for name, value in context.items():
            if value is not None and not isinstance(value, list | dict):
                number = isinstance(value, int | float) and not isinstance(value, bool)
                self.of_requests[name] = self.of_requests.get(name, True) and number


class _LoggedNames(NamedTuple):
    """The columns of a dataset, and the name each has in the log."""

    columns: Columns
    numbers: Mapping[str, str]  # of candidates: score and position among them
    categories: Mapping[str, str]
    context_numbers: Mapping[str, str]
    context_categories: Mapping[str, str]


def _logged_names(
    seen: _Seen, has_rewards: bool, known: FittedColumns, left_out: Counter[str]
) -> _LoggedNames:
    """The columns of the model that served keep their kinds; new numbers of candidates and plain context join them."""
    base, candidate, context = known.columns, known.columns.candidate, known.columns.context
    held = (*candidate.names, *known.rolling)
    numbers, categories = _themselves((*candidate.numbers, *known.rolling)), _themselves(candidate.categories)
    measures = _themselves(name for name in SENT_MEASURES if name in base.roles or name in seen.numbers)
    context_numbers, context_categories = _themselves(context.numbers), _themselves(context.categories)
    taken = {*held, *context.names, *base.user.names, *measures}
    for name in sorted(seen.categories - set(held) - set(measures)):
        _join(categories, name, taken, left_out)
    for name in sorted(seen.numbers - seen.categories - set(held) - set(measures)):
        _join(numbers, name, taken, left_out)
    for name, all_numbers in sorted(seen.of_requests.items()):
        if name not in (*context.names, *base.user.names):
            _join(context_numbers if all_numbers else context_categories, name, taken, left_out)
    roles = {name: theirs for name, theirs in base.roles.items() if name != "reward" or has_rewards}
    roles |= {name: name for name in measures if name not in roles}
    roles |= {"reward": "reward"} if has_rewards and "reward" not in roles else {}
    columns = Columns(
        roles={ours: theirs for ours, theirs in roles.items() if ours not in ("on_card", "item_id", "split")},
        candidate=replace(candidate, numbers=tuple(numbers), categories=tuple(categories)),
        context=replace(context, numbers=tuple(context_numbers), categories=tuple(context_categories)),
        item=base.item,
        user=base.user,
        rolling=known.rolling or None,
        pair_features=base.pair_features,
    )
    return _LoggedNames(columns, numbers | measures, categories, context_numbers, context_categories)


def _themselves(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


def _join(into: dict[str, str], name: str, taken: set[str], left_out: Counter[str]) -> None:
    """One more column, under a name of its own."""
    free = free_name(name)
    if free in taken:
        left_out[f"the column {name!r}, since another has its name"] += 1
        return
    taken.add(free)
    into[free] = name


class BuiltLog(NamedTuple):
    """How many rows a log gave, which columns are new beside the model's, and what it held that is not in them."""

    rows: int
    clicked: int
    left_out: dict[str, int]
    columns: dict[str, Any]


class _Outcome(NamedTuple):
    """What came of one request: the items clicked in order (none: the card as a whole), and rewards by item."""

    clicked: list[str]
    rewards: dict[str, float]


def collect(
    log: Path | str,
    out: Path | str,
    constraint: Mapping[str, Any] | None = None,
    served: TrainedModel | None = None,
) -> BuiltLog:
    """Join a log folder into a dataset folder, with propensities, and all columns that came in.

    A request counts as clicked when any feedback says so, unless it names an item that was not on the card; several
    items clicked are several clicks, in order. `served`, the model, tells of the items and users that requests named
    by id alone (what came inline goes before it), what each column is for, and what was counted before. A name like
    that of a column of impressions gets the prefix "item_". Whatever is not used is counted in what is returned.
    """
    folder = Path(log)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a log folder: it does not exist")
    left_out: Counter[str] = Counter()
    feedback = read_all(folder, "feedback", FEEDBACK)
    seen = _read(folder, feedback, served)
    if not seen.rows:
        raise DataError(f"{folder} holds no impressions")
    outcomes = _outcomes(feedback, seen.cards, left_out)
    has_rewards = any(outcome.rewards for outcome in outcomes.values())
    fitted = FittedColumns() if served is None else served.vocabulary.columns
    names = _logged_names(seen, has_rewards, fitted, left_out)
    known = None if served is None else served.catalogue
    items = _described("item_id", seen.items.array().to_pylist(), known and known.items, _said_of_items(folder),
                       names.columns.item.numbers, left_out)  # fmt: skip
    users = _described("user_id", seen.users.array().to_pylist(), known and known.users, seen.of_users,
                       names.columns.user.numbers, left_out)  # fmt: skip
    meta = {"constraint": constraint, "columns": names.columns.to_dict() or None}
    with DatasetWriter(out, meta) as writer:
        writer.write_items(_with_ids(items, ("item_id",), seen.integer_items))
        writer.write_users(_with_ids(users, ("user_id",), seen.integer_users))
        for stem, table in tables_in(folder, "impressions", IMPRESSIONS):
            if seen.rows.get(stem):
                shown = table.slice(0, seen.rows[stem])
                shown = replaced(shown, "user_id", pc.fill_null(shown["user_id"], seen.unknown_user))
                rows = _impressions(shown, names, outcomes, left_out)
                rows = _with_ids(rows, _OF_ITEMS, seen.integer_items)
                writer.write_impressions(_with_ids(rows, ("user_id",), seen.integer_users))
        if served is not None and served.counts is not None:
            for name, table in served.counts.tables().items():
                writer.write_extra(name, table)
        counted = {what: count for what, count in left_out.items() if count}
        writer.add_provenance(source="serving log", left_out=counted)
    return BuiltLog(sum(seen.rows.values()), len(outcomes), counted, names.columns.to_dict())


def _read(folder: Path, feedback: pa.Table, served: TrainedModel | None) -> _Seen:
    seen = _Seen()
    answered = pc.unique(feedback["request_id"])
    of_user = frozenset() if served is None else frozenset(served.vocabulary.columns.columns.user.names)
    for stem, table in tables_in(folder, "impressions", IMPRESSIONS):
        if not len(table):
            continue
        seen.rows[stem] = len(table)
        seen.items.add(table["candidates"])
        seen.see_users(table)
        seen.integer_items &= _all_integers(table, "items")
        seen.numbers.update(pc.unique(pc.list_flatten(table["numbers"])).to_pylist())
        seen.categories.update(pc.unique(pc.list_flatten(table["categories"])).to_pylist())
        named = table.filter(pc.is_in(table["request_id"], value_set=answered))
        seen.cards |= dict(zip(named["request_id"].to_pylist(), named["card"].to_pylist(), strict=True))
        for user, text in zip(table["user_id"].to_pylist(), table["context"].to_pylist(), strict=True):
            if text:
                context = from_json(text)
                seen.see_context(context)
                said = {name: value for name, value in context.items() if name in of_user}
                if said and user is not None:
                    seen.of_users.setdefault(user, {}).update(said)
    seen.integer_users &= len(seen.users.array()) > 0
    if seen.nobody:
        seen.users.add(pa.array([seen.unknown_user]))
    return seen


def _all_integers(shown: pa.Table, of: str) -> bool:
    """Whether all ids were whole numbers; `integer_ids`, in older logs, says it of users and items together."""
    return bool(pc.all(pc.coalesce(shown[f"integer_{of}"], shown["integer_ids"]), min_count=0).as_py())


def _outcomes(
    feedback: pa.Table, cards: Mapping[str, Sequence[str]], left_out: Counter[str]
) -> dict[str, _Outcome]:
    """What was clicked, by request; feedback that cannot be believed is counted."""
    found: dict[str, _Outcome] = {}
    columns = ("request_id", "clicked", "clicked_item", "reward")
    rows = feedback.sort_by("timestamp").select(columns).to_pydict()
    for request_id, clicked, item, reward in zip(*(rows[name] for name in columns), strict=True):
        if request_id not in cards:
            left_out["feedback for requests that are not in the log"] += 1
        elif clicked and item is not None and item not in cards[request_id]:
            left_out["clicks on items that were not on the card"] += 1
        elif clicked:
            outcome = found.setdefault(request_id, _Outcome([], {}))
            if item is not None and item in outcome.clicked:
                left_out["clicks that were reported before"] += 1
            elif item is not None:
                outcome.clicked.append(item)
            if item is not None and reward is not None:
                outcome.rewards[item] = reward  # the last word on it
    return found


def _impressions(
    shown: pa.Table, names: _LoggedNames, outcomes: Mapping[str, _Outcome], left_out: Counter[str]
) -> pa.Table:
    """Impressions of one journal, with what was clicked and what had come along."""
    requests = shown["request_id"].to_pylist()
    came = [outcomes.get(request_id) for request_id in requests]
    columns: dict[str, Any] = {name: shown[name] for name in _KEPT}
    columns["timestamp"] = shown["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    columns["clicked"] = pa.array([outcome is not None for outcome in came], pa.bool_())
    clicks = [outcome.clicked if outcome is not None else [] for outcome in came]
    columns["clicked_item"] = pa.array([clicked[0] if clicked else None for clicked in clicks], pa.string())
    columns["clicked_items"] = pa.array(clicks, pa.list_(pa.string()))
    candidates = shown["candidates"].to_pylist()
    offsets = pa.array(np.concatenate([[0], np.cumsum(flatten(shown["candidates"])[1])]), pa.int32())
    sent = [from_json(text) if text else {} for text in shown["columns"].to_pylist()]
    for held, kind in ((names.numbers, "numbers"), (names.categories, "categories")):
        for name, logged in held.items():
            values = [
                value for each, listed in zip(sent, candidates, strict=True)
                for value in each.get(logged) or [None] * len(listed)
            ]  # fmt: skip
            flat = _numbers(values, left_out) if kind == "numbers" else _texts(values)
            own = name if name in names.columns.measured else f"candidate.{name}"
            columns[own] = pa.ListArray.from_arrays(offsets, flat)
    if "reward" in names.columns.measured:
        columns["reward"] = pa.ListArray.from_arrays(offsets, _rewards(shown, candidates, came))
    contexts = [from_json(text) if text else {} for text in shown["context"].to_pylist()]
    for name, logged in names.context_numbers.items():
        columns[f"context.{name}"] = _numbers([context.get(logged) for context in contexts], left_out)
    for name, logged in names.context_categories.items():
        columns[f"context.{name}"] = _texts([context.get(logged) for context in contexts])
    return pa.table(columns)


def _numbers(values: list[Any], left_out: Counter[str]) -> pa.Array:
    try:
        return pa.array(values, pa.float32())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        read = [float(value) if isinstance(value, int | float) else None for value in values]
        lost = sum(value is not None and one is None for value, one in zip(values, read, strict=True))
        left_out["values that are not numbers, in columns of numbers"] += lost
        return pa.array(read, pa.float64()).cast(pa.float32())


def _texts(values: list[Any]) -> pa.Array:
    plain = [None if isinstance(value, list | dict) else category_text(value) for value in values]
    return pa.array(plain, pa.string())


def _rewards(
    shown: pa.Table, candidates: Sequence[Sequence[str]], came: Sequence[_Outcome | None]
) -> pa.Array:
    """Of what was on the card: what came of it, 0 where nothing did; of the other candidates nobody knows."""
    flat: list[float | None] = []
    for listed, card, outcome in zip(candidates, shown["card"].to_pylist(), came, strict=True):
        rewards = outcome.rewards if outcome is not None else {}
        on_card = set(card)
        flat += [rewards.get(item, 0.0) if item in on_card else None for item in listed]
    return pa.array(flat, pa.float32())


def _with_ids(table: pa.Table, names: Sequence[str], integers: bool) -> pa.Table:
    if not integers:
        return table
    for name in names:
        kind = pa.list_(pa.int64()) if pa.types.is_list(table[name].type) else pa.int64()
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    return table


def _said_of_items(folder: Path) -> Said:
    """What was last said of each item that came inline."""
    said: dict[str, dict[str, Any]] = {}
    moments: dict[str, int] = {}
    for _, table in tables_in(folder, "items", ITEMS):
        for row in table.to_pylist():
            moment, item_id = row.pop("timestamp"), row["item_id"]
            if moment < moments.get(item_id, 0):
                continue
            rest = json.loads(row.pop("attributes") or "{}")
            held = {free_name(name): value for name, value in rest.items()} | row
            moments[item_id] = moment
            said[item_id] = {name: value for name, value in held.items() if value is not None}
    return said


def _described(
    key: str,
    ids: Sequence[str],
    known: pa.Table | None,
    said: Said,
    numbers: Sequence[str],
    left_out: Counter[str],
) -> pa.Table:
    """One row per id: the catalogue's, and over it what was said; features are made of the columns `numbers`."""
    kept: dict[str, dict[str, Any]] = {}
    if known is not None:
        wanted = set(ids)
        texts = [str(each) for each in known[key].to_pylist()]
        places = [place for place, text in enumerate(texts) if text in wanted]
        kept = {texts[place]: row for place, row in zip(places, known.take(places).to_pylist(), strict=True)}
    rows: list[dict[str, Any]] = [{**kept.get(each, {}), **said.get(each, {}), key: each} for each in ids]
    for each, row in zip(ids, rows, strict=True):
        _set_numbers(row, said.get(each, {}), numbers)
    types = {field.name: field.type for field in known.schema} if known is not None else {}
    columns = {key: pa.array(ids, pa.string())}
    frequent = Counter(name for row in rows for name in row if name != key).most_common()
    left_out[f"rare attributes of {key.removesuffix('_id')}s"] += len(frequent[MOST_COLUMNS:])
    for name, _ in frequent[:MOST_COLUMNS]:
        values = [row.get(name) for row in rows]
        if name == "features":
            columns[name] = _vectors(values, len(numbers), left_out)
        else:
            columns[name] = _column(values, types.get(name))
    return pa.table(columns)


def _set_numbers(row: dict[str, Any], said: Mapping[str, Any], numbers: Sequence[str]) -> None:
    """Numbers said by name into the list of features."""
    named = [name for name in numbers if isinstance(said.get(name), int | float)]
    held = row.get("features")
    if named and (held is None or len(held) == len(numbers)):
        row["features"] = list(held or [None] * len(numbers))
        for name in named:
            row["features"][numbers.index(name)] = float(said[name])


def _vectors(values: list[Any], size: int, left_out: Counter[str]) -> pa.Array:
    """Features of one length, unknown ones NaN; those of another length are left out and counted."""
    lengths = Counter(len(value) for value in values if value is not None)
    size = size or lengths.most_common(1)[0][0]
    odd = sum(count for length, count in lengths.items() if length != size)
    left_out["features left out, since others have another number of them"] += odd
    unknown = [math.nan] * size
    fitting = [unknown if value is None or len(value) != size else value for value in values]
    numbers = [[math.nan if each is None else each for each in value] for value in fitting]
    return pa.array(numbers, pa.list_(pa.float64()))


def _column(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Values of one kind as that kind; anything else as text, what is no text as JSON."""
    if all(value is None or _is_plain(value) for value in values):
        with suppress(pa.ArrowException, OverflowError):
            return pa.array(values, kind)
        if kind is not None:
            with suppress(pa.ArrowException, OverflowError):
                return pa.array(values)
    texts = [one if one is None or isinstance(one, str) else json.dumps(one, default=str) for one in values]
    return pa.array(texts, pa.string())


def _is_plain(value: Any) -> bool:
    """Neither an object nor a list of anything but plain values of one kind: those no table can always hold."""
    if isinstance(value, list):
        kinds = {*map(type, value)}
        return len(kinds) <= 1 and not kinds & {list, dict}
    return not isinstance(value, dict)
