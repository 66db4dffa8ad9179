"""RequestBuilder: THE way from requests to a Batch, for every door; dataset folders have `folder.py`.

Knows no log and no model. Whatever depends on an item alone is a table by row of the catalogue, made once; its last
row, which -1 finds, stands for every item that the catalogue lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int64

from exactk.data.columns.codes import keys_of_column
from exactk.data.columns.vocabulary import Scaling, Vocabulary
from exactk.data.requests import Request
from exactk.data.requests.catalogue import Catalogue, TitleVerdicts
from exactk.data.requests.columns import RequestColumns, raw_features, set_numbers
from exactk.data.requests.sheet import NOT_SENT, RequestSheet, number_of, sheet_of
from exactk.data.rolling import RollingCounts
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.problem.deadline import ENDLESS, Deadline
from exactk.problem.given import GivenRequests
from exactk.problem.graph import Requests
from exactk.problem.rules.columns import absent_values
from exactk.problem.rules.constraints import AtMost, Constraints, Distinct, TitleDistance

NO_CATALOGUE = Catalogue(
    pa.table({"item_id": pa.array([], pa.string())}), pa.table({"user_id": pa.array([], pa.string())})
)


class Built(NamedTuple):
    """A batch, the catalogue's row of each candidate, and whether all of these are known and as the catalogue says."""

    batch: Batch
    row: Int64[np.ndarray, "B N"]
    as_known: bool


