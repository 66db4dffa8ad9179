"""A world as a dataset folder: its users, items and log as Arrow tables, made chunk by chunk on all cores.

Knows what may be seen: ids, attributes, cards and clicks, and 40 and 52 statistics of users and items, noisy views of
the latent truth of the fourteen days before the log. Of the truth itself nothing is written.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Float64

from exactk.data.dataset import Dataset
from exactk.data.table import Meta, as_lists, pack_graphs
from exactk.data.world import recipe
from exactk.data.world.log import DAYS, Shop, moments, record, splits, visitors
from exactk.data.world.recipe import CATEGORIES, TASTE_SIZE, THEMES, Geometry, Goods, People, WorldConfig
from exactk.data.world.titles import as_strings, brand_names
from exactk.data.writer import DatasetWriter
from exactk.errors import InputError
from exactk.problem.rules.constraints import Constraints, TitleDistance

REQUESTS_AT_ONCE = 1 << 12
Progress = Callable[[int, int], None]  # impressions written, impressions in all


def write(
    config: WorldConfig,
    shop: Shop,
    bias: float,
    path: Path | str,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Write the folder and open it. The bytes do not depend on the number of workers."""
    constraint = Constraints.of([TitleDistance(config.min_distance)])
    meta = Meta(
        K=config.k,
        N=config.n,
        constraint=constraint.to_dict(),
        split={"kind": "time", "train_days": DAYS - 1, "test_days": 1},
        provenance={"source": "world", "version": recipe.VERSION, "config": config.to_dict(), "bias": bias},
    )
    num_workers = workers or min(4, os.cpu_count() or 1)
    if num_workers < 0:
        raise InputError(f"workers must be at least 1, got {workers}")
    with DatasetWriter(path, meta) as writer, ThreadPoolExecutor(num_workers) as pool:
        for table in _in_order(pool, num_workers, partial(_users, config, shop), recipe.chunks(config.users)):
            writer.write_users(table)
        for table in _in_order(pool, num_workers, partial(_items, config, shop), recipe.chunks(config.items)):
            writer.write_items(table)
        written = 0
        parts = recipe.chunks(config.impressions, REQUESTS_AT_ONCE)
        for table in _in_order(pool, num_workers, partial(_impressions, config, shop, bias), parts):
            writer.write_impressions(table)
            written += len(table)
            if progress is not None:
                progress(written, config.impressions)
    return Dataset.open(path)


def _in_order(
    pool: ThreadPoolExecutor, ahead: int, make: Callable[..., pa.Table], parts: Iterator[tuple[int, int, int]]
) -> Iterator[pa.Table]:
    """Tables in the order of the parts, never more than `ahead` + 1 of them in memory."""
    pending: deque[Future[pa.Table]] = deque()
    for part in parts:
        pending.append(pool.submit(make, *part))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _users(config: WorldConfig, shop: Shop, number: int, start: int, stop: int) -> pa.Table:
    features = user_features(shop.people, shop.geometry, config.seed, number, start, stop)
    return pa.table({"user_id": np.arange(start, stop), "features": as_lists(features)})


def _items(config: WorldConfig, shop: Shop, number: int, start: int, stop: int) -> pa.Table:
    goods, rows = shop.goods, slice(start, stop)
    features = item_features(goods, shop.geometry, config.seed, number, start, stop)
    theme = goods.theme[rows]
    return pa.table(
        {
            "item_id": np.arange(start, stop),
            "title": as_strings(shop.titles, start, stop),
            "category": pa.array(CATEGORIES).take(pa.array(goods.category[rows])),
            "brand": pa.array(brand_names(config.seed)).take(pa.array(goods.brand[rows])),
            "theme": pa.array(THEMES).take(pa.array(theme, mask=theme < 0)),
            "price": np.round(np.exp(3.5 + 0.8 * goods.price[rows].astype(np.float64)), 2),
            "features": as_lists(features),
        }
    )


