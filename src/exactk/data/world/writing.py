"""A world as a dataset folder: its users, items and log as Arrow tables, made chunk by chunk on all cores.

Knows what may be seen: ids, attributes, statistics, cards and clicks. Of the latent truth nothing is written.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from exactk.data.dataset import Dataset
from exactk.data.table import Meta, pack_graphs
from exactk.data.world.config import CATEGORIES, THEMES, VERSION, WorldConfig, stream
from exactk.data.world.features import item_features, user_features
from exactk.data.world.latents import chunks
from exactk.data.world.log import DAYS, Shop, moments, record, splits, visitors
from exactk.data.world.titles import as_strings, brand_names
from exactk.data.world.truth import card_logits, choice_probabilities, sigmoid
from exactk.data.writer import DatasetWriter
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
        provenance={
            "source": "world",
            "version": VERSION,
            "config": config.to_dict(),
            "bias": bias,
        },
    )
    num_workers = workers or min(4, os.cpu_count() or 1)
    with DatasetWriter(path, meta) as writer, ThreadPoolExecutor(num_workers) as pool:
        for table in _in_order(pool, num_workers, _users(config, shop), chunks(config.users)):
            writer.write_users(table)
        for table in _in_order(pool, num_workers, _items(config, shop), chunks(config.items)):
            writer.write_items(table)
        written = 0
        parts = chunks(config.impressions, REQUESTS_AT_ONCE)
        for table in _in_order(pool, num_workers, _impressions(config, shop, bias), parts):
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


def _users(config: WorldConfig, shop: Shop) -> Callable[[int, int, int], pa.Table]:
    def table(number: int, start: int, stop: int) -> pa.Table:
        features = user_features(shop.people, shop.geometry, config.seed, number, start, stop)
        return pa.table({"user_id": np.arange(start, stop), "features": _lists(features)})

    return table


def _items(config: WorldConfig, shop: Shop) -> Callable[[int, int, int], pa.Table]:
    brands, goods = pa.array(brand_names(config.seed)), shop.goods

    def table(number: int, start: int, stop: int) -> pa.Table:
        features = item_features(goods, shop.geometry, config.seed, number, start, stop)
        theme = goods.theme[start:stop]
        return pa.table(
            {
                "item_id": np.arange(start, stop),
                "title": as_strings(shop.titles, start, stop),
                "category": pa.array(CATEGORIES).take(pa.array(goods.category[start:stop])),
                "brand": brands.take(pa.array(goods.brand[start:stop])),
                "theme": pa.array(THEMES).take(pa.array(theme, mask=theme < 0)),
                "price": np.round(np.exp(3.5 + 0.8 * goods.price[start:stop].astype(np.float64)), 2),
                "features": _lists(features),
            }
        )

    return table


def _impressions(config: WorldConfig, shop: Shop, bias: float) -> Callable[[int, int, int], pa.Table]:
    def table(number: int, start: int, stop: int) -> pa.Table:
        rng = stream(config.seed, "log", number)
        users = visitors(rng, shop.people, stop - start)
        shown = record(rng, shop, config, users)
        card = shown.card_items()
        value = sigmoid(bias + card_logits(shop.truth, users, card))
        clicked = rng.random(len(users)) < value
        choice = np.cumsum(choice_probabilities(shop.truth, users, card), axis=1)
        place = (rng.random((len(users), 1)) > choice[:, :-1]).sum(axis=1)
        clicked_item = card[np.arange(len(users)), place]
        return pa.table(
            {
                "request_id": np.arange(start, stop),
                "user_id": users,
                "candidates": _lists(shown.items),
                "card": _lists(card),
                "clicked": clicked,
                "clicked_item": pa.array(clicked_item, mask=~clicked),
                "propensity": shown.propensity,
                "timestamp": moments(start, stop, config.impressions),
                "split": splits(start, stop, config.impressions),
                "graph": pack_graphs(shown.graph),
            }
        )

    return table


def _lists(rows: np.ndarray) -> pa.ListArray:
    """A matrix as a column of lists."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.reshape(-1)))
