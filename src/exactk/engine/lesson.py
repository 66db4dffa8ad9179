"""A policy's whole training step in one compiled call a thread: `learning.rlfd.policy_step` without its operations.

Knows which batches it can take (one card size, no pins, no caps, no dead ends) and leaves others to the caller. Rewards
other than the paper's, and inputs with features, stay torch's, before and after the calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from exactk.config import TrainingConfig
from exactk.engine.adam import move, numbers_of
from exactk.engine.desk import Desk
from exactk.engine.train_encoder import Spots, TrainSizes
from exactk.engine.train_inputs import InputSpots
from exactk.engine.train_layout import spots_of, weights_of
from exactk.engine.train_losses import TARGETS, Plan
from exactk.engine.train_request import shuffled_onto, usual_size
from exactk.engine.train_reward import judge_of, no_judge
from exactk.learning.fit import Step
from exactk.learning.flat import Flat
from exactk.learning.rlfd import Stage, estimated_rewards, fitted
from exactk.models.ensemble import Ensemble
from exactk.models.policy import Policy
from exactk.problem.batch import Batch

MANY = np.iinfo(np.int64).max
MOST_DESKS = 8  # shapes of batches whose arrays are kept


class CompiledLesson:
    """Whole steps for one policy, one reward and one group of settings (a `learning.rlfd.Lesson`)."""

    def __init__(
        self,
        policy: Policy,
        sizes: TrainSizes,
        threads: int,
        reward: Ensemble | None,
        caution: float,
        config: TrainingConfig,
    ) -> None:
        self.policy, self.reward, self.caution, self.config = policy, reward, caution, config
        self.sizes, self.spots, self.threads = sizes, spots_of(sizes), threads
        self.into, parameters = laid_out(policy, self.spots)
        self.flat = Flat(parameters)
        self.flat.move = self.moved
        parts = (self.flat.weights.detach(), self.flat.gradient, *self.flat.moments)
        self.moving: Any = tuple(part.numpy() for part in parts)
        judge = judge_of(reward)
        self.judges, self.judge = judge is not None, judge or no_judge()
        vectors = policy.inputs.vectors
        self.num_users = rows_for_all(vectors.users, self.judge[0] if self.judges else None)
        self.num_items = rows_for_all(vectors.items, self.judge[1] if self.judges else None)
        self.desks: dict[Any, Desk] = {}
        self.last: Desk | None = None

    def __call__(self, batch: Batch, progress: float, generator: Generator) -> Step | None:
        """One batch: loss and figures, gradients in place; None where it must be learned from as usual."""
        stage = Stage.at(self.config, self.reward is not None, progress)
        K = self.usual(batch, stage)
        if not K:
            return None
        assert self.flat.is_whole(), "the policy's weights were moved elsewhere while it was being trained"
        desk = self.desk_for(batch, K, stage.from_reward)
        desk.fill(self.arrays_of(batch, stage))
        self.show(batch, desk, generator)
        torch.rand(desk.uniform.shape, generator=generator, out=desk.uniform)
        inputs = None if self.into.size else self.policy.inputs(batch)  # B N D
        if inputs is not None:
            desk.work.inputs[...] = inputs.detach().numpy()
        if not desk.explored():
            return None
        if not desk.whole:
            desk.work.rewards[...] = self.rewards_of(batch, desk.work.cards)
        told = desk.learned()
        if inputs is not None:
            self.flat.gradient[self.spots.end :].zero_()
            inputs.backward(torch.from_numpy(desk.work.inputs_g))
        return self.step_of(desk, stage, told)

    def moved(self, _: Flat, step: int, rate: float, decay: float) -> None:
        """AdamW, by the threads of the last batch's desk."""
        numbers = numbers_of(step, rate, decay)
        if self.last is None:
            move(*self.moving, np.array(numbers, np.float32))
        else:
            self.last.moved(numbers)

    def usual(self, batch: Batch, stage: Stage) -> int:
        """K, where this batch can be learned from here; else 0."""
        config, card = self.config, batch.card
        supervised = config.alpha > 0 or not stage.from_reward
        if batch.item.device.type != "cpu" or batch.cap.shape[1] or not len(batch):
            return 0
        if supervised and (card is None or (config.target == "clicked" and batch.clicked_position is None)):
            return 0
        if supervised and not config.policy_sampling and card is not None and bool((card < 0).any()):
            return 0
        rules = (batch.graph, batch.present, batch.card_size, batch.pinned, batch.user, batch.item)
        return int(usual_size(*map(plain, rules), self.num_users, self.num_items))

    def desk_for(self, batch: Batch, K: int, from_reward: bool) -> Desk:
        """The desk for batches of this shape; helpers come along from the one before."""
        B, N = batch.item.shape
        key = (B, N, K, from_reward)
        desk = self.desks.get(key)
        if desk is None:
            if len(self.desks) == MOST_DESKS:
                del self.desks[next(iter(self.desks))]
            desk = self.desks[key] = Desk(
                B, N, K, self.plan_of(from_reward), self.sizes, self.into, self.moving, self.judge, self.threads,
            )  # fmt: skip
        if self.last is not None and self.last is not desk:
            self.last.leave()
        self.last = desk
        return desk

    def show(self, batch: Batch, desk: Desk, generator: Generator) -> None:
        """The logged cards, in random order where that is asked for; -1 where there are none."""
        shown = desk.work.demonstration
        if batch.card is None:
            shown[...] = -1
        elif self.config.shuffle_card:
            order = torch.rand(batch.card.shape, generator=generator)
            shuffled_onto(plain(batch.card), order.numpy(), shown)
        else:
            shown[...] = fitted(batch.card, shown.shape[1])

    def arrays_of(self, batch: Batch, stage: Stage) -> dict[str, Any]:
        """Ids, rules, what was logged, and what each loss of one request weighs."""
        config, B = self.config, len(batch)
        clicked = True if batch.clicked is None else batch.clicked.numpy()
        num_clicked = B if batch.clicked is None else np.count_nonzero(clicked)
        supervised = config.alpha if stage.from_reward else 1.0
        reinforced = (1.0 - config.alpha) / (B * (1 if config.hill_climbing else config.samples))
        return {
            "user": batch.user.numpy(),
            "item": batch.item.numpy(),
            "present": batch.present.numpy(),
            "graph": batch.graph.numpy(),
            "clicked": clicked,
            "clicked_at": -1 if batch.clicked_position is None else batch.clicked_position.numpy(),
            "weigh": (supervised / max(num_clicked, 1), reinforced, stage.bonus / B, stage.temperature),
        }

    def plan_of(self, from_reward: bool) -> Plan:
        """Which paths are learned from."""
        config = self.config
        alone = config.alpha > 0 and (config.hill_climbing or not config.policy_sampling)
        rewarded = 0 if not from_reward else 1 if config.hill_climbing else config.samples
        return Plan(
            samples=config.samples if from_reward else int(config.policy_sampling),
            paths=rewarded + (alone if from_reward else 1),
            rewarded=rewarded,
            demonstrated=not config.policy_sampling,
            best_only=config.hill_climbing,
            leave_one_out=config.baseline == "leave_one_out",
            judged=self.judges,
            target=TARGETS[config.target],
        )

    @torch.no_grad()
    def rewards_of(self, batch: Batch, cards: np.ndarray) -> np.ndarray:
        """What an estimator that is not compiled makes of the cards."""
        assert self.reward is not None
        return plain(estimated_rewards(self.reward, batch, torch.from_numpy(cards), self.caution))

    def step_of(self, desk: Desk, stage: Stage, told: list[float]) -> Step:
        """The figures of `policy_step`."""
        supervised, reinforced, entropy, reward = told
        weight, reinforcing, bonus, _ = desk.work.weigh.tolist()
        figures = {"loss": weight * supervised + reinforcing * reinforced - bonus * entropy}
        if weight:
            figures["supervised_loss"] = (
                weight * supervised / (self.config.alpha if stage.from_reward else 1.0)
            )
        if desk.plan.rewarded:
            figures["reward"] = reward
        if stage.bonus:
            figures["entropy"] = bonus * entropy / stage.bonus
        values = torch.tensor(list(figures.values())).unbind()
        named = dict(zip(figures, values, strict=True))
        return Step(named.pop("loss"), named, back=True)


