"""Networks that read all candidates before they score each: Listwise-GRU, Listwise-MHSA, PRM, SetRank.

Know no cards: they score items in the light of the other candidates. Those that need an initial list order
the candidates by a first score of their own, learned alongside, so the order they came in never matters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from exactk.models.gattn import Encoder, EncoderLayer
from exactk.models.inputs import InputLayer, Vectors, initialise
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod
from exactk.rivals.selection import scatter
from exactk.rivals.training import ItemScorer, fit_scorer, liked_in, settings_for, softmax_loss
from exactk.settings.config import Inputs, InputSizes, PolicyConfig
from exactk.tensors import TensorBatch

EMBEDDING, WIDTH, HEADS, LAYERS = 16, 32, 2, 2
INDUCED = 20  # learned points through which SetRank's items attend to each other
LONGEST = 512  # places an initial list may have


class FirstList(nn.Module):
    """A first, pointwise score and the list it makes: best first, absent candidates last, equals by item."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, nodes: Float[Tensor, "B N D"]) -> Float[Tensor, "B N"]:
        scores: Tensor = self.out(nodes).squeeze(-1)
        return scores

    def order(self, scores: Float[Tensor, "B N"], batch: TensorBatch) -> Int[Tensor, "B N"]:
        """Positions, best first; no gradient goes through an order."""
        lasting = scores.detach().double() + 1e-9 * scatter(batch.item)
        return lasting.masked_fill(~batch.present, -torch.inf).argsort(1, descending=True)


class ListNetwork(nn.Module, ABC):
    """Common parts: the paper's input layer, and a first list for those that need one."""

    def __init__(self, inputs: Inputs, sizes: InputSizes) -> None:
        super().__init__()
        self.inputs = InputLayer(Vectors(inputs, sizes, EMBEDDING), WIDTH)
        self.first = FirstList()

    @abstractmethod
    def scores(self, batch: TensorBatch) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"] | None]:
        """Final scores, and the first ones where a list was made of them (they are trained too)."""

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        return self.scores(batch)[0]


class Dlcm(ListNetwork):
    """Ai et al. 2018 (Listwise-GRU): a GRU reads the list from its end; its last state weighs all outputs."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__(inputs, sizes)
        self.recurrent = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.context = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, 1, bias=False)
        initialise(self, generator)

    def scores(self, batch: TensorBatch) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"] | None]:
        """v . (o_i * tanh(W s + b)), o_i the GRU's output at item i and s its last state."""
        nodes = self.inputs(batch)
        first = self.first(nodes)
        order = self.first.order(first, batch).flip(1)  # worst first: the best are read last, and remembered
        spread = order.unsqueeze(-1).expand_as(nodes)
        # Absent candidates come first in the reversed list; even as zero inputs they would move the state
        # through its biases, so the reading starts where the real ones begin.
        read, real = nodes.gather(1, spread), batch.present.gather(1, order)
        outputs = _read(self.recurrent, read, real)
        last = outputs[:, -1:]  # B 1 D
        final = self.out(outputs * self.context(last).tanh()).squeeze(-1)  # B N, in list order
        return torch.zeros_like(final).scatter(1, order, final), first


def _read(
    recurrent: nn.GRU, nodes: Float[Tensor, "B N D"], real: Bool[Tensor, "B N"]
) -> Float[Tensor, "B N D"]:
    """Outputs of a GRU that starts at the first real node of each row; zeros before it."""
    if bool(real.all()):
        outputs: Tensor = recurrent(nodes)[0]
        return outputs
    lengths = real.sum(1)
    N = nodes.shape[1]
    at = torch.arange(N, device=nodes.device).unsqueeze(0)
    ahead = (at + (N - lengths).unsqueeze(1)).clamp(max=N - 1)  # real nodes moved to the front
    moved = nodes.gather(1, ahead.unsqueeze(-1).expand_as(nodes))
    outputs = recurrent(moved)[0]
    back = (at - (N - lengths).unsqueeze(1)).clamp(min=0)
    return outputs.gather(1, back.unsqueeze(-1).expand_as(outputs)) * real.unsqueeze(-1)


