"""From settings and logs to trained models: phase 1 (value of cards), calibration, phase 2 (policy).

Knows the order of things only; what a phase learns is in `tasks.py`, how it runs in `fit.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from exactk.atomic import write_text
from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset
from exactk.engine.card_values import LearnedPairs
from exactk.engine.decide import Calibration, ExactDecider, ModelWeights
from exactk.engine.decode import CompiledDecoder
from exactk.errors import ConfigError, DataError
from exactk.learning import calibrate, card_task
from exactk.learning.fit import fit
from exactk.learning.optimiser import fit_settings, with_sparse_gradients
from exactk.learning.process import current_ranks
from exactk.learning.progress import Figures, Listener
from exactk.learning.tasks import Data, Measure, policy_task, predictions, start_kinds, value_task
from exactk.model_folder import TrainedModel
from exactk.models.card_value import CardValue
from exactk.models.pairvalue import Ensemble, PairValue, SearchableValue
from exactk.models.policy import Policy
from exactk.models.reward import Reward, reward_of
from exactk.settings.config import CardValueConfig, Config, InputSizes, PairValueConfig, RewardConfig
from exactk.tensors import arrays_of


@dataclass(frozen=True)
class Models:
    """What a recommender may hold: a policy, a value of cards, or both; without a policy, one that can be searched.

    `model = "card_value"` comes to a pair value where ids and features of cards are all there is.
    """

    policy: Policy | None
    value: Reward | PairValue | CardValue | None

    @classmethod
    def untrained(cls, config: Config, sizes: InputSizes, card_size: int, with_value: bool = True) -> Models:
        """Starting weights from the seed alone: a phase starts alike whether or not another ran before it."""
        seed = config.training.seed
        if config.model == "card_value" and sizes.columns:
            value = CardValue(config.card_value, config.pair_value, sizes, Generator().manual_seed(seed))
            return cls(None, value)
        if config.model != "policy":
            return cls(None, PairValue(config.pair_value, sizes, Generator().manual_seed(seed)))
        reward = reward_of(config, sizes, card_size, Generator().manual_seed(seed)) if with_value else None
        guide = reward if config.policy.guided and isinstance(reward, PairValue) else None
        return cls(Policy(config.policy, sizes, Generator().manual_seed(seed + 1), guide), reward)

    @classmethod
    def of(cls, fitted: TrainedModel) -> Models:
        """The networks of a saved model, for whoever must look inside or go on learning."""
        with_value = fitted.weights.value is not None
        models = cls.untrained(fitted.config, fitted.sizes, fitted.card_size, with_value)
        for module, weights in ((models.policy, fitted.weights.policy), (models.value, fitted.weights.value)):
            if module is not None and weights is not None:
                module.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
                module.eval()
        return models

    @property
    def weights(self) -> ModelWeights:
        """What they learned, as arrays: the very same memory on the CPU."""
        return ModelWeights(*(None if m is None else arrays_of(m) for m in (self.policy, self.value)))

    def to(self, device: torch.device) -> Models:
        """The same models, moved."""
        for module in (self.policy, self.value):
            if module is not None:
                module.to(device)
        return self


def compiled_decoder(policy: Policy, threads: int | None = None) -> CompiledDecoder:
    """The engine's decoder for a network as it is now."""
    guide = PairValueConfig() if policy.guide is None else policy.guide.value.config
    return CompiledDecoder(arrays_of(policy), policy.config, policy.sizes, guide, threads)


def compiled_search(model: PairValue, cores: int | None = None) -> ExactDecider:
    """The engine's exact search for a pair value as it is now."""
    config = Config(model="pair_value", pair_value=model.config)
    return ExactDecider(LearnedPairs(arrays_of(model), config, model.sizes), cores)


@dataclass(frozen=True)
class Trained:
    """The models, how to read the value's logits as probabilities, and what was reported on the way."""

    models: Models
    calibration: Calibration
    history: tuple[Figures, ...]
    sizes: InputSizes


@dataclass(frozen=True)
class Run:
    """Where a training keeps its checkpoints (nowhere without a folder), and who listens."""

    folder: Path | None = None
    resume: bool = False
    listeners: Sequence[Listener] = ()


