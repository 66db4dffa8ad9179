"""A policy's whole training step in one compiled call a thread: `learning.rlfd.policy_step` without its operations.

Knows which batches it can take (one card size, no pins, no caps, no dead ends) and leaves others to the caller. Rewards
other than the paper's, and inputs with features, stay torch's, before and after the calls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from exactk.config import TrainingConfig
from exactk.engine.compiled import rounded
from exactk.engine.sharing import shared
from exactk.engine.train_encoder import Spots, TrainSizes
from exactk.engine.train_inputs import InputSpots
from exactk.engine.train_kernel import turn
from exactk.engine.train_layout import (
    back_places,
    draw_places,
    encode_room,
    matrices_of,
    rows_of,
    spots_of,
    tape_of,
    weights_of,
)
from exactk.engine.train_losses import TARGETS, Plan
from exactk.engine.train_reward import judge_of, judge_room, no_judge
from exactk.engine.train_step import gathered, teach_each, usual_size
from exactk.engine.working_memory import WorkingMemory, slice_of
from exactk.learning.fit import Step
from exactk.learning.flat import Flat
from exactk.learning.rlfd import Stage, estimated_rewards, fitted, shuffled
from exactk.models.ensemble import Ensemble
from exactk.models.policy import Policy
from exactk.problem.batch import Batch

MANY = np.iinfo(np.int64).max


class Exploring(NamedTuple):
    """What requests are explored with and what comes of it, as `teach_each` takes it."""

    cards: np.ndarray  # B S K
    log_prob: np.ndarray
    allowed: np.ndarray  # B S K N
    rewards: np.ndarray  # B S
    added: np.ndarray  # onto scores


class CompiledLesson:
    """Whole steps for one policy, one reward and one group of settings (a `learning.rlfd.Lesson`)."""

    def __init__(
        self, policy: Policy, sizes: TrainSizes, threads: int,
        reward: Ensemble | None, caution: float, config: TrainingConfig,
    ) -> None:  # fmt: skip
        self.policy, self.reward, self.caution, self.config = policy, reward, caution, config
        self.sizes, self.spots, self.threads = sizes, spots_of(sizes), threads
        self.into, parameters = laid_out(policy, self.spots)
        self.flat = Flat(parameters)
        self.weights, self.gradient = self.flat.weights.detach().numpy(), self.flat.gradient.numpy()
        self.matrices = matrices_of(sizes, self.into)
        judge = judge_of(reward)
        self.judges, self.judge = judge is not None, judge or no_judge()
        vectors = policy.inputs.vectors
        self.num_users = rows_for_all(vectors.users, self.judge[0] if self.judges else None)
        self.num_items = rows_for_all(vectors.items, self.judge[1] if self.judges else None)
        self.memory = WorkingMemory()

    def __call__(self, batch: Batch, progress: float, generator: Generator) -> Step | None:
        """One batch: loss and figures, gradients in place; None where it must be learned from as usual."""
        stage = Stage.at(self.config, self.reward is not None, progress)
        K = self.usual(batch, stage)
        if not K:
            return None
        assert self.flat.is_whole(), "the policy's weights were moved elsewhere while it was being trained"
        request = self.request_of(batch, K, generator)
        B, N = request[1].shape
        plan = self.plan_of(stage, request)
        uniform = torch.rand((K, B, plan.samples), generator=generator).numpy()
        drawn = Exploring(
            np.empty((B, plan.samples, K), np.int64),
            np.empty((B, plan.samples), np.float32),
            np.empty((B, plan.samples, K, N), np.bool_),
            np.empty((B, plan.samples), np.float32),
            self.memory.zeros((B, N)),
        )
        inputs = None if self.into.size else self.policy.inputs(batch)  # B N D
        if not self.taught(plan, batch, request, uniform, inputs, drawn):
            return None
        return self.step_of(plan, stage, batch, drawn)

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

    def request_of(self, batch: Batch, K: int, generator: Generator) -> tuple[np.ndarray, ...]:
        """Ids, rules and what was logged, as arrays."""
        B, card = len(batch), batch.card
        if card is not None and self.config.shuffle_card:
            card = shuffled(card, generator)
        nothing = np.full((B, K), -1, np.int64)
        return (
            plain(batch.user), plain(batch.item), plain(batch.present), plain(batch.graph),
            nothing if card is None else plain(fitted(card, K)),
            np.ones(B, np.bool_) if batch.clicked is None else plain(batch.clicked),
            nothing[:, 0].copy() if batch.clicked_position is None else plain(batch.clicked_position),
        )  # fmt: skip

    def plan_of(self, stage: Stage, request: tuple[np.ndarray, ...]) -> Plan:
        """Which paths are learned from, and what each loss of one request weighs."""
        config, B, clicked = self.config, len(request[0]), int(request[5].sum())
        alone = config.alpha > 0 and (config.hill_climbing or not config.policy_sampling)
        rewarded = 0 if not stage.from_reward else 1 if config.hill_climbing else config.samples
        supervised = config.alpha if stage.from_reward else 1.0
        return Plan(
            samples=config.samples if stage.from_reward else int(config.policy_sampling),
            paths=rewarded + (alone if stage.from_reward else 1),
            rewarded=rewarded,
            demonstrated=not config.policy_sampling,
            best_only=config.hill_climbing,
            leave_one_out=config.baseline == "leave_one_out",
            judged=self.judges,
            target=TARGETS[config.target],
            supervised=np.float32(supervised / max(clicked, 1)),
            reinforced=np.float32((1.0 - config.alpha) / (B * max(rewarded, 1))),
            bonus=np.float32(stage.bonus / B),
            temperature=np.float32(stage.temperature),
        )

    def taught(
        self,
        plan: Plan,
        batch: Batch,
        request: Any,
        uniform: np.ndarray,
        inputs: Tensor | None,
        drawn: Exploring,
    ) -> bool:
        """Explore, judge, learn: figures in `self.told`, gradients in place. False where nothing could be drawn."""
        s, at, into, memory = self.sizes, self.spots, self.into, self.memory
        (B, N), D, K = request[1].shape, s.width, drawn.cards.shape[2]
        each, end = slice_of(B), into.end or at.end
        num = -(-B // each)
        judging = judge_room(self.judge, plan.samples, K)
        p, q, places, room = layout_of(s, into, N, plan.paths, K, plan.samples, judging)
        turned, vectors = memory.array("turned", 0, end), memory.array("vectors", 0, 2 * D)
        turn(s, at, self.matrices, self.weights, turned, vectors)
        whole = plan.judged or not plan.rewarded  # nothing but compiled code from ids to gradients
        tape = None if whole else memory.array("tapes", 0, B * p.end)[: B * p.end]
        sums = memory.array("sums", 0, num * rounded(end))[: num * rounded(end)].reshape(num, -1)
        self.told = np.empty((B, 3), np.float32)
        back = (
            np.empty((0 if into.size else B, N, D), np.float32),
            np.empty((B, N, into.size), np.float32),
            np.empty((B, into.size), np.float32),
        )
        given = np.empty((0, N, D), np.float32) if inputs is None else plain(inputs.detach())

        def stages(*wanted: bool) -> bool:
            counter = np.zeros(1, np.int64)
            failed = shared(min(self.threads, num), lambda thread: teach_each(
                counter, each, wanted, plan, s, at, into, p, q, places, self.weights, turned, vectors, request, uniform,
                self.judge, given, self.scratch(thread, tape, p.end, room), drawn, self.told, sums, back,
            ))  # fmt: skip
            return not any(failed)

        done = stages(True, whole)
        if done and not whole:
            drawn.rewards[:] = self.rewards_of(batch, drawn.cards)
            stages(False, True)
        if done:
            gathered(s, at, into, sums, num, self.gradient, request[0], request[1], back)
        if done and inputs is not None:
            self.flat.gradient[at.end :].zero_()
            inputs.backward(torch.from_numpy(back[0]))  # type: ignore[no-untyped-call]
        return done

    def scratch(
        self, thread: int, tape: np.ndarray | None, tape_size: int, room: Any
    ) -> tuple[np.ndarray, ...]:
        """A thread's working memory; the tape, too, unless one is shared by all."""
        array = self.memory.array
        own = array("tape", thread, tape_size)[:tape_size] if tape is None else tape
        return own, *(array(name, thread, size) for name, size in room)

    @torch.no_grad()
    def rewards_of(self, batch: Batch, cards: np.ndarray) -> np.ndarray:
        """What an estimator that is not compiled makes of the cards."""
        assert self.reward is not None
        return plain(estimated_rewards(self.reward, batch, torch.from_numpy(cards), self.caution))

    def step_of(self, plan: Plan, stage: Stage, batch: Batch, drawn: Exploring) -> Step:
        """The figures of `policy_step`."""
        supervised, reinforced, entropy = self.told.sum(0, dtype=np.float64)
        loss, figures = 0.0, {}
        if plan.supervised > 0:
            loss = float(plan.supervised * supervised)
            figures["supervised_loss"] = loss / (self.config.alpha if stage.from_reward else 1.0)
        if plan.rewarded:
            loss += float(plan.reinforced) * reinforced
            figures["reward"] = float(drawn.rewards.mean(dtype=np.float64))
        if stage.bonus:
            figures["entropy"] = entropy / len(batch)
            loss -= float(plan.bonus) * entropy
        return Step(
            torch.tensor(loss), {name: torch.tensor(value) for name, value in figures.items()}, back=True
        )


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


@lru_cache(maxsize=64)
def layout_of(s: TrainSizes, into: InputSpots, N: int, P: int, K: int, S: int, judging: int) -> Any:
    """Tape, kept rows, places and the sizes of each thread's working memory, as `teach_each` asks for them."""
    p, q, span, n4 = tape_of(s, N), rows_of(s, N, P, K), rounded(N), rounded(N, 4)
    kept = rounded(max(span, 4 * s.width))
    drawing, draw_size = draw_places(s, N, S)
    backing, end = back_places(s, N, P, K)
    embedding = 2 * n4 * into.size + 4 * into.size + 4 * s.width
    own = (kept, end, end + span, end + 2 * span, end + 3 * span)
    room = (
        ("encode", encode_room(s, N)),
        ("draw", draw_size),
        ("kept", kept + q.end),
        ("back", end + 3 * span + max(embedding, judging)),
    )
    return p, q, (drawing, backing, own), room
