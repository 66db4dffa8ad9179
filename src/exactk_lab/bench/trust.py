"""Off-policy estimates beside the truth they estimate: many logs of a world, drawn over and over.

Knows the world's truth and its logging policy, so that bias, coverage and refusals can be counted; no model.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from exactk.data.world import World
from exactk.data.world.log import set_propensity
from exactk.data.world.recipe import WorldConfig
from exactk.evaluation import offpolicy
from exactk_lab.bench.report import Goal, Report

SHARPNESS = 1.5  # of the logging policy, as in the worlds' own logs
NOISE = 0.7  # of scores that are not quite the truth, in log-odds


@dataclass(frozen=True)
class Feed:
    """B requests with every card they could be shown: C cards, how likely each is logged, and its true value."""

    cards: Int64[np.ndarray, "C K"]
    shown: Float64[np.ndarray, "B C"]  # propensity; 0 for a card that is not valid
    value: Float64[np.ndarray, "B C"]
    rough: Float64[np.ndarray, "B C"]  # a value model that is not quite right, for doubly robust estimates
    together: Float64[np.ndarray, "B N N"]  # probability that both items are shown

    @classmethod
    def of(cls, config: WorldConfig, seed: int) -> Feed:
        """Requests of a world so small that all cards can be listed."""
        rng = np.random.default_rng(seed)
        with tempfile.TemporaryDirectory() as folder:
            world = World(config)
            asked = world.asked(world.write(Path(folder) / "world", workers=1))
        B = len(asked.users)
        cards = np.array(list(itertools.combinations(range(config.n), config.k)))
        node, _ = world.node_pair(asked.users, asked.items)
        scores = SHARPNESS * (node + rng.normal(0, NOISE, node.shape))
        shown, value = np.zeros((B, len(cards))), np.empty((B, len(cards)))
        for c, card in enumerate(cards):
            first, second = np.triu_indices(config.k, 1)
            valid = asked.requests.graph[:, card[first], card[second]].all(1)
            each = np.broadcast_to(card, (B, config.k)).copy()
            shown[:, c] = np.where(valid, set_propensity(scores, asked.requests.graph, each), 0.0)
            value[:, c] = world.value(asked.users, asked.items[:, card])
        inside = np.zeros((len(cards), config.n))
        np.put_along_axis(inside, cards, 1.0, 1)
        together = np.einsum("bc,ci,cj->bij", shown, inside, inside)
        logits = np.log(value / (1 - value)) * 0.7 + rng.normal(0, 0.3, value.shape)
        return cls(cards, shown, value, 1 / (1 + np.exp(-logits)), together)

    def policies(self, rng: np.random.Generator) -> dict[str, Int64[np.ndarray, "B"]]:
        """Cards worth asking about: production's favourite, a good model's, the true best, anything valid."""
        possible = self.shown > 0
        noisy = np.log(self.value) + rng.normal(0, NOISE, self.value.shape)
        return {
            "production's likeliest card": self.shown.argmax(1),
            "a learned ranker's card": np.where(possible, noisy, -np.inf).argmax(1),
            "the true best card": np.where(possible, self.value, -np.inf).argmax(1),
            "a random valid card": np.where(possible, rng.random(self.value.shape), -np.inf).argmax(1),
        }

    def estimates(
        self, target: Int64[np.ndarray, "B"], rng: np.random.Generator, check: bool = True
    ) -> Mapping[str, offpolicy.Estimate]:
        """One simulated log, and every estimate of always showing `target`; those it allows, if they are checked."""
        rows = np.arange(len(target))
        ladder = self.shown.cumsum(1)
        logged = (ladder < rng.random((len(rows), 1)) * ladder[:, -1:]).sum(1)
        clicked = rng.random(len(rows)) < self.value[rows, logged]
        aim, seen = self.cards[target], self.cards[logged]
        propensity = self.shown[rows, logged]
        opinions = offpolicy.Opinions(self.rough[rows, logged], self.rough[rows, target])
        by = offpolicy.Resampling(rng, check=check)
        found = dict(offpolicy.estimate_value(aim, seen, clicked, propensity, by, opinions))
        weights = offpolicy.pseudo_inverse_weights(aim, seen, self.together)
        found["pi"] = offpolicy.self_normalised(weights, clicked.astype(np.float64), by, "pi")
        return found


def offpolicy_check(
    requests: int = 3_000, rounds: int = 40, n: int = 8, k: int = 2, strength: float = 1.0, seed: int = 0
) -> list[dict[str, Any]]:
    """For each policy and estimator: true value, bias, error, how often the 95% interval holds the truth.

    `refused` is the share of simulated logs for which the support check gives no number; bias and coverage are over the
    others, and in `unchecked` over all of them: what believing every number would have brought. PI assumes that items
    add up: at `strength` 0 it should be unbiased on the odds it can see, with interactions its bias is the price of
    its reach.
    """
    config = WorldConfig(
        users=max(50, requests // 4),
        items=max(2 * n, 400),
        impressions=requests,
        k=k,
        n=n,
        strength=strength,
        seed=seed,
    )
    feed, rng = Feed.of(config, seed), np.random.default_rng([seed, 1])
    rows = []
    for policy, target in feed.policies(rng).items():
        truth = float(feed.value[np.arange(len(target)), target].mean())
        logs = [feed.estimates(target, rng, check=False) for _ in range(rounds)]
        rows += [
            {"policy": policy, **_summary(estimator, [log[estimator] for log in logs], truth)}
            for estimator in logs[0]
        ]
    return rows


def _summary(estimator: str, estimates: list[offpolicy.Estimate], truth: float) -> dict[str, Any]:
    answered = [estimate for estimate in estimates if estimate.support.enough]
    errors = _errors(answered, truth)
    return {
        "estimator": estimator,
        "true_value": truth,
        "mean_estimate": None if errors["bias"] is None else truth + errors["bias"],
        **errors,
        "refused": 1 - len(answered) / len(estimates),
        "effective_samples": float(np.mean([estimate.support.effective_samples for estimate in estimates])),
        "rounds": len(estimates),
        "unchecked": _errors(estimates, truth),
    }


def _errors(estimates: list[offpolicy.Estimate], truth: float) -> dict[str, float | None]:
    """Bias, error and coverage; an estimate that is no number (no card matched) covers nothing."""
    intervals = [estimate.interval for estimate in estimates if estimate.interval is not None]
    errors = np.array(
        [interval.estimate - truth for interval in intervals if not np.isnan(interval.estimate)]
    )
    inside = [bool(interval.low <= truth <= interval.high) for interval in intervals]
    return {
        "bias": float(errors.mean()) if len(errors) else None,
        "root_mean_square_error": float(np.sqrt((errors**2).mean())) if len(errors) else None,
        "coverage": float(np.mean(inside)) if intervals else None,
    }


# name -> settings of `offpolicy_check`: a short and a long log, one without interactions, one with larger cards.
CASES: dict[str, dict[str, Any]] = {
    "K=2 of N=8, 4,000 requests": {"requests": 4_000, "rounds": 60},
    "K=2 of N=8, 20,000 requests": {"requests": 20_000, "rounds": 40},
    "K=2 of N=8, 4,000 requests, items add up": {"requests": 4_000, "rounds": 60, "strength": 0.0},
    "K=4 of N=14, 4,000 requests": {"requests": 4_000, "rounds": 20, "n": 14, "k": 4},
}
QUICK: dict[str, dict[str, Any]] = {"K=2 of N=8, 1,500 requests": {"requests": 1_500, "rounds": 12}}
SHOWN = ("ips", "snips", "dr")  # the estimators a comparison shows
FEWEST = 20  # answers, before a share of them says anything
COVERED = 0.9  # of intervals that promise 95%


def run(quick: bool = False) -> Report:
    """A row per log, policy and estimator; goals on the estimators a comparison shows, where they answered."""
    rows = [
        {"case": case, **row}
        for case, settings in (QUICK if quick else CASES).items()
        for row in offpolicy_check(**settings)
    ]
    answered = [row for row in rows if row["estimator"] in SHOWN and answers(row) >= (1 if quick else FEWEST)]
    covered = min((row["coverage"] for row in answered), default=float("nan"))
    biased = max((abs(row["bias"]) / row["true_value"] for row in answered), default=float("nan"))
    goals = [
        Goal(
            "least share of 95% intervals that hold the truth, where the check answers",
            covered,
            COVERED,
            "least",
        ),
        Goal("largest bias over the true value, where the check answers", biased, 0.05, "most"),
    ]
    return Report("bench-trust", rows, goals, seeds=[0], quick=quick)


def answers(row: dict[str, Any]) -> int:
    """The number of logs for which an estimate was given."""
    return round((1 - float(row["refused"])) * int(row["rounds"]))