def train(
    config: Config, train: Dataset, valid: Dataset | None, vocabulary: Vocabulary, measure: Measure, run: Run
) -> Trained:
    """Algorithm 2: optimise the reward, then the policy under it. Validation data decides, where there are any."""
    device = chosen_device(config)
    same_run(config, train, valid, run)
    sizes = input_sizes(vocabulary, train, valid) if config.model == "card_value" else input_sizes(vocabulary)
    with_value = needs_value(config, train)
    phase_1 = Data(train, valid, vocabulary, device, config.training.seed)
    if config.model == "card_value" and config.pair_value.inputs == "auto":
        sizes = replace(sizes, ids_tell_more=ids_tell_more(config, sizes, phase_1))
    models = Models.untrained(config, sizes, int(train.meta.K or 1), with_value).to(device)
    if config.vocabulary.sparse:
        with_sparse_gradients(models.policy, models.value)
    history: list[Figures] = []
    calibration = Calibration()
    if models.value is not None:
        history += learn_value(config, models.value, phase_1, run)
        if isinstance(models.value, SearchableValue):
            history += shrink_pairs(models.value, phase_1)
        calibration, figures = calibrated(models.value, phase_1)
        history += figures
    if models.policy is not None:
        only_clicked = config.training.requests == "clicked"
        phase_2 = replace(
            phase_1,
            train=for_policy(train, vocabulary, only_clicked),
            valid=None if valid is None else for_policy(valid, vocabulary, only_clicked),
        )
        if models.policy.guide is not None:
            models.policy.guide.freeze()
        task = policy_task(models.policy, models.value, phase_2, config, measure)
        settings = fit_settings(config.training, config.training, device.type)
        history += fit(task, settings, run.folder, run.resume, run.listeners)
    return Trained(models, calibration, tuple(history), sizes)


TRIAL_EPOCHS = 6


def ids_tell_more(config: Config, sizes: InputSizes, data: Data) -> bool:
    """Whether ids beside features lower the loss on validation: one member of each kind is trained for a while.

    Where a catalogue's features say what its items are, ids are learned by heart; of films, genres say little and the
    title nearly all. Which it is, a log does not tell beforehand.
    """
    if sizes.columns or not (
        sizes.featured and sizes.items_recur and data.valid is not None and len(data.valid)
    ):
        return False
    pair_value = replace(config.pair_value, members=1, epochs=min(TRIAL_EPOCHS, config.pair_value.epochs))
    trial, losses = replace(config, pair_value=pair_value), list[float]()
    for ids_too in (False, True):
        value = Models.untrained(trial, replace(sizes, ids_tell_more=ids_too), 1).to(data.device).value
        assert isinstance(value, PairValue)
        figures = learn_value(trial, value, data, Run())
        losses.append(min(f["loss"] for f in figures if f["event"] == "valid"))
    return losses[1] < losses[0]


def learn_value(config: Config, value: Reward | PairValue | CardValue, data: Data, run: Run) -> list[Figures]:
    """Phase 1: from cards that were and were not clicked; a card value from whatever signal the log has."""
    precision, choice = config.training.precision, config.pair_value.choice
    section: RewardConfig | PairValueConfig | CardValueConfig
    if isinstance(value, CardValue):
        shown = value.sizes.shown
        data = replace(
            data,
            train=card_task.with_signal(data.train, shown),
            valid=None if data.valid is None else card_task.with_signal(data.valid, shown),
        )
        card_task.fit_scales(value, data)
        # Lists and sessions are few and rich, cards clicked or not many and poor.
        section = config.pair_value if shown == "card" else config.card_value
        batch_size = card_task.batch_size_for(section, len(data.train))
        task = card_task.card_value_task(value, data, batch_size, precision, choice)
    elif isinstance(value, PairValue):
        section = config.pair_value
        task = value_task(value, data, section.batch_size, precision, choice)
    else:
        section = config.reward
        task = value_task(value, data, section.batch_size, precision)
    value.start_at(float(data.train.clicked.mean()))
    start_kinds(value, data)
    settings = fit_settings(section, config.training, data.device.type)
    return fit(task, settings, run.folder, run.resume, run.listeners)


@torch.no_grad()
def shrink_pairs(value: SearchableValue, data: Data) -> list[Figures]:
    """Keep of learned pairs the share that validation bears out, where cards were clicked or not."""
    shown = value.sizes.shown if isinstance(value, CardValue) else "card"
    weights = value.pair_weights()
    if data.valid is None or not len(data.valid) or shown != "card" or not weights:
        return []
    logits, clicked = predictions(value, data.valid_batches())
    learned = [part.clone() for part in weights]
    for part in weights:
        part.zero_()
    rest, _ = predictions(value, data.valid_batches())
    share = calibrate.fitted_pair_share(rest, logits - rest, clicked)
    for part, full in zip(weights, learned, strict=True):
        part.copy_(share * full)
    return [{"task": "value", "event": "pairs", "step": 0, "epoch": 0, "share": share}]


