"""World: a simulated feed whose truth is known. Builds logs like production's; judges any card and finds the best one.

The dataset it writes knows nothing of the truth; only evaluation may ask a World (`docs/understand/world.md`).
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int

from exactk.data.assemble import unpacked_graphs
from exactk.data.dataset import Dataset
from exactk.data.world import recipe
from exactk.data.world.log import Shop, record, visitors
from exactk.data.world.recipe import VERSION, CardItems, Goods, Items, People, Truth, Users, WorldConfig
from exactk.data.world.titles import titles_of
from exactk.data.world.writing import Progress, write
from exactk.errors import DataError, InputError
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests

UserIds = Int[np.ndarray, "B"]
ItemIds = Int[np.ndarray, "B N"]  # of candidates, or of cards
Choice = Callable[[np.ndarray, np.ndarray, Requests], np.ndarray]

PILOT_REQUESTS = 1 << 12
AT_ONCE = 1 << 11


class Optimum(NamedTuple):
    """The best card of each request as positions, and its true click probability (-1 and NaN: no valid card)."""

    card: CardItems
    value: Float64[np.ndarray, "B"]


class WorldRequests(NamedTuple):
    """Requests of a log as the world knows them: users, candidates, and what makes a card valid."""

    users: Users
    items: Items
    requests: Requests


class World:
    """Users, items and the click model of one `WorldConfig`. User and item ids are 0, 1, 2, ..."""

    def __init__(self, config: WorldConfig, bias: float | None = None) -> None:
        self.config = config
        self._given_bias = bias

    @classmethod
    def of(cls, dataset: Dataset) -> "World":
        """The world that wrote a dataset, rebuilt from its meta.json."""
        provenance = dataset.meta.provenance
        if provenance.get("source") != "world":
            raise DataError(f"{dataset.path} is not a simulated world, so its true values are not known")
        if provenance.get("version") != VERSION:
            raise DataError(
                f"{dataset.path} is of world recipe {provenance.get('version')}, this version knows recipe {VERSION}; "
                "build it again"
            )
        try:
            return _rebuilt(WorldConfig.from_dict(provenance["config"]), float(provenance["bias"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{dataset.path / 'meta.json'} is damaged: provenance: {error}") from error

    @cached_property
    def people(self) -> People:
        """All users."""
        return recipe.people(self.config)

    @cached_property
    def goods(self) -> Goods:
        """All items."""
        return recipe.goods(self.config)

    @cached_property
    def truth(self) -> Truth:
        """What the click model reads."""
        return Truth(self.people, self.goods, float(self.config.strength), float(self.config.theme))

    @cached_property
    def shop(self) -> Shop:
        """What production works with."""
        titles = titles_of(self.goods, self.config.seed)
        shared = recipe.geometry(self.config.seed)
        return Shop(self.people, self.goods, shared, recipe.shelves(self.goods), titles, self.truth)

    @cached_property
    def bias(self) -> float:
        """The constant of the click model: with it, cards shown in a pilot log are clicked at `click_rate`."""
        if self._given_bias is not None:
            return self._given_bias
        rng = recipe.stream(self.config.seed, "pilot")
        users = visitors(rng, self.people, PILOT_REQUESTS)
        shown = record(rng, self.shop, self.config, users)
        logits = recipe.card_logits(self.truth, users, shown.card_items())
        low, high = -50.0, 50.0
        for _ in range(60):  # the mean rises with the bias: halve until floats end
            middle = (low + high) / 2
            too_low = recipe.sigmoid(logits + middle).mean() < self.config.click_rate
            low, high = (middle, high) if too_low else (low, middle)
        return round(middle, 6)

    def write(
        self, path: Path | str, workers: int | None = None, progress: Progress | None = None
    ) -> Dataset:
        """Write users, items and log as a dataset folder, and open it."""
        return write(self.config, self.shop, self.bias, path, workers, progress)

    def value(self, user_ids: UserIds, item_ids: ItemIds) -> Float64[np.ndarray, "B"]:
        """The true click probability of each card."""
        users, items = self._checked(user_ids, item_ids)
        return recipe.sigmoid(self.bias + recipe.card_logits(self.truth, users, items))

    def node_pair(
        self, user_ids: UserIds, item_ids: ItemIds
    ) -> tuple[Float64[np.ndarray, "B N"], Float64[np.ndarray, "B N N"]]:
        """True weights of items and pairs, in log-odds: without themes, bias + their sum over a card is its logit."""
        return recipe.node_pair(self.truth, *self._checked(user_ids, item_ids))

    def asked(self, view: Dataset, places: Int[np.ndarray, "P"] | slice | None = None) -> WorldRequests:
        """The requests at these places of a view of this world's log, under the view's rules."""
        rows = view.rows if places is None else view.rows[places]
        index = view.folder.index
        items = index.candidate_rows(rows, self.config.n)
        if view.rules is not view.folder.rules and view.rules is not None:
            group, cap = view.rules.caps(items)
            requests = replace(Requests.of(view.rules.graph(items), self.config.k), group=group, cap=cap)
        else:
            count = np.full(len(rows), self.config.n)
            graph = unpacked_graphs(rows, index.graph_start, index.graph, count, self.config.n)
            requests = Requests.of(graph, self.config.k)
        return WorldRequests(index.user[rows].astype(np.int64), items, requests)

    def optimum(self, user_ids: UserIds, item_ids: ItemIds, requests: Requests) -> Optimum:
        """The exact best card of each request and its true value."""

        def choose(users: np.ndarray, items: np.ndarray, some: Requests) -> np.ndarray:
            node, pair = self.node_pair(users, items)
            if self.config.theme:
                return recipe.best_themed(some, node, pair, self.goods.theme[items], self.config.theme)
            return cliques.best(some, node, pair).card

        return self._best(user_ids, item_ids, requests, choose)

    def best_singles(self, user_ids: UserIds, item_ids: ItemIds, requests: Requests) -> Optimum:
        """The valid card of the best single items, pairs ignored: what a perfect pointwise ranker would show."""

        def choose(users: np.ndarray, items: np.ndarray, some: Requests) -> np.ndarray:
            return cliques.best(some, recipe.item_logits(self.truth, *self._checked(users, items))).card

        return self._best(user_ids, item_ids, requests, choose)

    def _best(self, user_ids: UserIds, item_ids: ItemIds, requests: Requests, choose: Choice) -> Optimum:
        """Choose for a part of the requests at a time: pair weights of all at once would fill the memory."""
        card = np.full((len(user_ids), int(requests.card_size.max(initial=0))), -1, np.int64)
        value = np.full(len(user_ids), np.nan)
        for start in range(0, len(user_ids), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            users, items = user_ids[part], item_ids[part]
            chosen = choose(users, items, requests.rows(part))
            card[part, : chosen.shape[1]] = chosen
            found = (chosen >= 0).all(axis=1)
            values = self.value(users, np.take_along_axis(items, np.maximum(chosen, 0), axis=1))
            value[part] = np.where(found, values, np.nan)
        return Optimum(card, value)

    def _checked(self, user_ids: UserIds, item_ids: ItemIds) -> tuple[Users, Items]:
        for kind, ids, num in (("user", user_ids, self.config.users), ("item", item_ids, self.config.items)):
            outside = ids[(ids < 0) | (ids >= num)]
            if len(outside):
                raise InputError(f"this world has no {kind} {outside[0]}: its {kind} ids are 0 to {num - 1}")
        return user_ids.astype(np.int64), item_ids.astype(np.int64)


@lru_cache(maxsize=2)
def _rebuilt(config: WorldConfig, bias: float) -> "World":
    return World(config, bias)


def world(
    path: Path | str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Dataset:
    """Build a world and its log, and open it; without `path`, in a temporary folder that lives as long as the dataset.

    The settings are those of `WorldConfig`: users, items, impressions, k, n, strength, theme, ...
    """
    config = WorldConfig.from_dict(settings)
    if path is not None:
        return World(config).write(path, workers, progress)
    folder = Path(tempfile.mkdtemp(prefix="exactk-world-"))
    dataset = World(config).write(folder / "world", workers, progress)
    weakref.finalize(dataset.folder, shutil.rmtree, folder, ignore_errors=True)
    return dataset
