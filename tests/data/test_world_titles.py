"""Titles as bytes: allowed pairs equal the rule's own answer, near-duplicates bite."""

import numpy as np
import pytest

from exactk.data.world.recipe import Goods, WorldConfig, goods
from exactk.data.world.titles import WIDTH, Titles, allowed_pairs, as_strings, titles_of
from exactk.problem.rules.constraints import TitleDistance
from exactk.problem.rules.titles import far_apart

CONFIG = WorldConfig(items=4_000)


@pytest.fixture(scope="module")
def items() -> Goods:
    return goods(CONFIG)


@pytest.fixture(scope="module")
def titles(items: Goods) -> Titles:
    return titles_of(items, CONFIG.seed)


@pytest.mark.parametrize("minimum", [0.0, 0.3, 0.5, 0.55, 2 / 3, 1.0])
def test_allowed_pairs_are_those_of_the_rule(titles: Titles, minimum: float) -> None:
    rng = np.random.default_rng(3)
    # neighbours in the catalogue are often listings of one product: half the candidates come in runs
    starts = rng.integers(0, CONFIG.items - 5, size=(20, 4))
    runs = (starts[:, :, None] + np.arange(5)).reshape(20, 20)
    candidates = np.concatenate([runs, rng.integers(CONFIG.items, size=(20, 20))], axis=1)
    text = np.array(as_strings(titles, 0, CONFIG.items).to_pylist(), object)[candidates]
    present = np.ones(candidates.shape, bool)
    rule = TitleDistance(minimum)
    by_rule = rule.allowed({"item_id": candidates, "title": text}, present)
    apart = ~np.eye(40, dtype=bool)
    assert np.array_equal(allowed_pairs(titles, candidates, minimum) & apart, by_rule & apart)


def test_titles_are_text_of_brand_category_and_theme(titles: Titles) -> None:
    texts = as_strings(titles, 0, CONFIG.items).to_pylist()
    assert max(map(len, texts)) < WIDTH
    assert min(map(len, texts)) > 15
    assert all(text.isascii() and text.strip() == text and "  " not in text for text in texts)
    assert as_strings(titles, 7, 9).to_pylist() == texts[7:9]


def test_listings_of_one_product_are_mostly_too_alike_and_strangers_hardly_ever(
    items: Goods, titles: Titles
) -> None:
    texts = as_strings(titles, 0, CONFIG.items).to_pylist()
    twins = np.flatnonzero(items.family[1:] == items.family[:-1])[:300]
    alike = [not far_apart([texts[i]], [texts[i + 1]], 0.5, "ned")[0, 0] for i in twins]
    rng = np.random.default_rng(0)
    first, second = rng.integers(CONFIG.items, size=(2, 600))
    strangers = items.category[first] != items.category[second]
    by_chance = [
        not far_apart([texts[i]], [texts[j]], 0.5, "ned")[0, 0]
        for i, j in zip(first[strangers], second[strangers], strict=True)
    ]
    assert 0.6 < np.mean(alike) < 0.95
    assert np.mean(by_chance) < 0.03