def _impressions(
    config: WorldConfig, shop: Shop, bias: float, number: int, start: int, stop: int
) -> pa.Table:
    rng = recipe.stream(config.seed, "log", number)
    users = visitors(rng, shop.people, stop - start)
    shown = record(rng, shop, config, users)
    card = shown.card_items()
    value = recipe.sigmoid(bias + recipe.card_logits(shop.truth, users, card))
    clicked = rng.random(len(users)) < value
    choice = np.cumsum(recipe.choice_probabilities(shop.truth, users, card), axis=1)
    place = (rng.random((len(users), 1)) > choice[:, :-1]).sum(axis=1)
    clicked_item = card[np.arange(len(users)), place]
    return pa.table(
        {
            "request_id": np.arange(start, stop),
            "user_id": users,
            "candidates": as_lists(shown.items),
            "card": as_lists(card),
            "clicked": clicked,
            "clicked_item": pa.array(clicked_item, mask=~clicked),
            "propensity": shown.propensity,
            "timestamp": moments(start, stop, config.impressions),
            "split": splits(start, stop, config.impressions),
            "graph": pack_graphs(shown.graph),
        }
    )


WINDOWS = (1, 7, 14)  # days
STYLE_NOISE = 0.015  # per dimension; styles spread by 0.35
TASTE_NOISE = {14: 0.06, 1: 0.20}  # per dimension; tastes spread by 1
RATING_NOISE = 0.06
BUDGET_NOISE = {14: 0.06, 1: 0.20}
COORDINATION_NOISE = 0.03
OWN_SHARE = 0.8  # of an item's traffic comes through its own category (and theme), the rest through any

_COUNTS = ("page_views", "item_views", "sales", "click_rate", "conversion_rate")
_WINDOWED = tuple(f"{count}_{days}d" for days in WINDOWS for count in _COUNTS)

ITEM_FEATURES = (
    *_WINDOWED,
    *(f"share_{category}" for category in CATEGORIES),
    *(f"share_{theme}" for theme in THEMES),
    *(f"style_{d}" for d in range(TASTE_SIZE)),
    *["price", "rating", "brand_reputation", "reviews", "favourites", "return_rate", "photo_score"],
)
DEPARTMENTS = ("fashion", "street", "outdoor", "home")
USER_FEATURES = (
    *_WINDOWED,
    *(f"taste_14d_{d}" for d in range(TASTE_SIZE)),
    *(f"taste_1d_{d}" for d in range(TASTE_SIZE)),
    *(f"share_{department}" for department in DEPARTMENTS),
    *["price_level_14d", "price_level_1d", "outfit_rate", "basket_size", "account_age"],
)
_DEPARTMENT_OF = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3])


def item_features(
    items: Goods, shared: Geometry, seed: int, chunk: int, start: int, stop: int
) -> Float32[np.ndarray, "R 52"]:
    """The statistics of one chunk of items."""
    rng = recipe.stream(seed, "item features", chunk)
    rows = slice(start, stop)
    num = stop - start
    quality, price = items.quality[rows].astype(np.float64), items.price[rows].astype(np.float64)
    traffic = np.exp(5.5 + 0.8 * rng.standard_normal(num) + 0.4 * quality)
    click_rate = 0.04 * np.exp(0.4 * quality)
    conversion = 0.05 * np.exp(0.3 * quality - 0.2 * price)
    category = items.category[rows]
    theme = np.where(items.theme[rows] < 0, len(THEMES), items.theme[rows])
    # What people say of each brand.
    hearsay = recipe.stream(seed, "reputation").standard_normal(recipe.NUM_BRANDS)
    reputation = shared.brand_tier + 0.2 * hearsay
    columns = [
        _windowed(rng, traffic, click_rate, conversion, np.exp(3.5 + 0.8 * price)),
        _shares(rng, category, len(CATEGORIES)),
        _shares(rng, theme, len(THEMES) + 1)[:, : len(THEMES)],
        items.style[rows] + STYLE_NOISE * rng.standard_normal((num, TASTE_SIZE)),
        price[:, None],
        (quality + RATING_NOISE * rng.standard_normal(num))[:, None],
        reputation[items.brand[rows]][:, None],
        np.log1p(rng.poisson(0.1 * traffic))[:, None],
        np.log1p(rng.poisson(14 * traffic * click_rate))[:, None],
        (0.08 * np.exp(-0.3 * quality + 0.2 * rng.standard_normal(num)))[:, None],
        (0.5 * quality + 0.5 * rng.standard_normal(num))[:, None],
    ]
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind")


