"""Our own methods under the rivals' contract: GAttN trained with RLfD, and values of cards searched exactly.

Knows the presets; trials and epochs are the budget's, as for everyone else.
"""

from __future__ import annotations

import math
from typing import Any

from exactk.engine.decide import Decider, decider_of
from exactk.evaluation.metrics import card_figures
from exactk.learning import phases
from exactk.learning.phases import compiled_decoder, compiled_search
from exactk.models.pairvalue import PairValue
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod, tuned
from exactk.rivals.training import settings_for
from exactk.settings.config import CardValueConfig, Config, PairValueConfig, RewardConfig
from exactk.settings.presets import preset

OURS: dict[str, str] = {
    "gattn": "exactk.evaluation.ours:fit_gattn",
    "pair-value": "exactk.evaluation.ours:fit_pair_value",
    "card-value": "exactk.evaluation.ours:fit_card_value",
    "gattn-adversarial": "exactk.evaluation.ours:fit_adversarial",
    "gattn-group": "exactk.evaluation.ours:fit_group",
}
VARIANTS = ("gattn-adversarial", "gattn-group")  # other lessons for the same policy: left out of a quick look
RATES = (1.0, 3.0)  # times the preset's own learning rate


def fit_pair_value(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """A learned value of items and pairs, maximised by the clique engine; tuned by its log loss on validation."""
    trained, chosen, score = tuned_value(train, valid, budget)
    assert isinstance(trained.models.value, PairValue)
    return TrainedMethod({"pair value + exact": compiled_search(trained.models.value, 1)}, chosen, score)


def fit_card_value(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """GAttN with an exact decoder, from all columns and signals of the log; tuned by its loss on validation.

    Where ids and features of cards are all there is, it is the pair value.
    """

    def attempt(setting: Setting) -> tuple[Decider, float]:
        config = configured(setting, budget, "best")
        trained = learned(config, train, valid)
        weights, card_size = trained.models.weights, int(train.view.meta.K or 1)
        return decider_of(config, weights, trained.sizes, card_size, threads=1), -least(trained, "loss")

    paces: list[Setting] = [{"inputs": "auto", "times_learning_rate": rate} for rate in RATES]
    decider, chosen, score = tuned(paces, budget, attempt)
    return TrainedMethod({"card value + exact": decider}, chosen, score)


def fit_gattn(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """GAttN at the paper's width, guided by its value; the value's settings are tuned first, the policy trained once.

    Where there are ids alone, or no card that was not clicked, demonstrations are all there is: preset `best-ids`.
    """
    if not train.sizes.item_feature_size or train.view.clicked.all():
        return fit_by_ids(train, valid, budget)
    chosen = tuned_value(train, valid, budget)[1] if budget.trials > 1 else settings(train)[0]
    trained = learned(configured(chosen, budget, "guided"), train, valid)
    return _written_by(trained, {**chosen, "preset": "guided"})


def fit_adversarial(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """GAttN against a discriminator that tells logged clicked cards from its own."""
    return _fit_lesson(train, valid, budget, "GAttN + adversarial RLfD", ["training.adversarial=true"])


def fit_group(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """GAttN shown the best cards of its value and its own samples, each in proportion to how good it is there."""
    overrides = ["reward.kind=pair", "training.group=16", "training.hill_climbing=false"]
    return _fit_lesson(train, valid, budget, "GAttN + group targets", overrides)


def _fit_lesson(train: Logs, valid: Logs, budget: Budget, way: str, overrides: list[str]) -> TrainedMethod:
    """One lesson changed: of the guided policy, or of the paper's where there are ids alone."""
    name = "guided" if train.sizes.item_feature_size else "paper"
    chosen = settings(train)[0]
    trained = learned(configured(chosen, budget, name).with_overrides(overrides), train, valid)
    return _written_by(trained, {**chosen, "preset": name, "settings": overrides}, way=way)


def fit_by_ids(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """GAttN that remembers what each user passed over, or not: validation knows whether pairs come again.

    By features alone nobody is known again, and there is nothing to decide.
    """
    chosen = settings(train)[0]
    memories = (0.0,) if chosen["inputs"] == "features" else (preset("best-ids").policy.memory, 0.0)
    named = train.view.signal.named_clicks
    target, figure = ("clicked", "precision") if named else ("card", "hit_ratio")
    remembering = [{**chosen, "preset": "best-ids", "memory": memory} for memory in memories]

    def attempt(setting: Setting) -> tuple[phases.Trained, float]:
        overrides = [f"policy.memory={setting['memory']}", f"training.target={target}"]
        trained = learned(configured(setting, budget, "best-ids").with_overrides(overrides), train, valid)
        found = [f[figure] for f in trained.history if f["task"] == "policy" and f["event"] == "valid"]
        return trained, max(found, default=math.nan)

    trained, setting, score = tuned(remembering, budget, attempt)
    return _written_by(trained, setting, score)


def _written_by(
    trained: phases.Trained, chosen: Setting, score: float = math.nan, way: str = "GAttN + RLfD"
) -> TrainedMethod:
    assert trained.models.policy is not None
    return TrainedMethod({way: compiled_decoder(trained.models.policy, 1)}, chosen, score)


def tuned_value(train: Logs, valid: Logs, budget: Budget) -> tuple[phases.Trained, Setting, float]:
    """The pair value with the lowest validation log loss."""

    def attempt(setting: Setting) -> tuple[phases.Trained, float]:
        trained = learned(configured(setting, budget), train, valid)
        return trained, -least(trained, "log_loss")

    return tuned(settings(train), budget, attempt)


def learned(config: Config, train: Logs, valid: Logs) -> phases.Trained:
    """Trained as `Recommender.fit` would."""
    return phases.train(config, train.view, valid.view, train.vocabulary, card_figures, phases.Run())


def least(trained: phases.Trained, name: str) -> float:
    """The lowest of a figure that validation saw; NaN without any."""
    return min((f[name] for f in trained.history if f["event"] == "valid"), default=math.nan)


def settings(train: Logs) -> list[Setting]:
    """The preset as it is first, then other inputs and a faster rate."""
    return [
        {"inputs": setting["inputs"], "times_learning_rate": setting["learning_rate"]}
        for setting in settings_for(train.sizes, RATES)
    ]


def configured(setting: Setting, budget: Budget, name: str = "pair-value") -> Config:
    """A preset with this setting's inputs and learning rate; its epochs, but never more than the budget's."""
    best = preset(name)
    kind, rate = setting["inputs"], setting["times_learning_rate"]

    def pace(own: RewardConfig | PairValueConfig | CardValueConfig) -> dict[str, Any]:
        return {"epochs": min(own.epochs, budget.epochs), "learning_rate": rate * own.learning_rate}

    training = {"epochs": min(best.training.epochs, budget.epochs), "seed": budget.seed, "device": "cpu"}
    changed = {
        "policy": {"inputs": kind},
        "reward": {"inputs": kind, **pace(best.reward)},
        "pair_value": {"inputs": kind, **pace(best.pair_value)},
        "card_value": pace(best.card_value),
        "training": training,
    }
    return Config.from_dict(changed, base=best)
