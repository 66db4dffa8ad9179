"""Policy: GAttN, P(A|S,u): input layer, encoder and pointer; writes a card one position at a time.

Knows neither losses nor search, and no constraints: `search` masks its scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.errors import ConfigError
from exactk.models.affinity import Affinity
from exactk.models.encoder import Encoder
from exactk.models.guide import Guide, GuidedSteps
from exactk.models.inputs import InputLayer, Vectors, initialise
from exactk.models.pairvalue import PairValue
from exactk.models.pointer import EncodedRequests, Pointer, State
from exactk.search.steps import Steps
from exactk.settings.config import InputSizes, PolicyConfig
from exactk.tensors import TensorBatch


class Policy(nn.Module):
    """Graph attention network: `encode` a request once, `start`, then `step` and `advance` for every choice.

    These four are the network alone; with a guide, `steps` adds its gains.
    """

    def __init__(
        self,
        config: PolicyConfig,
        sizes: InputSizes,
        generator: torch.Generator | None = None,
        value: PairValue | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.sizes = sizes
        self.inputs = InputLayer(Vectors(config.inputs, sizes, config.embedding_size), config.width)
        self.encoder = Encoder(config)
        self.pointer = Pointer(config)
        self.affinity = (
            Affinity(
                config.inputs,
                sizes,
                config.affinity,
                config.affinity_pace,
                config.memory,
            )
            if config.affinity or config.memory
            else None
        )
        initialise(self, generator)
        if self.affinity is not None:
            self.affinity.start_small()
        self.guide: Guide | None = None
        if config.guided:
            if value is None:
                raise ConfigError("policy.guided needs the pair value that is to guide: set reward.kind=pair")
            self.guide = Guide(value)
            nn.init.zeros_(self.pointer.pointer_vector.weight)  # the guide alone decides at first

    def encode(self, batch: TensorBatch) -> EncodedRequests:
        """The requests' graphs as node embeddings and keys."""
        whole = bool(batch.present.all()) if batch.facts is None else batch.facts.all_present
        present = None if whole else batch.present
        encoded = self.pointer.encode(self.encoder(self.inputs(batch), present), present)
        return encoded if self.affinity is None else encoded._replace(affinity=self.affinity(batch))

    def start(self, encoded: EncodedRequests, num_rows: int = 1) -> State:
        """The state before the first choice, for `num_rows` rows (samples, beams) per request."""
        return self.pointer.start(encoded, num_rows)

    def step(self, encoded: EncodedRequests, state: State) -> Float[Tensor, "B S N"]:
        """Raw scores of every position as the next choice."""
        return self.pointer.step(encoded, state)

    def advance(self, encoded: EncodedRequests, state: State, position: Int[Tensor, "B S"]) -> State:
        """The state after choosing `position` in every row."""
        return self.pointer.advance(encoded, state, position)

    def replay(self, encoded: EncodedRequests, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """The scores before each choice of given cards, all steps at once."""
        return self.pointer.replay(encoded, cards)

    def attention(self, batch: TensorBatch) -> Float[Tensor, "B L H N N"]:
        """What every candidate attends to in the encoder, per layer and head."""
        return self.encoder.attention(self.inputs(batch), batch.present)

    def steps(self, batch: TensorBatch) -> Steps[Any]:
        """This policy bound to a batch, encoded once: what the functions of `search` ask for."""
        own = PolicySteps(self, self.encode(batch))
        return own if self.guide is None else GuidedSteps(own, self.guide.gains(batch), self.guide.scale)


@dataclass(frozen=True)
class PolicySteps:
    """A policy and the requests it is to write cards for (a `search.Steps`)."""

    policy: Policy
    encoded: EncodedRequests

    def start(self, num_rows: int) -> State:
        """The state before the first choice."""
        return self.policy.start(self.encoded, num_rows)

    def step(self, state: State) -> Float[Tensor, "B S N"]:
        """Raw scores of every position."""
        return self.policy.step(self.encoded, state)

    def advance(self, state: State, position: Int[Tensor, "B S"]) -> State:
        """The state after choosing."""
        return self.policy.advance(self.encoded, state, position)

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """The scores along given cards."""
        return self.policy.replay(self.encoded, cards)