def calibrated(value: Ensemble, data: Data) -> tuple[Calibration, list[Figures]]:
    """How logits become probabilities, by validation; of chosen cards alone, or rewards alone, nothing can be said."""
    shown = value.sizes.shown if isinstance(value, CardValue) else "card"
    if data.valid is None or not len(data.valid) or shown == "session":
        return Calibration(), []
    if shown == "list" and not data.valid.signal.lists:
        return Calibration(), []
    if isinstance(value, CardValue) and shown == "list":
        logits, clicked = card_task.own_cards(value, data.valid_batches())
    else:
        logits, clicked = predictions(value, data.valid_batches())
    calibration = calibrate.fitted_calibration(logits, clicked)
    figures = calibrate.reward_figures(logits, clicked, calibration)
    return calibration, [{"task": "value", "event": "calibrated", "step": 0, "epoch": 0, **figures}]


def needs_value(config: Config, train: Dataset) -> bool:
    """Whether there is a value of cards to learn: that takes cards that were clicked and cards that were not."""
    if not len(train):
        raise DataError(f"{train.path}: there is nothing to train on")
    if config.model == "card_value" and card_task.shown_in(train) != "card":
        return True
    if not train.signal.cards:
        raise ConfigError(
            f"{train.path}: no card was recorded, lists were shown whole: model={config.model} learns from cards "
            "alone; the preset best learns from lists"
        )
    if not train.clicked.any():
        raise DataError(
            f"{train.path}: no card of the training data was clicked, so there is nothing to learn"
        )
    if not train.clicked.all():
        return True
    training = config.training
    wants_value = training.alpha < 1 or training.demonstrations == "exact" or config.policy.guided
    if config.model != "policy" or wants_value:
        named = train.signal.named_clicks
        ways = "preset best-ids, or paper" if named else "preset best does, or a policy: paper"
        raise ConfigError(
            f"{train.path}: every card was clicked, so no value of cards can be learned; to learn from clicked cards "
            f"alone: {ways} with training.alpha=1"
        )
    return False


def for_policy(view: Dataset, vocabulary: Vocabulary, only_clicked: bool) -> Dataset:
    """What phase 2 reads: the demonstrations, or every request, as far as a valid card exists."""
    return (view.demonstrations() if only_clicked else view).solvable(vocabulary)


def chosen_device(config: Config) -> torch.device:
    """The device the settings ask for; `auto` is a GPU where there is one."""
    asked = config.training.device
    if asked == "cuda" and not torch.cuda.is_available():
        raise ConfigError("training.device=cuda, but torch finds no GPU here; use training.device=cpu")
    return torch.device("cuda" if asked != "cpu" and torch.cuda.is_available() else "cpu")


def input_sizes(
    vocabulary: Vocabulary, train: Dataset | None = None, valid: Dataset | None = None
) -> InputSizes:
    """What the networks must make room for; with the data itself, also what users saw and whether ids come again."""
    columns = vocabulary.columns
    sizes = InputSizes(
        num_users=vocabulary.num_users,
        num_items=vocabulary.num_items,
        user_feature_size=vocabulary.user_feature_size,
        item_feature_size=vocabulary.item_feature_size,
        candidate_numbers=len(columns.candidate_numbers),
        context_numbers=len(columns.context_numbers),
        candidate_categories=columns.candidate_categories.sizes,
        context_categories=columns.context_categories.sizes,
        item_categories=columns.item_categories.sizes,
        user_categories=columns.user_categories.sizes,
        item_vector_size=columns.vector_size,
        pair_features=len(columns.pair_features),
        scored="score" in columns.measured.names,
        placed="position" in columns.measured.names,
    )
    if train is None:
        return sizes
    items, users = card_task.recurring(valid, vocabulary)
    return replace(sizes, shown=card_task.shown_in(train), items_recur=items, users_recur=users)


def same_run(config: Config, train: Dataset, valid: Dataset | None, run: Run) -> None:
    """Note in run.json what is trained on what; refuse to resume a run that was about something else."""
    if run.folder is None or not current_ranks().first:
        return
    path = run.folder / "run.json"
    now: dict[str, Any] = {
        "config": config.to_dict(),
        "train": {"rows": len(train), "checksums": train.meta.checksums},
        "valid": None if valid is None else {"rows": len(valid), "checksums": valid.meta.checksums},
    }
    now = json.loads(json.dumps(now))
    if path.exists() and not run.resume:
        raise ConfigError(
            f"{run.folder} holds an earlier run: resume it (resume=True) or choose another folder"
        )
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        for name in now:
            if before.get(name) != now[name]:
                what = difference(before.get(name), now[name])
                raise ConfigError(f"{run.folder} cannot be resumed: its {name} was different{what}")
        return
    run.folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(now, indent=1) + "\n")


def difference(before: Any, now: Any) -> str:
    """The first setting in which two groups of settings differ, in words."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return ""
    for name in sorted({*before, *now}):
        if before.get(name) == now.get(name):
            continue
        if isinstance(now.get(name), dict):
            return f": {name}" + difference(before.get(name), now[name]).replace(": ", ".", 1)
        return f": {name} was {before.get(name)!r}, now it is {now.get(name)!r}"
    return ""