class RequestBuilder:
    """What one vocabulary and one catalogue make of requests. What a request says goes before the catalogue.

    `counts` are the rolling counts as they stand; those a request sends itself go before them.
    """

    def __init__(
        self, vocabulary: Vocabulary, catalogue: Catalogue | None = None, counts: RollingCounts | None = None
    ) -> None:
        self.vocabulary, self.counts = vocabulary, counts
        self.catalogue = catalogue or NO_CATALOGUE
        self.columns = RequestColumns(vocabulary.columns, self.catalogue)
        self._rule_codes: dict[str, Int64[np.ndarray, "I"] | None] = {}
        self._settled: dict[TitleDistance, TitleVerdicts] = {}

    def settle_titles(self, rules: Constraints) -> None:
        """Compare all titles of the catalogue once; seconds for thousands, worth it where requests outnumber items."""
        for rule in rules.rules:
            if isinstance(rule, TitleDistance) and rule not in self._settled:
                verdicts = TitleVerdicts.of(rule, self.catalogue)
                self._settled |= {} if verdicts is None else {rule: verdicts}

    def batch(
        self,
        requests: Sequence[Request],
        constraints: Constraints | None = None,
        deadline: Deadline = ENDLESS,
    ) -> Batch:
        """Requests side by side."""
        return self.built(sheet_of(requests, self.catalogue), constraints, deadline).batch

    def built(
        self, sheet: RequestSheet, constraints: Constraints | None = None, deadline: Deadline = ENDLESS
    ) -> Built:
        """The same from a sheet, with what is known of where it comes from."""
        user = np.array([self.vocabulary.user_index(one) for one in sheet.users], np.int64)
        item = self._items(sheet)  # ids of the wrong type are refused first
        asked, keys = self._asked(sheet, constraints or Constraints(), deadline)
        item_features, sent_features = self._item_features(sheet)
        batch = Batch(
            user=user,
            item=item,
            present=asked.present,
            graph=asked.graph,
            card_size=asked.card_size.astype(np.int64),
            pinned=asked.pinned,
            group=asked.group,
            cap=asked.cap,
            tie_key=keys,
            brief=asked.brief,
            user_features=self._user_features(sheet),
            item_features=item_features,
            **self.columns.arrays(sheet, self.counts),
        )
        return Built(batch, sheet.row, sheet.all_known and not sent_features)

    def rule_columns(self, request: Request, fields: Sequence[str]) -> dict[str, np.ndarray]:
        """What rules read of one request, [1, N] each, in the caller's words."""
        sheet = sheet_of([request], self.catalogue)
        return {"item_id": sheet.ids} | {name: self._values(sheet, name) for name in fields}

    def unread(
        self, of_candidates: Iterable[str], of_request: Iterable[str], fields: Sequence[str] = ()
    ) -> list[str]:
        """Names that came along and that neither the model nor these rules read."""
        return sorted({*of_candidates} - {*self.item_names, *fields} | {*of_request} - self.context_names)

    @cached_property
    def item_index(self) -> Int64[np.ndarray, "I"]:
        """Vocabulary index by row of the catalogue."""
        return np.append(self.vocabulary.index_items(self.catalogue.item_ids), 0)

    @cached_property
    def item_features(self) -> Float32[np.ndarray, "I Fi"] | None:
        """Scaled features by row of the catalogue."""
        return _scaled(self.catalogue.item_features, self.vocabulary.item_scaling)

    @cached_property
    def _user_table(self) -> Float32[np.ndarray, "U Fu"] | None:
        return _scaled(self.catalogue.user_features, self.vocabulary.user_scaling)

    @cached_property
    def _tie_keys(self) -> Int64[np.ndarray, "I"]:
        return np.append(keys_of_column(self.catalogue.item_ids), 0)

    @cached_property
    def item_names(self) -> frozenset[str]:
        """What the model reads of a candidate or of its item, and what is kept of an item anyway."""
        fitted = self.vocabulary.columns
        known = (*self.columns.candidate_names, *fitted.columns.item.names)
        return frozenset((*known, "item_id", "features", "title", "category"))

    @cached_property
    def context_names(self) -> frozenset[str]:
        """What the model reads of a request as a whole, and of its user."""
        columns = self.vocabulary.columns.columns
        return frozenset((*columns.context.names, *columns.user.names))

    def _items(self, sheet: RequestSheet) -> Int64[np.ndarray, "B N"]:
        expected = self.vocabulary.item_type
        if sheet.all_known and (expected is None or sheet.candidates.fit(expected)):
            known: np.ndarray = self.item_index[sheet.row]
            return known
        index = np.zeros(sheet.row.shape, np.int64)
        index[sheet.present] = sheet.candidates.indices(self.vocabulary)
        return index

    def _asked(
        self, sheet: RequestSheet, rules: Constraints, deadline: Deadline
    ) -> tuple[Requests, Int64[np.ndarray, "B N"]]:
        """What decides validity, and what settles ties. Rows stand for ids as long as nothing is wrong."""
        rules.refuse_functions_of_cards()
        settled = self._settled_rules(sheet, rules)
        rules = Constraints.of([rule for rule in rules.rules if rule not in settled])
        reads_ids = "item_id" in rules.fields or any(not rule.fields for rule in rules.rules)
        wishes = sheet.include is not None or sheet.exclude is not None
        by_row = sheet.all_known and not wishes and not reads_ids
        columns = {"item_id": sheet.row if by_row else sheet.ids}
        for name in rules.fields:
            if name != "item_id":
                readers = [rule for rule in rules.rules if name in rule.fields]
                equal = all(isinstance(rule, Distinct | AtMost) for rule in readers)
                columns[name] = self._codes(sheet, name) if equal else self._values(sheet, name)

        def asked(ids: np.ndarray) -> Requests:
            wishes = (sheet.include, sheet.exclude)
            given = GivenRequests(columns | {"item_id": ids}, sheet.card_size, sheet.present, *wishes, False)
            return rules.requests(given, deadline)

        try:
            found = asked(columns["item_id"])
        except InputError:
            if by_row:
                asked(sheet.ids)  # says the same of the caller's ids
            raise
        for verdicts in settled.values():
            verdicts.part_near(sheet.row, found.graph)
        if sheet.all_known:
            keys = self._tie_keys[sheet.row]
        else:
            keys = np.zeros(sheet.row.shape, np.int64)
            keys[sheet.present] = sheet.candidates.tie_keys()
        return found, np.where(found.present, keys, 0)

    def _settled_rules(self, sheet: RequestSheet, rules: Constraints) -> dict[TitleDistance, TitleVerdicts]:
        """The rules on titles that need not be asked of these requests."""
        if not self._settled or not sheet.all_known:
            return {}
        known = [rule for rule in rules.rules if isinstance(rule, TitleDistance) and rule in self._settled]
        return {rule: self._settled[rule] for rule in known if rule.field not in sheet.sent.names}

    def _values(self, sheet: RequestSheet, name: str) -> np.ndarray:
        """A column of candidates as rules read it; None where nobody knows."""
        values: np.ndarray = self.catalogue.values(name)[sheet.row]
        if name in sheet.sent.names:
            flat = values.reshape(-1)
            for place, value in zip(sheet.sent.places.tolist(), sheet.sent.values(name), strict=True):
                if value is not NOT_SENT:
                    flat[place] = value
        return values

    def _codes(self, sheet: RequestSheet, name: str) -> np.ndarray:
        """The same for rules that compare values for equality alone."""
        if name not in self._rule_codes:
            self._rule_codes[name] = self._codes_by_row(name)
        codes = self._rule_codes[name]
        if codes is None or not sheet.all_known or name in sheet.sent.names:
            return self._values(sheet, name)
        return np.asarray(codes[sheet.row])

    def _codes_by_row(self, name: str) -> Int64[np.ndarray, "I"] | None:
        """Numbers that compare as the catalogue's values do; None where one is missing, or is no single value."""
        values = self.catalogue.values(name)
        whole = name in self.catalogue.items.column_names and not absent_values(values[None, :-1]).any()
        if not whole or not all(isinstance(value, str | int | float) for value in values[:-1]):
            return None
        number: dict[Any, int] = {}
        return np.array([number.setdefault(value, len(number)) for value in values.tolist()], np.int64)

    def _user_features(self, sheet: RequestSheet) -> Float32[np.ndarray, "B Fu"] | None:
        scaling = self.vocabulary.user_scaling
        if scaling is None or self._user_table is None:
            return None
        scaled: np.ndarray = self._user_table[sheet.user_row]
        names = self.vocabulary.columns.columns.user.numbers
        names = names if len(names) == len(scaling) else ()
        sent = sheet.user_features or {}
        named = {b for b, held in enumerate(sheet.contexts) if not held.keys().isdisjoint(names)}
        saying = sorted(named | sent.keys())
        if saying:
            raw = raw_features(self.catalogue.user_features, sheet.user_row[saying], len(scaling))
            for at, b in enumerate(saying):
                if b in sent:
                    raw[at] = _sent(sent[b], len(scaling), f"request {b}: user_features")
                held = sheet.contexts[b]
                for f, name in enumerate(names):
                    if name in held:
                        raw[at, f] = number_of(held[name], f"request {b}: {name}")
            scaled[saying] = scaling(raw)
        return scaled

    def _item_features(self, sheet: RequestSheet) -> tuple[Float32[np.ndarray, "B N Fi"] | None, bool]:
        """Scaled features, and whether some were sent."""
        scaling = self.vocabulary.item_scaling
        if scaling is None or self.item_features is None:
            return None, False
        scaled: np.ndarray = self.item_features[sheet.row]
        names = [name for name in self.columns.item_numbers if name in sheet.sent.names]
        if not names and "features" not in sheet.sent.names:
            return scaled, False
        sent, row = sheet.sent, sheet.row.reshape(-1)[sheet.sent.places]
        raw = raw_features(self.catalogue.item_features, row, len(scaling))
        if "features" in sent.names:
            for at, value in enumerate(sent.values("features")):
                if value is not NOT_SENT and value is not None:
                    raw[at] = _sent(value, len(scaling), sent.label("features", at))
        numbers = {name: sent.said_numbers(name) for name in names}
        set_numbers(raw, self.vocabulary.columns.item_numbers.names, numbers)
        scaled.reshape(-1, len(scaling))[sent.places] = scaling(raw)
        return scaled, True


def _scaled(held: np.ndarray, scaling: Scaling | None) -> Float32[np.ndarray, "R F"] | None:
    """Scaled features by row and, last, of what is unknown: the mean."""
    if scaling is None:
        return None
    return np.asarray(scaling(raw_features(held, np.append(np.arange(len(held)), -1), len(scaling))))


def _sent(values: Any, size: int, what: str) -> Float32[np.ndarray, "F"]:
    try:
        if np.asarray(values).dtype.kind in "cUSmM":
            raise ValueError
        with np.errstate(over="ignore"):
            read = np.asarray(values, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} must be numbers, got {values!r:.80}") from error
    if read.shape != (size,):
        raise InputError(f"{what} must be {size} numbers, got {read.shape}")
    return read
