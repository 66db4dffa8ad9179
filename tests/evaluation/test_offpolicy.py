"""Off-policy estimates against hand numbers, planted truth over many simulated logs, and refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from exactk.errors import InputError
from exactk.evaluation import offpolicy
from exactk.evaluation.offpolicy import Opinions, Resampling

CARDS = np.array(list(itertools.combinations(range(4), 2)))  # the six cards of two out of four
LOGGING = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
VALUE = np.array([0.1, 0.3, 0.2, 0.6, 0.4, 0.5])  # not additive in the items
ADDITIVE = np.array([0.05, 0.3, 0.1, 0.2])[CARDS].sum(1)


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def simulated_log(
    rng: np.random.Generator, num: int, value: np.ndarray = VALUE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cards drawn by the logging policy, their clicks and propensities."""
    shown = rng.choice(len(CARDS), num, p=LOGGING)
    return CARDS[shown], rng.random(num) < value[shown], LOGGING[shown]


def always(card: int, num: int) -> np.ndarray:
    return np.repeat(CARDS[card][None], num, 0)


def test_cards_are_compared_as_sets_whatever_the_padding() -> None:
    cards = np.array([[2, 0, 1], [0, 1, -1], [0, 1, 2], [0, 1, 2]])
    others = np.array([[0, 1, 2], [1, 0, -1], [0, 1, -1], [0, 1, 3]])
    assert offpolicy.same_card(cards, others).tolist() == [True, True, False, False]


def test_ips_and_snips_by_hand() -> None:
    # Shown four times: own card twice (p = 0.5 and 0.25, clicked and not), another twice. w = 2, 4, 0, 0.
    target = np.array([[0, 1]] * 4)
    logged = np.array([[1, 0], [0, 1], [0, 2], [1, 2]])
    weights = offpolicy.card_weights(target, logged, np.array([0.5, 0.25, 0.5, 0.5]))
    clicked = np.array([1.0, 0.0, 1.0, 0.0])
    assert weights.tolist() == [2.0, 4.0, 0.0, 0.0]
    assert (weights * clicked).mean() == pytest.approx(0.5)
    told = offpolicy.support(weights, min_effective=1.0)
    assert told.effective_samples == pytest.approx(36 / 20)
    assert told.num_matched == 2
    many = np.tile(weights, 300), np.tile(clicked, 300)
    # The weights average 1.5: the propensities cannot be right, and that is said instead of a number.
    assert offpolicy.inverse_propensity(*many, Resampling(seeded())).interval is None
    assert (
        "average 1.50 instead of 1" in offpolicy.self_normalised(*many, Resampling(seeded())).support.reason
    )


@pytest.mark.parametrize("card", [0, 3])
def test_every_estimator_is_unbiased_and_covers_the_truth(card: int) -> None:
    rng, num, rounds = seeded(card), 4_000, 120
    estimates: dict[str, list[float]] = {}
    covered: dict[str, int] = {}
    refused = 0
    for _ in range(rounds):
        logged, clicked, propensity = simulated_log(rng, num)
        model = np.full(num, 0.25)  # a poor model: doubly robust must not care
        found = offpolicy.estimate_value(
            always(card, num), logged, clicked, propensity, Resampling(rng), Opinions(model, model)
        )
        for name, estimate in found.items():
            if estimate.interval is None:
                refused += 1
                continue
            estimates.setdefault(name, []).append(estimate.interval.estimate)
            inside = estimate.interval.low <= VALUE[card] <= estimate.interval.high
            covered[name] = covered.get(name, 0) + inside
    assert set(estimates) == {"ips", "snips", "dr"}
    for name, values in estimates.items():
        assert np.mean(values) == pytest.approx(VALUE[card], abs=4 * np.std(values) / np.sqrt(rounds)), name
        assert 0.87 <= covered[name] / len(values) <= 1.0, name
    assert refused <= 0.1 * 3 * rounds


