"""A policy's training without torch's overhead: the same cards, scores and gradients from compiled calls.

Knows what the kernels cannot do (GRU cells, three projections, odd widths, rules that need look-ahead); there the model
itself answers. Whole steps are `lesson.py`'s; where those cannot be, losses, rewards and input layer are torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.config import TrainingConfig
from exactk.engine.lesson import CompiledLesson
from exactk.engine.packing import rounded
from exactk.engine.sharing import shared
from exactk.engine.train_encoder import TrainSizes
from exactk.engine.train_kernel import back_each, draw_each, encode_each, replay_each, turn
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
from exactk.engine.working_memory import WorkingMemory, slice_of
from exactk.models.ensemble import Ensemble
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible
from exactk.search.sample import Sampled
from exactk.search.steps import Steps


def known(policy: Policy) -> bool:
    """Whether the kernels can train this network: the paper's form, every width a multiple of sixteen."""
    config = policy.config
    even = not any(n % 16 for n in (config.width, config.width // config.heads, config.feed_forward_size))
    return even and config.cell == "lstm" and config.attention == "shared" and not config.guided


class CompiledTraining:
    """Whole training steps of a policy; where those cannot be, its `Steps` for each batch, the model's own if need be.

    `threads`: as many as torch takes, if not given, so that OMP_NUM_THREADS=1 keeps runs side by side apart.
    """

    def __init__(self, policy: Policy, threads: int | None = None) -> None:
        self.policy = policy
        self.known = known(policy)
        self.threads = threads or torch.get_num_threads()
        config = policy.config
        self.sizes = TrainSizes(
            config.width, config.heads, config.feed_forward_size, config.encoder_layers, config.decoder_layers
        )
        self.spots = spots_of(self.sizes)
        self.parameters = weights_of(policy)
        self.array = WorkingMemory().array
        self._where = 0
        self._arrays: list[np.ndarray] = []

    def steps(self, batch: Batch) -> Steps[Any]:
        """The policy bound to a batch, encoded once."""
        if not self.known or batch.item.device.type != "cpu":
            return self.policy.steps(batch)
        return CompiledSteps(self, batch)

    def lesson(
        self, reward: Ensemble | None, caution: float, config: TrainingConfig
    ) -> CompiledLesson | None:
        """Whole steps, where the kernels know the network and the settings."""
        policy = self.policy
        tables = [m for m in policy.modules() if isinstance(m, nn.Embedding)]
        usual = not any(table.sparse for table in tables) and self.parameters[0].device.type == "cpu"
        unknown = policy.affinity is not None or config.baseline == "greedy" or config.smoothing > 0
        if not (self.known and usual) or unknown:
            return None
        return CompiledLesson(policy, self.sizes, self.threads, reward, caution, config)

    def joined(self) -> np.ndarray:
        """All weights as they are now, one after the other."""
        where = self.parameters[0].data_ptr()
        if where != self._where:  # the module was moved
            self._where, self._arrays = where, [part.detach().numpy().ravel() for part in self.parameters]
        return np.concatenate(self._arrays)

    def share(self, num_requests: int, call: Callable[[int, int, int], Any]) -> list[Any]:
        """call(thread, first, last) over all requests, on as many threads as there are slices for."""
        each = slice_of(num_requests)
        num_slices = -(-num_requests // each)
        threads = min(self.threads, num_slices)
        borders = [min(each * (num_slices * n // threads), num_requests) for n in range(threads + 1)]
        borders[-1] = num_requests
        parts = iter(range(threads))  # shared by all: whoever is free takes the next

        def work(_: int) -> list[Any]:
            return [call(n, borders[n], borders[n + 1]) for n in parts]

        return [told for own in shared(threads, work) for told in own]


def faster(policy: Policy) -> CompiledTraining:
    """How a policy's steps are taken in training: `phases.Run.faster`."""
    return CompiledTraining(policy)


class CompiledSteps:
    """One batch, encoded: draws cards, scores cards with gradient; whatever else is asked, the model answers."""

    def __init__(self, training: CompiledTraining, batch: Batch) -> None:
        self.training, self.batch = training, batch
        policy = training.policy
        self.inputs = policy.inputs(batch)  # B N D
        self.affinity = None if policy.affinity is None else policy.affinity(batch)
        s, at = training.sizes, training.spots
        w = self.weights = training.joined()
        self.turned = training.array("turned", 0, at.end)
        self.vectors = training.array("vectors", 0, 2 * s.width)
        turn(s, at, matrices_of(s), w, self.turned, self.vectors)
        B, N = batch.item.shape
        self.tape_places = tape_of(s, N)
        self.tape = training.array("tape", 0, B * self.tape_places.end)
        inputs, present = self.inputs.detach().numpy(), batch.present.numpy()
        size = encode_room(s, N)
        training.share(B, lambda thread, first, last: encode_each(
            first, last, s, at, self.tape_places, w, self.turned, inputs, present, self.tape,
            training.array("encode", thread, size),
        ))  # fmt: skip

    def draw(self, feasible: Feasible, uniform: Float[Tensor, "K B S"], temperature: float) -> Sampled | None:
        """Cards drawn by the numbers given, as `search.sample` would; None where rules need more than masks."""
        if not feasible.all_safe or feasible.ragged or self.batch.cap.shape[1]:
            return None
        s, at, training = self.training.sizes, self.training.spots, self.training
        K, B, S = uniform.shape
        N = feasible.open.shape[1]
        cards, log_prob = np.empty((B, S, K), np.int64), np.empty((B, S), np.float32)
        allowed = np.empty((B, S, K, N), np.bool_)
        added = np.zeros((B, N), np.float32) if self.affinity is None else self.affinity.detach().numpy()
        places, size = draw_places(s, N, S)
        given = (
            feasible.graph.numpy(),
            feasible.open.numpy(),
            added,
            uniform.numpy(),
            np.float32(temperature),
        )
        stuck = training.share(B, lambda thread, first, last: draw_each(
            first, last, s, at, self.tape_places, self.turned, self.vectors, self.tape,
            training.array("draw", thread, size), places, *given, cards, log_prob, allowed,
        ))  # fmt: skip
        if any(stuck):  # only numbers that are none leave nothing to draw
            return None
        return Sampled(torch.from_numpy(cards), torch.from_numpy(log_prob), torch.from_numpy(allowed))

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """The scores before each choice of given cards, with gradient."""
        scores: Tensor = _Replay.apply(self, cards, self.inputs, *self.training.parameters)  # type: ignore[no-untyped-call]
        return scores if self.affinity is None else scores + self.affinity[:, None, None]

    # Whoever steps by hand (greedy baselines, look-ahead) steps through the model.

    @property
    def _model(self) -> Steps[Any]:
        return self.training.policy.steps(self.batch)

    def start(self, num_rows: int) -> Any:
        """The state before the first choice."""
        self._by_hand = self._model
        return self._by_hand.start(num_rows)

    def step(self, state: Any) -> Float[Tensor, "B S N"]:
        """Raw scores of every position."""
        return self._by_hand.step(state)

    def advance(self, state: Any, position: Int[Tensor, "B S"]) -> Any:
        """The state after choosing."""
        return self._by_hand.advance(state, position)


class _Replay(torch.autograd.Function):
    """Scores along cards as a function of all weights and of the encoder's inputs."""

    @staticmethod
    def forward(ctx: Any, steps: CompiledSteps, cards: Tensor, inputs: Tensor, *_: Tensor) -> Tensor:
        """Decode along the cards; the encoder's part stands on the tape."""
        training, (B, P, K), N = steps.training, cards.shape, inputs.shape[1]
        s, at = training.sizes, training.spots
        ctx.steps, ctx.cards = steps, np.ascontiguousarray(cards.numpy())
        ctx.rows = rows_of(s, N, P, K)
        ctx.room = rounded(max(rounded(N), 4 * s.width))
        ctx.kept = training.array("kept", 0, ctx.room + B * ctx.rows.end)
        scores = np.empty((B, P, K, N), np.float32)
        w = steps.weights
        training.share(B, lambda thread, first, last: replay_each(  # noqa: ARG005
            first, last, s, at, steps.tape_places, ctx.rows, w, steps.turned, steps.vectors, steps.tape,
            ctx.kept, ctx.room, ctx.cards, scores,
        ))  # fmt: skip
        return torch.from_numpy(scores)

    @staticmethod
    def backward(ctx: Any, *wanted: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of weights and inputs."""
        steps: CompiledSteps = ctx.steps
        training, (B, P, K), N = steps.training, ctx.cards.shape, wanted[0].shape[3]
        s, at = training.sizes, training.spots
        places, size = back_places(s, N, P, K)
        inputs_g = np.empty((B, N, s.width), np.float32)
        given = np.ascontiguousarray(wanted[0].numpy())

        each = slice_of(B)
        sums = np.zeros((-(-B // each), rounded(at.end + 16)), np.float32)
        training.share(B, lambda thread, first, last: back_each(
            first, last, each, s, at, steps.tape_places, ctx.rows, steps.weights, steps.tape, ctx.kept, ctx.room,
            training.array("back", thread, size), places, sums, ctx.cards, given, inputs_g,
        ))  # fmt: skip
        total = sums[0]
        for other in sums[1:]:
            total += other
        for layer in range(s.decoder_layers):
            bias = at.cells + layer * at.cell_size + 8 * s.width * s.width
            total[bias + 4 * s.width : bias + 8 * s.width] = total[bias : bias + 4 * s.width]
        # Parts of one array: torch keeps them as the gradients without copying.
        sizes = [part.numel() for part in training.parameters]
        apart = torch.split(torch.from_numpy(total[: at.end]), sizes)
        shaped = (
            g if part.dim() == 1 else g.view(part.shape)
            for g, part in zip(apart, training.parameters, strict=True)
        )
        return None, None, torch.from_numpy(inputs_g), *shaped