class Mhsa(ListNetwork):
    """The paper's encoder (multi-head self-attention, no positions) with a score per node: Listwise-MHSA."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__(inputs, sizes)
        self.encoder = Encoder(replace(PolicyConfig(), width=WIDTH, heads=HEADS, encoder_layers=LAYERS))
        self.out = nn.Linear(WIDTH, 1)
        initialise(self, generator)

    def scores(self, batch: TensorBatch) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"] | None]:
        """One linear map of every encoded node."""
        return self.out(self.encoder(self.inputs(batch), batch.present)).squeeze(-1), None


class Prm(ListNetwork):
    """Pei et al. 2019: the list's places are embedded, a transformer mixes the items, a softmax re-ranks."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__(inputs, sizes)
        self.place = nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(
            EncoderLayer(WIDTH, HEADS, 2 * WIDTH, shared=False) for _ in range(LAYERS)
        )
        self.out = nn.Linear(WIDTH, 1)
        initialise(self, generator)

    def scores(self, batch: TensorBatch) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"] | None]:
        """Scores in the light of the list; PRM's personal vector is the user's half of the input layer."""
        nodes = self.inputs(batch)
        first = self.first(nodes)
        place = self.first.order(first, batch).argsort(1)  # where each candidate stands in the list
        nodes = nodes + self.place(place.clamp(max=LONGEST - 1))
        for layer in self.layers:
            nodes, _ = layer(nodes, batch.present)
        return self.out(nodes).squeeze(-1), first


class InducedBlock(nn.Module):
    """SetRank's IMSAB: learned points attend to the items, the items attend to the points."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.empty(INDUCED, WIDTH))
        self.gather = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.spread = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.widen = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, nodes: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
        """Items mixed through the points; cost grows with N, not with its square."""
        points = self.points.expand(len(nodes), -1, -1)
        met, _ = self.gather(points, nodes, nodes, key_padding_mask=~present, need_weights=False)
        met = self.norms[0](points + met)
        mixed, _ = self.spread(nodes, met, met, need_weights=False)
        nodes = self.norms[1](nodes + mixed)
        mixed_out: Tensor = self.norms[2](nodes + self.widen(nodes))
        return mixed_out


class SetRank(ListNetwork):
    """Pang et al. 2020: a permutation-invariant ranker of induced self-attention blocks."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__(inputs, sizes)
        self.blocks = nn.ModuleList(InducedBlock() for _ in range(LAYERS))
        self.out = nn.Linear(WIDTH, 1)
        initialise(self, generator)

    def scores(self, batch: TensorBatch) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"] | None]:
        """One linear map of every mixed node."""
        nodes = self.inputs(batch)
        for block in self.blocks:
            nodes = block(nodes, batch.present)
        return self.out(nodes).squeeze(-1), None


Make = Callable[[Inputs, InputSizes, Generator], ListNetwork]


def _fit(name: str, make: Make, train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Softmax cross entropy of the clicked item over the candidates; a first list has the same loss."""

    def loss(network: ListNetwork, _: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
        final, first = network.scores(batch)
        total = softmax_loss(final, batch.present, liked_in(batch))
        if first is not None:
            total = total + softmax_loss(first, batch.present, liked_in(batch))
        return total

    scorer = ItemScorer(
        name, lambda setting, generator: make(setting["inputs"], train.sizes, generator), loss
    )
    return fit_scorer(scorer, settings_for(train.sizes), train, valid, budget)[1]


fit_listwise_gru = partial(_fit, "Listwise-GRU", Dlcm)
fit_listwise_mhsa = partial(_fit, "Listwise-MHSA", Mhsa)
fit_prm = partial(_fit, "PRM", Prm)
fit_setrank = partial(_fit, "SetRank", SetRank)
