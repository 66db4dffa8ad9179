"""Arm: one model that serves, how it makes cards, the folder it came from, and how a better one takes its place.

Knows the Recommender's parts and the engine's deciders, no route. Nobody waits for a new model: what is loaded is one
frozen value, and a batch sees one model from start to end.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Float64, Int

from exactk.data.requests import Request
from exactk.data.requests.builder import Built
from exactk.data.requests.sheet import sheet_of
from exactk.engine.card_values import LearnedPairs
from exactk.engine.decide import (
    Decider,
    Decision,
    ExactDecider,
    PolicyDecider,
    decider_of,
    in_order,
    searched,
)
from exactk.engine.pair_tables import PairTables
from exactk.engine.pair_values import PairValues
from exactk.errors import ExactKError
from exactk.model_folder import TrainedModel
from exactk.problem.batch import Batch, in_tie_order, moved_positions
from exactk.problem.exact import cliques
from exactk.problem.exact.cliques import safe_node_weight
from exactk.recommender import Recommender
from exactk.serving.log import SentNames
from exactk.serving.log.counting import LogCounts

log = logging.getLogger("exactk.serving")

RUNGS = ("usual", "greedy", "algorithm 1")  # of a ladder: time decides which one
SHORTLIST = 8  # cards to explore among


class Decoded(NamedTuple):
    """Cards of a batch, how likely each was to be drawn, and how it was found."""

    decision: Decision
    propensity: Float64[np.ndarray, "B"]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Decoder:
    """A trained model's decider and how it is used when serving: one batch to cards, without ids and without a clock.

    With exploration, a card is drawn from a shortlist, and its exact probability is told.
    """

    decider: Decider
    explore: float = 0.0

    def decode(self, batch: Batch, rung: str, generator: np.random.Generator, seconds: float) -> Decoded:
        """Cards by one rung. `seconds` is the time left: an exact search stops by then, with what it has."""
        ordered, order = in_tie_order(batch)
        found = self._decoded(ordered, rung, generator, seconds)
        cards = in_order(moved_positions(found.decision.cards, order), batch)
        return found._replace(decision=found.decision._replace(cards=cards))

    def _decoded(self, batch: Batch, rung: str, generator: np.random.Generator, seconds: float) -> Decoded:
        if isinstance(self.decider, ExactDecider):
            return self._by_value(self.decider, batch, rung, generator, seconds)
        return self._by_policy(self.decider, batch, rung, generator)

    def _by_value(
        self, decider: ExactDecider, batch: Batch, rung: str, generator: np.random.Generator, seconds: float
    ) -> Decoded:
        values = decider.value.values(batch)
        if rung == "algorithm 1":
            cards = safe_node_weight(batch.requests(), values.node)
            return _sure(_unproven(cards, decider.value.of(values, batch, cards[:, None])[:, 0]), rung)
        if self.explore > 0 and rung == "usual":
            cards, propensity = self._drawn(*_shortlist(batch, values, seconds), generator)
            logit = decider.value.of(values, batch, cards[:, None])[:, 0]
            return Decoded(_unproven(cards, logit), propensity, ("exact, explored",) * len(batch))
        decision = decider.best(batch, values, _share(seconds, batch))
        late = np.flatnonzero(~decision.found)
        if not len(late):
            return _sure(decision, "exact")
        # Time ran out before any card was found.
        some, weights = batch.rows(late), values.node[late]
        found = safe_node_weight(some.requests(), weights)
        decision.cards[late, : found.shape[1]] = found
        decision.logit[late] = decider.value.logits(some, found[:, None])[:, 0]
        methods = np.where(decision.found, "exact", "algorithm 1").tolist()
        return Decoded(decision, np.ones(len(batch)), tuple(methods))

    def _by_policy(
        self, decider: PolicyDecider, batch: Batch, rung: str, generator: np.random.Generator
    ) -> Decoded:
        if rung == "algorithm 1":
            cards = safe_node_weight(batch.requests(), decider.decoder.scores(batch).astype(np.float64))
        elif rung == "greedy":
            cards = decider.decoder.with_beam(1).recommend(batch)
        elif self.explore > 0:
            wide = decider.decoder.with_beam(max(SHORTLIST, decider.decoder.beam))
            written = wide.write(batch, kept=SHORTLIST)
            cards, propensity = self._drawn(written.cards, written.num_found, generator)
            decision = _unproven(in_order(cards, batch), decider.logit(batch, cards))
            return Decoded(decision, propensity, ("beam, explored",) * len(batch))
        else:
            return _sure(decider.decide(batch), "beam")
        return _sure(_unproven(in_order(cards, batch), decider.logit(batch, cards)), rung)

    def _drawn(
        self, cards: Int[np.ndarray, "B W K"], count: Int[np.ndarray, "B"], generator: np.random.Generator
    ) -> tuple[Int[np.ndarray, "B K"], Float64[np.ndarray, "B"]]:
        """The first card, or, with probability `explore`, any of the shortlist at even odds.

        Of 4 cards at explore = 0.2 the first has 0.8 + 0.2 / 4 = 0.85, each other 0.05.
        """
        coin = generator.random((2, len(cards)))
        place = np.where(coin[0] < self.explore, (coin[1] * count).astype(np.int64), 0)
        propensity = self.explore / count + (1 - self.explore) * (place == 0)
        return cards[np.arange(len(cards)), place], propensity


def _unproven(cards: Int[np.ndarray, "B K"], logit: Float[np.ndarray, "B"]) -> Decision:
    """Cards of which nothing more is known."""
    never = np.zeros(len(cards), bool)
    return Decision(cards, logit, np.full(len(cards), np.inf), never, ~never)


def _sure(decision: Decision, method: str) -> Decoded:
    """Without chance, the card had to come."""
    return Decoded(decision, np.ones(len(decision.cards)), (method,) * len(decision.cards))


def _shortlist(
    batch: Batch, values: PairValues, seconds: float
) -> tuple[Int[np.ndarray, "B W K"], Int[np.ndarray, "B"]]:
    """The best cards by value, and how many there are."""
    limit = _share(seconds, batch)
    ranking = cliques.best_n(batch.requests(), values.node, values.pair, n=SHORTLIST, time_limit=limit)
    return ranking.card, np.maximum(ranking.num_found, 1)


def _share(seconds: float, batch: Batch) -> float:
    """Half of the time left, shared by all: what is not proven by then is returned with its bound."""
    return max(seconds / 2 / len(batch), 1e-4)


Signature = tuple[int, int, int]


@dataclass(frozen=True)
class Loaded:
    """A model ready to serve; `version` is the hash of its config.json, which names the hash of every other file.

    `tables` are what a pair value says of the catalogue's items.
    """

    recommender: Recommender
    decoder: Decoder
    tables: PairTables | None
    version: str
    since: float
    log_counts: LogCounts | None = None  # keeps what the model counts up with the service's log

    @property
    def searches(self) -> bool:
        """Whether cards are found by exact search of a value, and none is drawn by chance."""
        return isinstance(self.decoder.decider, ExactDecider) and self.decoder.explore == 0

    @cached_property
    def sent_names(self) -> SentNames:
        """Which of the names that come along are of candidates, which of items."""
        return SentNames.of(self.recommender.fitted)

    @cached_property
    def slow_names(self) -> frozenset[str]:
        """What takes long to read where it is sent along with an item."""
        fitted = self.recommender.fitted
        item = fitted.vocabulary.columns.columns.item
        return frozenset((*item.texts, *item.vectors, *fitted.constraints.fields))

    def searched(self, built: Built, seconds: float) -> Decision:
        """The best cards, where `searches`, each within `seconds`; values by tables, where these hold."""
        decider, batch = self.decoder.decider, built.batch
        assert isinstance(decider, ExactDecider)
        if self.tables is not None and built.as_known:
            values = self.tables.values(batch.user, batch.user_features, np.maximum(built.row, 0))
            return searched(batch.requests(), values, seconds, cores=1)
        return decider.decide(batch, seconds)


class Arm:
    """A name in the split, a folder that is watched, and the model loaded from it last."""

    def __init__(
        self,
        name: str,
        folder: Path,
        explore: float,
        on_reload: Callable[[str, str], None],
        log_folder: Path | None = None,
    ) -> None:
        self.name, self.folder, self._explore, self._on_reload = name, folder, explore, on_reload
        self._log_folder = log_folder
        self._seen: Signature | None = _signature(folder)
        self.loaded = load(folder, explore, log_folder)

    def refresh(self) -> bool:
        """Load the folder again if it changed; True where a new model took over. A broken one changes nothing.

        Called from a thread; swapping is one assignment.
        """
        now = _signature(self.folder)
        if now is None or now == self._seen:
            return False  # deleted, being replaced, or the same as before
        self._seen = now
        try:
            fresh = load(self.folder, self._explore, self._log_folder)
        except (ExactKError, OSError, ValueError, KeyError, TypeError) as error:
            log.error("arm %s keeps version %s: %s", self.name, self.loaded.version, error)
            self._on_reload(self.name, "refused")
            return False
        if fresh.version == self.loaded.version:
            return False
        log.info("arm %s: version %s takes over from %s", self.name, fresh.version, self.loaded.version)
        self.loaded = fresh
        self._on_reload(self.name, "swapped")
        return True

    def state(self) -> dict[str, Any]:
        """What /v1/model says of this arm."""
        loaded = self.loaded
        fitted = loaded.recommender.fitted
        return {
            "arm": self.name,
            "version": loaded.version,
            "kind": fitted.config.model,
            "card_size": fitted.card_size,
            "constraints": fitted.constraints.to_dict()["rule"],
            "items": fitted.sizes.num_items - 1,
            "users": fitted.sizes.num_users - 1,
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(loaded.since)),
        }


def load(folder: Path, explore: float, log_folder: Path | None = None) -> Loaded:
    """Read a model folder and try it once by every rung: what cannot answer must not serve.

    Rolling counts are brought up to date with the log before the model takes over.
    """
    described = (folder / "config.json").read_bytes() if (folder / "config.json").is_file() else b""
    recommender = Recommender.load(folder)
    fitted = recommender.fitted
    decider = decider_of(fitted.config, fitted.weights, fitted.sizes, fitted.card_size, threads=1)
    decoder = _tried_out(fitted, Decoder(decider, explore))
    version = hashlib.sha256(described).hexdigest()[:12]
    tables, counts = _tables(fitted, decider), _log_counts(fitted, log_folder)
    loaded = Loaded(recommender, decoder, tables, version, time.time(), counts)
    known = trial_requests(fitted)
    if tables is not None and known:  # or the first request would pay for loading what reads the tables
        loaded.searched(fitted.builder.built(sheet_of(known, fitted.catalogue)), 1.0)
    return loaded


def _log_counts(fitted: TrainedModel, log_folder: Path | None) -> LogCounts | None:
    if fitted.counts is None or log_folder is None:
        return None
    kept = LogCounts(log_folder, fitted.counts, fitted.vocabulary.item_type is int)
    kept.catch_up()
    return kept


def _tables(fitted: TrainedModel, decider: Decider) -> PairTables | None:
    """What a pair value says of the catalogue's items, computed once; None for another model, or a large catalogue."""
    weights = fitted.weights.value
    if weights is None or not (isinstance(decider, ExactDecider) and isinstance(decider.value, LearnedPairs)):
        return None
    builder, config = fitted.builder, fitted.config.pair_value
    features = None if builder.item_features is None else builder.item_features[:-1]
    return PairTables.of(weights, config, decider.value.compiled, builder.item_index[:-1], features)