def test_a_good_model_makes_doubly_robust_narrower_than_ips() -> None:
    rng, num = seeded(1), 6_000
    shown = rng.choice(len(CARDS), num, p=LOGGING)
    clicked = rng.random(num) < VALUE[shown]
    weights = offpolicy.card_weights(always(3, num), CARDS[shown], LOGGING[shown])
    reward = clicked.astype(float)
    robust = offpolicy.doubly_robust(
        weights, reward, Opinions(VALUE[shown], np.full(num, VALUE[3])), Resampling(rng)
    ).interval
    plain = offpolicy.inverse_propensity(weights, reward, Resampling(rng)).interval
    assert robust is not None
    assert plain is not None
    assert robust.high - robust.low < 0.8 * (plain.high - plain.low)


def test_a_policy_the_logs_never_showed_gets_no_number() -> None:
    logged, clicked, propensity = simulated_log(seeded(), 5_000)
    target = np.repeat(np.array([[2, 3]]), 5_000, 0)
    keep = ~offpolicy.same_card(target, logged)
    found = offpolicy.estimate_value(
        target[keep], logged[keep], clicked[keep], propensity[keep], Resampling(seeded()),
        Opinions(np.full(keep.sum(), 0.9), np.full(keep.sum(), 0.9)),
    )  # fmt: skip
    assert all(estimate.interval is None for estimate in found.values())
    assert "not enough support: 0 of" in found["dr"].support.reason


def test_half_the_support_missing_is_noticed_though_many_cards_match() -> None:
    # For half the requests the target card could never be shown: many matches, but weights average 0.5.
    rng, num = seeded(2), 20_000
    logged, clicked, propensity = simulated_log(rng, num)
    target = always(0, num)
    target[: num // 2] = [7, 8]
    found = offpolicy.estimate_value(target, logged, clicked, propensity, Resampling(rng))
    assert found["ips"].support.effective_samples > 1_000
    assert found["ips"].interval is None
    assert "average 0.5" in found["ips"].support.reason


def test_missing_propensities_are_said_and_impossible_ones_refused() -> None:
    logged, clicked, propensity = simulated_log(seeded(), 200)
    propensity = propensity.copy()
    propensity[:3] = np.nan
    found = offpolicy.estimate_value(always(0, 200), logged, clicked, propensity, Resampling(seeded()))
    assert found["snips"].as_dict()["reason"] == "no propensity recorded for 3 of 200 rows"
    propensity[7] = 1.5
    with pytest.raises(InputError, match="row 7 is 1"):
        offpolicy.card_weights(always(0, 200), logged, propensity)


def pair_inclusion() -> np.ndarray:
    inside = np.zeros((len(CARDS), 4))
    np.put_along_axis(inside, CARDS, 1.0, 1)
    return np.asarray((inside * LOGGING[:, None]).T @ inside)


@pytest.mark.parametrize("card", [0, 5])
def test_pseudo_inverse_is_exact_in_expectation_for_additive_values(card: int) -> None:
    gamma = np.repeat(pair_inclusion()[None], len(CARDS), 0)
    weights = offpolicy.pseudo_inverse_weights(always(card, len(CARDS)), CARDS, gamma)
    assert LOGGING @ weights == pytest.approx(1.0)
    assert LOGGING @ (weights * ADDITIVE) == pytest.approx(ADDITIVE[card])
    # and not for values that are not additive: the estimator must not be read as exact there
    assert abs(LOGGING @ (weights * VALUE) - VALUE[card]) > 0.01


def test_pseudo_inverse_uses_cards_that_only_share_items() -> None:
    rng, num = seeded(3), 4_000
    logged, clicked, propensity = simulated_log(rng, num, ADDITIVE)
    gamma = np.repeat(pair_inclusion()[None], num, 0)
    weights = offpolicy.pseudo_inverse_weights(always(5, num), logged, gamma)
    found = offpolicy.self_normalised(weights, clicked.astype(float), Resampling(rng), "pi")
    card_level = offpolicy.support(offpolicy.card_weights(always(5, num), logged, propensity))
    assert found.interval is not None
    assert found.interval.low <= ADDITIVE[5] <= found.interval.high
    assert found.support.effective_samples > 1.5 * card_level.effective_samples
