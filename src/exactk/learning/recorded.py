"""A training step on a GPU, recorded once and replayed: hundreds of small launches become one.

Knows no model: a task says whether its loss may be recorded (`Task.recordable`). Where a batch is of another kind than
those recorded, or cannot be, the step is taken as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from exactk.models.policy import Policy
from exactk.search.feasible import Feasible
from exactk.tensors import Facts, TensorBatch

if TYPE_CHECKING:
    from exactk.learning.fit import Step

USUAL = 2  # batches of a kind that are learned from as usual before it is recorded: libraries settle, memory is found
MOST_KINDS = 4  # recorded: each keeps the memory of a whole step

Loss = Callable[[TensorBatch, float, Generator], "Step"]

# What the loss of a value of cards may take for granted: it asks nothing of the rules.
RULES_ASIDE = Facts(all_safe=True, ragged=True)


def safe_facts(batch: TensorBatch) -> Facts | None:
    """What steers a policy's step, where no dead end can come up: looking for one reads from the device."""
    facts = Feasible.of(batch).facts
    return facts if facts.all_safe else None


@dataclass(frozen=True)
class Recording:
    """One recorded step: what it reads, what it writes."""

    graph: Any
    batch: TensorBatch
    step: Step
    gradients: Sequence[Tensor | None]

    def replayed(self, batch: TensorBatch, parameters: Sequence[nn.Parameter]) -> Step:
        """The step on another batch of the same kind; gradients are those of this batch alone."""
        for mine, given in zip(tensors_of(self.batch), tensors_of(batch), strict=True):
            mine.copy_(given)
        self.graph.replay()
        for parameter, gradient in zip(parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.step


class Recorder:
    """Takes steps on a GPU: as usual at first, then recorded, one recording for each kind of batch."""

    def __init__(
        self,
        loss: Loss,
        recordable: Callable[[TensorBatch], Facts | None],
        parameters: Sequence[nn.Parameter],
        generator: Generator,
    ) -> None:
        self.loss, self.recordable = loss, recordable
        self.parameters, self.generator = parameters, generator
        self.met: dict[Any, int] = {}
        self.recordings: dict[Any, Recording] = {}

    def __call__(self, batch: TensorBatch) -> Step | None:
        """Loss and figures, with gradients in place; None where this batch is to be learned from as usual."""
        facts = self.recordable(batch)
        if facts is None:
            return None
        kind = (facts, tuple(t.shape for t in tensors_of(batch)))
        if kind not in self.recordings:
            self.met[kind] = self.met.get(kind, 0) + 1
            if self.met[kind] <= USUAL or len(self.recordings) >= MOST_KINDS:
                return None
            self.recordings[kind] = self.record(batch, facts)
        return self.recordings[kind].replayed(batch, self.parameters)

    def record(self, batch: TensorBatch, facts: Facts) -> Recording:
        """Walk through one step without taking it: weights and random numbers stay where they are."""
        cloned: dict[str, Any] = {name: t.clone() for name, t in batch.named().items()}
        held = replace(batch, **cloned, facts=facts)
        randomness = self.generator.get_state(), torch.cuda.get_rng_state()
        graph: Any = torch.cuda.CUDAGraph()
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._walk(held)
        torch.cuda.current_stream().wait_stream(side)
        self.generator.set_state(randomness[0])
        torch.cuda.set_rng_state(randomness[1])
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph):
            step = self._walk(held)
        figures = {name: value.detach() for name, value in step.figures.items()}
        taken = step._replace(loss=step.loss.detach(), figures=figures, has_gradients=True)
        return Recording(graph, held, taken, [p.grad for p in self.parameters])

    def _walk(self, batch: TensorBatch) -> Step:
        for parameter in self.parameters:
            parameter.grad = None
        step = self.loss(batch, 0.0, self.generator)
        step.loss.backward()  # type: ignore[no-untyped-call]
        return step


def tensors_of(batch: TensorBatch) -> list[Tensor]:
    """The tensors a batch has, in order."""
    return list(batch.named().values())


class Fused:
    """A policy whose encoder and pointer torch.compile has fused, within a `with` alone."""

    def __init__(self, policy: Policy) -> None:
        self.places = ((policy.encoder, "forward"), (policy.pointer, "point"))
        self.functions = [torch.compile(getattr(module, name), dynamic=False) for module, name in self.places]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Compile on the first pass, half a minute; afterwards a step takes two thirds of the time."""
        for (module, name), function in zip(self.places, self.functions, strict=True):
            setattr(module, name, function)
        try:
            yield
        finally:
            for module, name in self.places:
                delattr(module, name)