def _tried_out(fitted: TrainedModel, decoder: Decoder) -> Decoder:
    """By every rung, with items the model knows and some it does not; without rules, so that there is a card."""
    for requests in ([stranger_request(fitted)], trial_requests(fitted) or [stranger_request(fitted)]):
        batch = fitted.builder.batch(requests)
        for rung in RUNGS:
            decoder.decode(batch, rung, np.random.default_rng(0), 1.0)
    return decoder


def _signature(folder: Path) -> Signature | None:
    """Changes whenever config.json does, which is written last; None where there is none."""
    try:
        written = (folder / "config.json").stat()
    except OSError:
        return None
    return written.st_mtime_ns, written.st_ino, written.st_size


def stranger_request(fitted: TrainedModel) -> Request:
    """A request in which the model knows nobody."""
    vocabulary, k = fitted.vocabulary, fitted.card_size
    return Request(_strangers(vocabulary.user_ids, 1)[0], tuple(_strangers(vocabulary.item_ids, k + 2)), k)


def trial_requests(fitted: TrainedModel) -> list[Request]:
    """Four requests of different lengths, at most 20, for items the model knows; none where it knows none."""
    items = fitted.catalogue.items["item_id"].to_pylist()
    known = fitted.catalogue.users["user_id"].to_pylist()[:3]
    users = [*known, *_strangers(fitted.vocabulary.user_ids, 1)]
    random = np.random.default_rng(0)
    requests: list[Request] = []
    for turn in range(4 if items else 0):
        size = min(len(items), max(fitted.card_size, 20 - turn))
        picked = [items[n] for n in random.choice(len(items), size, replace=False)]
        requests.append(Request(users[turn % len(users)], tuple(picked), min(fitted.card_size, size)))
    return requests


def _strangers(ids: pa.Array, count: int) -> list[Any]:
    """Ids of the right type that nobody has."""
    if not pa.types.is_integer(ids.type):
        return [f"?{n}" for n in range(count)]
    held = set(ids.to_pylist())
    lowest = min(held, default=0)
    return [min(lowest, 0) - 1 - n for n in range(count)]
