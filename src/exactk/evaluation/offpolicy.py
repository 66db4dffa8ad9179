"""What a card policy would have earned, estimated from the logs of another policy that say how likely each card was.

Knows no model and no file. Where the logs cannot tell, it says "not enough support" and gives no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.errors import InputError
from exactk.evaluation.significance import Interval, bootstrap_interval
from exactk.rivals.contract import marked

# Both limits are set by `trust.offpolicy_check`: with laxer ones, logs that happen to lack their rare heavy weights
# pass, and their estimates are biased low (100 samples, no limit on the mean: IPS covered the truth in 70% of logs).
MIN_EFFECTIVE = 200.0
WEIGHT_TOLERANCE = 0.1  # by which the mean weight may miss 1


@dataclass(frozen=True)
class Support:
    """How much the logs say about the target policy; `reason` is empty when they say enough."""

    num_logged: int
    num_matched: int
    effective_samples: float
    mean_weight: float
    reason: str

    @property
    def enough(self) -> bool:
        """Whether an estimate may be shown at all."""
        return not self.reason


@dataclass(frozen=True)
class Estimate:
    """One estimator's answer: an interval, or None with the reason why there is none."""

    estimator: str
    interval: Interval | None
    support: Support

    def as_dict(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "estimator": self.estimator,
            "interval": self.interval._asdict() if self.interval else None,
            "effective_samples": self.support.effective_samples,
            "matched": self.support.num_matched,
            "logged": self.support.num_logged,
            "mean_weight": None if np.isnan(self.support.mean_weight) else self.support.mean_weight,
            "reason": self.support.reason or None,
        }


def same_card(cards: Int[np.ndarray, "B K"], others: Int[np.ndarray, "B L"]) -> Bool[np.ndarray, "B"]:
    """Equal as sets, whatever the order and the padding (-1)."""
    size, other_size = (cards >= 0).sum(1), (others >= 0).sum(1)
    shared = ((cards[:, :, None] == others[:, None, :]) & (cards[:, :, None] >= 0)).any(2).sum(1)
    return np.asarray((size == other_size) & (shared == size))


def card_weights(
    target: Int[np.ndarray, "B K"], logged: Int[np.ndarray, "B L"], propensity: Float[np.ndarray, "B"]
) -> Float[np.ndarray, "B"]:
    """Importance weights of a policy that shows `target`: 1 / propensity where that was logged, else 0."""
    bad = np.flatnonzero(~np.isnan(propensity) & ~((propensity > 0) & (propensity <= 1)))
    if len(bad):
        raise InputError(
            f"propensity of logged row {bad[0]} is {propensity[bad[0]]:g}; "
            "it is the probability with which the card was shown, above 0 and at most 1"
        )
    return np.asarray(same_card(target, logged) / propensity)


def support(weights: Float[np.ndarray, "B"], min_effective: float = MIN_EFFECTIVE) -> Support:
    """Effective sample size (sum w)^2 / sum w^2, the mean weight, and whether they allow an estimate.

    Under a logging policy that could have shown every target card the weights average 1. A mean far below
    means that many target cards could never have been logged; far above, that the propensities are too small.
    Negative weights (PI) count by their size.
    """
    if np.isnan(weights).any():
        missing = int(np.isnan(weights).sum())
        return Support(
            len(weights), 0, 0.0, np.nan, f"no propensity recorded for {missing} of {len(weights)} rows"
        )
    matched = int((weights != 0).sum())
    squares = float((weights**2).sum())
    effective = float(np.abs(weights).sum() ** 2 / squares) if squares > 0 else 0.0
    average = float(weights.mean()) if len(weights) else 0.0
    reason = ""
    if effective < min_effective:
        reason = (
            f"not enough support: {matched} of {len(weights)} logged cards are the policy's own, "
            f"worth {effective:.0f} samples; {min_effective:.0f} are needed"
        )
    elif abs(average - 1) > WEIGHT_TOLERANCE:
        reason = (
            f"not enough support: the weights average {average:.2f} instead of 1; the logging policy could "
            "not have shown every card of this one, or its propensities are wrong"
        )
    return Support(len(weights), matched, effective, average, reason)


