"""The check of the off-policy estimates against a world's truth."""

from __future__ import annotations

import numpy as np
import pytest

from exactk.data.world.recipe import WorldConfig
from exactk_lab.bench.trust import Feed, offpolicy_check


def test_a_feed_lists_every_card_with_its_chance_and_value() -> None:
    feed = Feed.of(WorldConfig(users=20, items=100, impressions=30, k=2, n=6), seed=1)
    assert feed.cards.shape == (15, 2)
    np.testing.assert_allclose(feed.shown.sum(1), 1.0)
    assert ((feed.value > 0) & (feed.value < 1)).all()
    # The chance that an item is shown sums to K over the items, and a pair's to that of its card.
    np.testing.assert_allclose(np.trace(feed.together, axis1=1, axis2=2), 2.0)
    np.testing.assert_allclose(feed.together[:, 0, 1], feed.shown[:, 0])


def test_estimates_are_right_where_there_is_support_and_refused_where_there_is_none() -> None:
    rows = offpolicy_check(requests=1500, rounds=12)
    told = {(row["policy"], row["estimator"]): row for row in rows}
    assert len(rows) == 16
    for estimator in ("ips", "snips", "dr"):
        known = told["production's likeliest card", estimator]
        assert known["refused"] <= 0.4
        assert abs(known["bias"]) < 0.02
        assert known["coverage"] >= 0.6  # 95% in the long run; few rounds here
        assert told["a random valid card", estimator]["refused"] == 1.0
        assert told["a random valid card", estimator]["mean_estimate"] is None
        # What the check withholds is far off: that is why it does.
        withheld = told["a random valid card", estimator]["unchecked"]
        assert withheld["root_mean_square_error"] > 2 * known["root_mean_square_error"] * (
            told["a random valid card", estimator]["true_value"] / known["true_value"]
        )
    assert (
        told["the true best card", "ips"]["true_value"]
        > told["production's likeliest card", "ips"]["true_value"]
    )


def test_a_broken_propensity_is_noticed() -> None:
    feed = Feed.of(WorldConfig(users=50, items=100, impressions=3000, k=2, n=6), seed=2)
    rng = np.random.default_rng(0)
    wrong = Feed(feed.cards, feed.shown * 0.5, feed.value, feed.rough, feed.together)
    target = feed.shown.argmax(1)
    assert feed.estimates(target, rng)["snips"].interval is not None
    refused = wrong.estimates(target, rng)["snips"]
    assert refused.interval is None
    assert "instead of 1" in refused.support.reason
    assert refused.support.mean_weight == pytest.approx(2.0, abs=0.2)
