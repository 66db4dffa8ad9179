"""Our own trainings of the paper, each under the rivals' contract: settings in, ways to pick cards out.

Knows presets and overrides; epochs are the budget's, the seed too. Each name is what a job resolves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from exactk.evaluation.metrics import card_figures
from exactk.learning import phases
from exactk.learning.phases import compiled_decoder, compiled_search
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.rivals.contract import Budget, CardPicker, Logs, TrainedMethod
from exactk.rivals.selection import Exact
from exactk.settings.config import Config
from exactk.settings.presets import ABLATIONS, preset
from exactk.tensors import TensorBatch
from exactk_lab.reproduce.bayes import Blended, Probit
from exactk_lab.reproduce.factors import Factored
from exactk_lab.reproduce.graded import Graded

BEAMS = (1, 2, 3, 4, 6, 8, 12)


@dataclass(frozen=True)
class FirstStep:
    """The scores before the first choice, as weights of single items: what a policy knows before it has chosen."""

    policy: Policy

    @torch.no_grad()
    def __call__(self, batch: TensorBatch) -> Tensor:
        """[B, N]."""
        steps = self.policy.steps(batch)
        return steps.step(steps.start(1)).squeeze(1).double().sigmoid()


@dataclass(frozen=True)
class TrainingChoice:
    """A training: a preset, what is changed of it, and whether other beams are judged on the same weights."""

    preset: str
    overrides: tuple[str, ...] = ()
    beams: bool = False

    def config(self, budget: Budget) -> Config:
        """The settings of one run; never more epochs than the budget's."""
        config = preset(self.preset).with_overrides(self.overrides)
        short = {
            f"{name}.epochs={min(getattr(config, name).epochs, budget.epochs)}"
            for name in ("reward", "pair_value", "training")
        }
        return config.with_overrides([*sorted(short), f"training.seed={budget.seed}", "training.device=cpu"])

    def __call__(self, train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
        """Train, and offer the decoding of the settings first, other beams and the first step's top K after it."""
        config = self.config(budget)
        trained = phases.train(config, train.view, valid.view, train.vocabulary, card_figures, phases.Run())
        chosen = {"settings": [self.preset, *self.overrides], "curve": curve(trained)}
        policy = trained.models.policy
        if policy is None:
            assert isinstance(trained.models.value, PairValue)
            return TrainedMethod({"exact": compiled_search(trained.models.value)}, chosen)
        ways: dict[str, CardPicker] = {"as set": compiled_decoder(policy)}
        if self.beams:
            for width in BEAMS:
                ways[f"beam {width}"] = compiled_decoder(policy).with_beam(width)
            ways["first step"] = Exact(FirstStep(policy))
        return TrainedMethod(ways, chosen)


def curve(trained: phases.Trained) -> list[dict[str, Any]]:
    """Validation figures of the policy epoch by epoch; of the value, where there is no policy."""
    task = "policy" if trained.models.policy is not None else "value"
    names = ("precision", "hit_ratio", "reward", "log_loss")
    return [
        {"epoch": event["epoch"], **{name: event[name] for name in names if name in event}}
        for event in trained.history
        if event.get("task") == task and event.get("event") == "valid"
    ]


_ROWS = tuple(ABLATIONS.values())
ablation_1 = TrainingChoice("paper", _ROWS[0])
ablation_2 = TrainingChoice("paper", _ROWS[1])
ablation_3 = TrainingChoice("paper", _ROWS[2])
ablation_4 = TrainingChoice("paper", _ROWS[3])
ablation_5 = TrainingChoice("paper", _ROWS[4])
ablation_6 = TrainingChoice("paper", _ROWS[5])
paper = TrainingChoice("paper", _ROWS[6], beams=True)  # row 7, the main table's own row
alpha_025 = TrainingChoice("paper", ("training.alpha=0.25",))
alpha_075 = TrainingChoice("paper", ("training.alpha=0.75",))
alpha_09 = TrainingChoice("paper", ("training.alpha=0.9",))

_CLICKED = ("training.alpha=1", "training.target=clicked")
own_clicked = TrainingChoice("paper", _CLICKED)
own_loo = TrainingChoice(
    "paper",
    (
        "training.target=clicked", "training.samples=8", "training.hill_climbing=false",
        "training.baseline=leave_one_out", "reward.kind=set",
    ),
)  # fmt: skip
own_adversarial = TrainingChoice("paper", ("training.adversarial=true",))
own_group = TrainingChoice(
    "paper",
    (
        "reward.kind=pair", "pair_value.members=1", "pair_value.choice=1", "training.group=16",
        "training.hill_climbing=false",
    ),
)  # fmt: skip
own_affinity_16 = TrainingChoice("paper", (*_CLICKED, "policy.affinity=16", "training.learning_rate=0.003"))
_LIKINGS = ("policy.memory=0", "policy.affinity=128", "policy.affinity_pace=20", "training.weight_decay=2")
own_affinity_128 = TrainingChoice(
    "best-ids", (*_LIKINGS, "training.smoothing=0", "training.policy_sampling=true")
)
own_smoothed = TrainingChoice("best-ids", _LIKINGS)
best_ids = TrainingChoice("best-ids", beams=True)
guided = TrainingChoice("guided")
pair_value = TrainingChoice("best", ("model=pair_value",))

# Graded ratings of the train side, chosen by five-fold cross-validation within them.
mf_graded = Graded()
best_graded = Blended(
    Graded({2.0: 0.5, 3.0: 1.0, 4.0: 1.0, 5.0: 1.0}, rank=16, shrink=14.0, shrink_tastes=20.0), Probit()
)

# Likings alone: the best of eighteen settings by cross-validation within train (ours had twelve), and the best of two
# with the smoothing of our own; then what `best-ids` remembers without its network, the best of four.
mf_tuned = Factored(rank=128, learning_rate=0.04, weight_decay=0.03)
own_likings = Factored(rank=128, learning_rate=0.01, weight_decay=0.1, smoothing=0.3)
own_memory = Factored(rank=0, learning_rate=0.01, weight_decay=0.1, smoothing=0.3, memory=15.0)