class Resampling(NamedTuple):
    """How intervals are made: by chance, from whole groups (the requests of a user, say), of rows that give support.

    Without `check` numbers are given where there is no support, too: to learn what they would be worth.
    """

    rng: np.random.Generator
    groups: Int[np.ndarray, "B"] | None = None
    check: bool = True

    def estimate(
        self, name: str, terms: Float[np.ndarray, "B"], over: Float[np.ndarray, "B"], weights: np.ndarray
    ) -> Estimate:
        """The mean of terms, or their sum over that of `over`, where these importance weights give support."""
        found = support(weights)
        shown = found.enough or not self.check
        interval = bootstrap_interval(terms, self.rng, over=over, groups=self.groups) if shown else None
        return Estimate(name, interval, found)


def inverse_propensity(
    weights: Float[np.ndarray, "B"], clicked: Float[np.ndarray, "B"], by: Resampling
) -> Estimate:
    """IPS: mean of w r. Unbiased under full support."""
    return by.estimate("ips", weights * clicked, np.ones(len(weights)), weights)


def self_normalised(
    weights: Float[np.ndarray, "B"], clicked: Float[np.ndarray, "B"], by: Resampling, name: str = "snips"
) -> Estimate:
    """SNIPS: sum of w r over sum of w. Slightly biased, far less noisy, never outside [0, 1].

    With `pseudo_inverse_weights` it is wPI.
    """
    return by.estimate(name, weights * clicked, weights, weights)


class Opinions(NamedTuple):
    """What a value model says of the logged cards, and of those the policy would show."""

    logged: Float[np.ndarray, "B"]
    target: Float[np.ndarray, "B"]


def doubly_robust(
    weights: Float[np.ndarray, "B"], clicked: Float[np.ndarray, "B"], opinions: Opinions, by: Resampling
) -> Estimate:
    """DR: mean of q(target) + w (r - q(logged)). Unbiased if the propensities or the model q are right.

    Without support it is only the model's opinion of itself, so the same check refuses it.
    """
    terms = opinions.target + weights * (clicked - opinions.logged)
    return by.estimate("dr", terms, np.ones(len(weights)), weights)


def pseudo_inverse_weights(
    target: Int[np.ndarray, "B K"], logged: Int[np.ndarray, "B L"], pair_inclusion: Float[np.ndarray, "B N N"]
) -> Float[np.ndarray, "B"]:
    """Weights of the PI estimator (Swaminathan et al. 2017) for cards as sets: 1_target' G+ 1_logged.

    `pair_inclusion[b, i, j]` is the probability that the logging policy shows both i and j (i = j: shows i).
    Unbiased when the value of a card is a sum over its items, however few whole cards match; with
    interactions it estimates the best additive account of them, which is why it is always named apart.
    """
    N = pair_inclusion.shape[1]
    aim, shown = marked(target, N), marked(logged, N)
    inverse = np.linalg.pinv(pair_inclusion, hermitian=True)
    return np.asarray(np.einsum("bi,bij,bj->b", aim, inverse, shown))


def estimate_value(
    target: Int[np.ndarray, "B K"],
    logged: Int[np.ndarray, "B L"],
    clicked: Bool[np.ndarray, "B"],
    propensity: Float[np.ndarray, "B"],
    by: Resampling,
    opinions: Opinions | None = None,
) -> Mapping[str, Estimate]:
    """Every card-level estimate of a deterministic policy's value that the logs allow, by estimator name."""
    weights = card_weights(target, logged, propensity)
    reward = clicked.astype(np.float64)
    estimates = [inverse_propensity(weights, reward, by), self_normalised(weights, reward, by)]
    if opinions is not None:
        estimates.append(doubly_robust(weights, reward, opinions, by))
    return {estimate.estimator: estimate for estimate in estimates}


def stacked(cards: list[Int[np.ndarray, "_ _"]]) -> Int[np.ndarray, "R K"]:
    """Cards of all batches, padded (-1) to the longest."""
    longest = max(part.shape[1] for part in cards)
    return np.concatenate(
        [np.pad(part, ((0, 0), (0, longest - part.shape[1])), constant_values=-1) for part in cards]
    )