def rows_for_all(table: nn.Embedding | None, judges: np.ndarray | None) -> int:
    """How many ids every table that is read has a row for."""
    own = MANY if table is None else table.num_embeddings
    return own if judges is None else min(own, len(judges))


def plain(values: Tensor) -> np.ndarray:
    """A tensor's numbers, row after row."""
    return np.ascontiguousarray(values.numpy())


def laid_out(policy: Policy, at: Spots) -> tuple[InputSpots, list[Tensor]]:
    """Where the input layer's weights lie, and all parameters in their order: those of the kernels first."""
    inputs, vectors, known = policy.inputs, policy.inputs.vectors, weights_of(policy)
    D, E = policy.config.width, policy.config.embedding_size
    features = vectors.user_feature_size or vectors.item_feature_size
    if vectors.users is None or vectors.items is None or features or E % 16:
        apart = {id(p) for p in known}
        others: list[Tensor] = [p for p in policy.parameters() if id(p) not in apart]
        return InputSpots(0, 0, 0, 0, 0, 0, 0), known + others
    item = at.end
    bias = item + D * E
    user = bias + D
    end = user + D * E
    spots = InputSpots(E, item, bias, user, end, end, end + vectors.users.weight.numel())
    layer = [inputs.item_weight.weight, inputs.item_weight.bias, inputs.user_weight.weight]
    return spots, [*known, *layer, vectors.users.weight, vectors.items.weight]