def user_features(
    people: People, shared: Geometry, seed: int, chunk: int, start: int, stop: int
) -> Float32[np.ndarray, "R 40"]:
    """The statistics of one chunk of users."""
    rng = recipe.stream(seed, "user features", chunk)
    rows = slice(start, stop)
    num = stop - start
    taste, budget = people.taste[rows].astype(np.float64), people.budget[rows].astype(np.float64)
    activity = people.activity[rows].astype(np.float64)
    own_rate = 0.04 * np.exp(0.3 * rng.standard_normal(num))
    affinity = np.exp(taste @ shared.centre.T)  # R C
    sums = [affinity[:, d == _DEPARTMENT_OF].sum(axis=1) for d in range(len(DEPARTMENTS))]
    shares = np.stack(sums, axis=1) / affinity.sum(axis=1, keepdims=True)
    columns = [
        _windowed(rng, 60 * activity, own_rate, np.full(num, 0.05), np.exp(3.5 + 0.8 * budget)),
        taste + TASTE_NOISE[14] * rng.standard_normal(taste.shape),
        taste + TASTE_NOISE[1] * rng.standard_normal(taste.shape),
        shares + 0.02 * rng.standard_normal(shares.shape),
        (budget + BUDGET_NOISE[14] * rng.standard_normal(num))[:, None],
        (budget + BUDGET_NOISE[1] * rng.standard_normal(num))[:, None],
        (people.coordination[rows] + COORDINATION_NOISE * rng.standard_normal(num))[:, None],
        (1 + rng.poisson(1.5 * people.coordination[rows]))[:, None],
        np.log1p(rng.exponential(700, num))[:, None],
    ]
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind")


def _windowed(
    rng: np.random.Generator,
    daily_views: Float64[np.ndarray, "R"],
    click_rate: Float64[np.ndarray, "R"],
    conversion: Float64[np.ndarray, "R"],
    money: Float64[np.ndarray, "R"],
) -> Float64[np.ndarray, "R 15"]:
    """Counts of nested windows (the last day is part of the last week), as logs, and rates smoothed by their mean."""
    columns = []
    views = clicks = orders = np.zeros(len(daily_views))
    before = 0
    for days in WINDOWS:
        new_views = rng.poisson(daily_views * (days - before))
        new_clicks = rng.binomial(new_views, np.minimum(click_rate, 1))
        views, clicks = views + new_views, clicks + new_clicks
        orders = orders + rng.binomial(new_clicks, np.minimum(conversion, 1))
        before = days
        columns += [np.log1p(views), np.log1p(clicks), np.log1p(orders * money)]
        columns += [(clicks + 2) / (views + 50), (orders + 1) / (clicks + 20)]
    return np.stack(columns, axis=1)


def _shares(rng: np.random.Generator, own: np.ndarray, num_groups: int) -> Float64[np.ndarray, "R G"]:
    """Where the traffic comes from: mostly the own group, the rest spread by a flat Dirichlet draw."""
    spread = rng.standard_exponential((len(own), num_groups))
    spread *= (1 - OWN_SHARE) / spread.sum(axis=1, keepdims=True)
    spread[np.arange(len(own)), own] += OWN_SHARE
    return np.asarray(spread)
