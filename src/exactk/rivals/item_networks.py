"""Networks that score items: one at a time (DeepRank, MNL, factors), or in the light of all candidates of the request.

Know no cards. Those that need an initial list order the candidates by a first score of their own, learned alongside, so
the order they came in never matters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from exactk.errors import InputError
from exactk.models.gattn import Encoder, EncoderLayer
from exactk.models.inputs import InputLayer, Vectors, initialise
from exactk.models.policy import Affinity
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod
from exactk.rivals.selection import DPP, MMR, Judge, by_weight, diversified, scatter
from exactk.rivals.training import (
    ItemScorer,
    ItemWeights,
    bpr_loss,
    click_softmax,
    fit_scorer,
    liked_in,
    pointwise_loss,
    settings_for,
    softmax_loss,
)
from exactk.search.feasible import mark
from exactk.settings.config import Inputs, InputSizes, PolicyConfig
from exactk.tensors import TensorBatch

EMBEDDING, WIDTH, HEADS, LAYERS = 16, 32, 2, 2
RANK = 32  # of the factors
INDUCED = 20  # learned points through which SetRank's items attend to each other
LONGEST = 512  # places an initial list may have


class DeepRank(nn.Module):
    """The paper's input layer, two hidden layers of 32, one logit."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__()
        self.inputs = InputLayer(Vectors(inputs, sizes, EMBEDDING), WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.out = nn.Linear(WIDTH, 1)
        initialise(self, generator)

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        scores: Tensor = self.out(self.hidden(self.inputs(batch))).squeeze(-1)
        return scores


def fit_deeprank(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Clicks on shown items by maximum likelihood; every second trial counts unshown ones as not clicked."""

    def loss(network: DeepRank, setting: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
        counted, liked = _counted(setting, batch), liked_in(batch)
        if batch.clicked is not None:  # a click on nobody knows which item tells nothing about any of them
            counted = counted & ~(batch.clicked & ~liked.any(1)).unsqueeze(1)
        return pointwise_loss(network(batch), counted, liked)

    scorer = ItemScorer(
        "DeepRank",
        lambda setting, generator: DeepRank(setting["inputs"], train.sizes, generator),
        loss,
        "sigmoid",
        by_clicks_alone=False,
    )
    network, plain = fit_scorer(scorer, _by_variant(train, "shown", "candidates"), train, valid, budget)

    @torch.no_grad()
    def likeness(batch: TensorBatch) -> Float[Tensor, "B N F"]:
        """What makes two items alike: their features or, where there are none, the embeddings learned."""
        return network.inputs.vectors.item(batch) if batch.item_features is None else batch.item_features

    weights = ItemWeights(network, "sigmoid")
    ways, chosen, judge = by_weight("DeepRank", weights), dict(plain.chosen), Judge.of(valid, budget)
    for name, kind in (("DeepRank MMR", MMR), ("DeepRank DPP", DPP)):
        ways[name], setting, _ = diversified(kind, weights, likeness, judge, budget)
        chosen |= setting
    return TrainedMethod(ways, chosen, plain.valid_score)


def _by_variant(train: Logs, *among: str) -> list[Setting]:
    """Every setting with each set of items that a click is compared with."""
    variants = [variant for variant in among if variant == "candidates" or train.passed_over]
    return [{**setting, "variant": variant} for setting in settings_for(train.sizes) for variant in variants]


def _counted(setting: Setting, batch: TensorBatch) -> Bool[Tensor, "B N"]:
    """The rest of the card, or of the candidates."""
    assert batch.card is not None
    if setting["variant"] == "candidates":
        return batch.present
    return mark(batch.card.unsqueeze(1), batch.item.shape[1]).squeeze(1)


class LinearWorth(nn.Module):
    """w_i = a x_i + x_u B x_i, by features alone: B is of low rank, so that what a user likes may differ."""

    def __init__(self, item_size: int, user_size: int, rank: int, generator: Generator) -> None:
        super().__init__()
        self.item = nn.Parameter(torch.zeros(item_size))
        self.left = nn.Parameter(0.01 * torch.randn(user_size, rank, generator=generator))
        self.right = nn.Parameter(0.01 * torch.randn(item_size, rank, generator=generator))

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        assert batch.item_features is not None
        worth: Tensor = batch.item_features @ self.item
        if batch.user_features is None:
            return worth
        return worth + (
            (batch.user_features @ self.left).unsqueeze(1) * (batch.item_features @ self.right)
        ).sum(-1)


def fit_mnl(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Multinomial logit: the chance of a click on an item is its share of all worths on the card.

    P(click i | card) = exp(w_i) / (exp(w_0) + sum over the card of exp(w_j)). The best assortment of exactly K items
    is the K of the largest worth; under pair rules the exact engine finds it.
    """
    sizes = train.sizes
    if not sizes.item_feature_size:
        raise InputError("a linear choice model needs features of items, and this log has none")

    def make(_: Setting, generator: Generator) -> LinearWorth:
        return LinearWorth(sizes.item_feature_size, max(sizes.user_feature_size, 1), 4, generator)

    settings = [{"learning_rate": rate} for rate in (0.01, 0.003, 0.03)]
    return fit_scorer(ItemScorer("MNL", make, click_softmax), settings, train, valid, budget)[1]


def factors(inputs: Inputs, sizes: InputSizes, generator: Generator) -> Affinity:
    """<p_u, q_i> + b_i; features, where there are some, add a linear part to each, as in LightFM."""
    network = Affinity(PolicyConfig(inputs=inputs, affinity=RANK), sizes)
    initialise(network, generator)
    for linear in (network.from_user, network.from_item):
        if linear is not None:  # products of two sums of many features start large, not near nothing
            linear.weight.data *= 0.1
    return network


def fit_bpr(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """BPR-MF, the paper's pairwise baseline; the others are the rest of the card, or of the candidates."""

    def loss(network: Affinity, setting: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
        return bpr_loss(network(batch), _counted(setting, batch), liked_in(batch))

    scorer = ItemScorer("BPR", _factors_of(train), loss, "sigmoid")
    return fit_scorer(scorer, _by_variant(train, "candidates", "shown"), train, valid, budget)[1]


def fit_mf_softmax(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The clicked item in a softmax over the candidates: the plainest strong baseline."""
    scorer = ItemScorer("MF softmax", _factors_of(train), click_softmax)
    return fit_scorer(scorer, settings_for(train.sizes), train, valid, budget)[1]


def _factors_of(train: Logs) -> Callable[[Setting, Generator], Affinity]:
    return lambda setting, generator: factors(setting["inputs"], train.sizes, generator)


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
