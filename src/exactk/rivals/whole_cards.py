"""Networks that know whole cards: a learned value that is searched; Seq2Slate and a GFlowNet, which write cards.

Know no constraints: search masks what they may choose. The reward networks are those of `models`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from exactk.errors import InputError
from exactk.learning.losses import NOTHING, mean_over, remaining, reward_loss, uniform_loss
from exactk.models.gattn import EncodedRequests, Pointer, PointerSteps
from exactk.models.inputs import InputLayer, Vectors, initialise
from exactk.models.reward import Reward
from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, CardPicker, Logs, Setting, TrainedMethod, tuned
from exactk.rivals.item_networks import FirstList
from exactk.rivals.selection import Judge, scatter
from exactk.rivals.training import RivalTask, liked_in, mean_loss, settings_for, softmax_loss, trained
from exactk.search.decoding import beam, distributions, greedy, greedy_by_weight, log_prob, sample
from exactk.search.feasible import Feasible, kept_sets, mark
from exactk.search.maximise import improve
from exactk.settings.config import Inputs, InputSizes, PolicyConfig, RewardConfig
from exactk.tensors import TensorBatch, rows_of

FEW_CARDS = 5_000  # as many as a network judges one by one: C(20, 4) = 4,845
STARTS = 2
AT_ONCE = 40_000  # cards judged in one pass


def fit_value(train_logs: Logs, valid: Logs, budget: Budget) -> tuple[Reward, Setting, float]:
    """A permutation-invariant reward network, tuned by its log loss on validation cards, clicked or not."""
    if not train_logs.passed_over or not 0 < train_logs.view.clicked.mean() < 1:
        raise InputError("a value of cards is learned from cards that were clicked and cards that were not")
    held_out = [TensorBatch.of(b) for b in valid.first(2 * budget.validation_rows).batches(budget.batch_size)]

    def loss(network: Reward, batch: TensorBatch) -> Float[Tensor, ""]:
        assert batch.card is not None
        assert batch.clicked is not None
        logits = network(batch, batch.card.unsqueeze(1)).squeeze(1)
        return mean_over(reward_loss(logits, batch.clicked), torch.ones_like(batch.clicked))

    def attempt(setting: Setting) -> tuple[Reward, float]:
        config = RewardConfig(kind="set", inputs=setting["inputs"])
        network = Reward(config, train_logs.sizes, train_logs.card_size, Generator().manual_seed(budget.seed))
        task = RivalTask(
            "value",
            lambda batch, _: loss(network, batch),
            train_logs,
            lambda: -mean_loss(lambda batch: loss(network, batch), held_out),
        )
        return network, trained(network, task, setting["learning_rate"], budget)

    return tuned(settings_for(train_logs.sizes, (0.001, 0.003, 0.0003)), budget, attempt)


@dataclass(frozen=True)
class SwapSearch:
    """The best card reached by single swaps from a few starts that depend on user and items alone."""

    network: Reward

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        asked = TensorBatch.of(batch)
        feasible = Feasible.of(asked)
        ends = []
        for seed in range(STARTS):
            start = greedy_by_weight(scatter(asked.item, asked.user, seed), feasible)
            ends.append(improve(asked, start, lambda cards: self.network(asked, cards)))
        cards = torch.stack(ends, 1)  # B S K
        best = self.network(asked, cards).argmax(1)
        return rows_of(cards, best).numpy()


@dataclass(frozen=True)
class Exhaustive:
    """Every valid card judged; for requests with few of them."""

    network: Reward

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        return self._best(TensorBatch.of(batch)).numpy()

    def _best(self, batch: TensorBatch) -> Int[Tensor, "B K"]:
        longest = int(batch.card_size.max())
        found = torch.full((len(batch), longest), -1)
        for size in sorted(set(batch.card_size.tolist())):
            every = torch.tensor(list(itertools.combinations(range(batch.item.shape[1]), size)))  # C k
            rows = (batch.card_size == size).nonzero().squeeze(1)
            for part in rows.split(max(1, AT_ONCE // max(len(every), 1))):
                some = batch.rows(part)
                value = self.network(some, every.expand(len(some), -1, -1))
                best = value.masked_fill(~valid_among(some, every), -torch.inf).argmax(1)
                found[part, :size] = every[best]
        return Feasible.of(batch).placed(found.unsqueeze(1)).squeeze(1)


def valid_among(batch: TensorBatch, cards: Int[Tensor, "C K"]) -> Tensor:
    """[B, C]: which of the cards are valid for each request."""
    first, second = torch.triu_indices(cards.shape[1], cards.shape[1], 1)
    valid = batch.graph[:, cards[:, first], cards[:, second]].all(-1) & batch.present[:, cards].all(-1)
    valid &= batch.pinned[:, cards].sum(-1) == batch.pinned.sum(-1, keepdim=True)
    for c in range(batch.cap.shape[1]):
        group = batch.group[:, c][:, cards]  # B C K
        same = (group.unsqueeze(-1) == group.unsqueeze(-2)) & (group >= 0).unsqueeze(-2)
        counted = (same.sum(-1) <= batch.cap[:, c, None, None]) | (group < 0)
        valid &= counted.all(-1)
    if batch.brief is not None:
        sets = mark(cards.unsqueeze(0), batch.item.shape[1]).expand(len(batch), -1, -1)
        valid &= kept_sets(batch.requests(), sets, valid)
    return valid


def fit_value_search(train_logs: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The reward estimator maximised: by swaps, and where cards are few also by judging all of them."""
    network, chosen, score = fit_value(train_logs, valid, budget)
    ways: dict[str, CardPicker] = {"set value + swaps": SwapSearch(network)}
    if math.comb(train_logs.num_candidates, train_logs.card_size) <= FEW_CARDS:
        ways["set value + exact"] = Exhaustive(network)
    return TrainedMethod(ways, chosen, score)


EMBEDDING, WIDTH = 16, 32
BEAM = 8
SAMPLES = 4  # cards a GFlowNet draws per request and step


class Seq2Slate(nn.Module):
    """Bello et al. 2018: an LSTM reads the initial list, a pointer network writes the slate."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__()
        self.inputs = InputLayer(Vectors(inputs, sizes, EMBEDDING), WIDTH)
        self.first = FirstList()
        self.encoder = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.pointer = Pointer(PolicyConfig(width=WIDTH, decoder_layers=1))
        initialise(self, generator)

    def encode(self, batch: TensorBatch) -> tuple[EncodedRequests, Float[Tensor, "B N"]]:
        """Candidates as the LSTM saw them, each at its own position; and the first scores."""
        nodes = self.inputs(batch)
        first = self.first(nodes)
        order = self.first.order(first, batch).unsqueeze(-1).expand_as(nodes)  # best first, absent last
        read, _ = self.encoder(nodes.gather(1, order))
        placed = torch.zeros_like(read).scatter(1, order, read)
        return self.pointer.encode(placed, batch.present), first

    def steps(self, batch: TensorBatch) -> PointerSteps:
        return PointerSteps(self.pointer, self.encode(batch)[0])

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """The likeliest next item, K times."""
        asked = TensorBatch.of(batch)
        return greedy(self.steps(asked), Feasible.of(asked)).numpy()

    def loss(self, batch: TensorBatch, generator: Generator) -> Float[Tensor, ""]:
        """Along a card it wrote itself: what was liked and is not yet chosen is the target of each step."""
        liked = liked_in(batch)
        encoded, first = self.encode(batch)
        steps, feasible = PointerSteps(self.pointer, encoded), Feasible.of(batch)
        with torch.no_grad():
            drawn = sample(steps, feasible, 1, generator=generator)
        along = distributions(steps, feasible, drawn.cards, allowed=drawn.allowed)
        N = liked.shape[1]
        targets = torch.arange(N, device=liked.device).where(liked, NOTHING)
        wanted = remaining(drawn.cards[:, 0], targets, N)
        each = uniform_loss(along.log_probs[:, 0], along.allowed[:, 0], wanted)
        return mean_over(each, liked.any(1)) + softmax_loss(first, batch.present, liked)


def fit_seq2slate(train_logs: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Supervised by clicks, decoded greedily."""
    clicked = train_logs.clicked_only()
    held_out = [TensorBatch.of(batch) for batch in Judge.of(valid, budget).batches]

    def attempt(setting: Setting) -> tuple[Seq2Slate, float]:
        network = Seq2Slate(setting["inputs"], train_logs.sizes, Generator().manual_seed(budget.seed))

        def judged() -> float:
            chance = Generator().manual_seed(budget.seed)  # the same draws for every epoch and trial
            return -mean_loss(lambda batch: network.loss(batch, chance), held_out)

        task = RivalTask("seq2slate", network.loss, clicked, judged)
        return network, trained(network, task, setting["learning_rate"], budget)

    network, chosen, score = tuned(settings_for(train_logs.sizes), budget, attempt)
    return TrainedMethod({"Seq2Slate": network}, chosen, score)


class PartialSet(NamedTuple):
    """A set under construction: the sum of what was chosen, and how much."""

    total: Float[Tensor, "B S D"]
    size: Float[Tensor, "B S 1"]


class SlateFlow(nn.Module):
    """A forward policy over sets, and log Z(S, u), the log of the total flow (Liu et al. 2023)."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, generator: Generator) -> None:
        super().__init__()
        self.inputs = InputLayer(Vectors(inputs, sizes, EMBEDDING), WIDTH)
        self.from_node = nn.Linear(WIDTH, WIDTH)
        self.from_total = nn.Linear(WIDTH, WIDTH, bias=False)
        self.from_product = nn.Linear(WIDTH, WIDTH, bias=False)
        self.from_size = nn.Linear(1, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, 1)
        self.flow = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        initialise(self, generator)

    def steps(self, batch: TensorBatch) -> FlowSteps:
        return FlowSteps(self, self.inputs(batch))

    def log_flow(self, nodes: Float[Tensor, "B N D"], batch: TensorBatch) -> Float[Tensor, "B"]:
        """log Z of each request, from the mean of its candidates."""
        real = batch.present.unsqueeze(-1)
        pooled = (nodes * real).sum(1) / real.sum(1).clamp(min=1)
        flow: Tensor = self.flow(pooled).squeeze(-1)
        return flow

    def balance_loss(
        self,
        batch: TensorBatch,
        cards: Int[Tensor, "B S K"],
        log_reward: Float[Tensor, "B S"],
        feasible: Feasible,
    ) -> Float[Tensor, ""]:
        """Trajectory balance (Malkin et al. 2022): (log Z + log P_F - log R - log P_B)^2.

        A card of K can be written in K! orders and taken apart in as many, each equally likely: P_B = 1 / K!
        (pinned items come first, so p of them leave p! (K - p)! orders).
        """
        steps = self.steps(batch)
        forward = log_prob(steps, feasible, cards)  # B S
        flow = self.log_flow(steps.nodes, batch).unsqueeze(1)
        return (flow + forward - log_reward - backward_log_prob(batch).unsqueeze(1)).square().mean()


def backward_log_prob(batch: TensorBatch) -> Float[Tensor, "B"]:
    """-log of the number of orders in which a card can have been written."""
    pinned = batch.pinned.sum(1)
    return -(torch.lgamma(pinned + 1.0) + torch.lgamma((batch.card_size - pinned) + 1.0))


@dataclass(frozen=True)
class FlowSteps:
    """A flow bound to a batch, its nodes computed once."""

    network: SlateFlow
    nodes: Float[Tensor, "B N D"]

    def start(self, num_rows: int) -> PartialSet:
        B, _, D = self.nodes.shape
        return PartialSet(self.nodes.new_zeros(B, num_rows, D), self.nodes.new_zeros(B, num_rows, 1))

    def step(self, state: PartialSet) -> Float[Tensor, "B S N"]:
        net = self.network
        about = (net.from_total(state.total) + net.from_size(state.size)).unsqueeze(2)  # B S 1 D
        together = net.from_product(self.nodes.unsqueeze(1) * state.total.unsqueeze(2))  # B S N D
        hidden = (net.from_node(self.nodes).unsqueeze(1) + about + together).relu()
        scores: Tensor = net.out(hidden).squeeze(-1)
        return scores

    def advance(self, state: PartialSet, position: Int[Tensor, "B S"]) -> PartialSet:
        return PartialSet(state.total + rows_of(self.nodes, position.clamp(min=0)), state.size + 1)

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """All prefixes of all cards at once."""
        B, S, K = cards.shape
        chosen = rows_of(self.nodes, cards.clamp(min=0))  # B S K D
        before = chosen.cumsum(2) - chosen
        size = torch.arange(K, device=cards.device, dtype=chosen.dtype).expand(B, S, K)
        state = PartialSet(before.flatten(1, 2), size.flatten(1).unsqueeze(-1))
        return self.step(state).view(B, S, K, -1)


@dataclass(frozen=True)
class FlowSlate:
    """The likeliest sets of the flow, the most valuable of them by the estimator it was trained on."""

    network: SlateFlow
    value: Reward

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        return self.most_valuable(TensorBatch.of(batch))[0].numpy()

    @torch.no_grad()
    def most_valuable(self, batch: TensorBatch) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B"]]:
        """The cards, and the logit of what each is worth."""
        found = beam(self.network.steps(batch), Feasible.of(batch), BEAM)
        worth = self.value(batch, found.cards).masked_fill(found.log_prob.isneginf(), -torch.inf)
        best, place = worth.max(1)
        return rows_of(found.cards, place), best


def fit_gflownet(train_logs: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Cards drawn with probability proportional to (estimated click probability)^sharpness.

    It learns from cards of its own, drawn a little flatter than it believes; judged by the estimator's view
    of its cards on validation requests.
    """
    value, chosen_value, _ = fit_value(train_logs, valid, replace(budget, trials=1))
    value.requires_grad_(requires_grad=False)
    held_out = [TensorBatch.of(batch) for batch in Judge.of(valid, budget).batches]
    settings = [
        {**setting, "sharpness": sharpness}
        for setting in settings_for(train_logs.sizes, (0.003, 0.001))
        for sharpness in (8.0, 16.0)
    ]

    def attempt(setting: Setting) -> tuple[FlowSlate, float]:
        network = SlateFlow(setting["inputs"], train_logs.sizes, Generator().manual_seed(budget.seed))
        way = FlowSlate(network, value)

        def loss(batch: TensorBatch, generator: Generator) -> Float[Tensor, ""]:
            feasible = Feasible.of(batch)
            with torch.no_grad():
                cards = sample(network.steps(batch), feasible, SAMPLES, 1.5, generator).cards
                log_reward = setting["sharpness"] * nn.functional.logsigmoid(value(batch, cards))
            return network.balance_loss(batch, cards, log_reward, feasible)

        def judged() -> float:
            worth = [way.most_valuable(batch)[1].sigmoid().sum().item() for batch in held_out]
            return sum(worth) / max(sum(map(len, held_out)), 1) if worth else math.nan

        task = RivalTask("gflownet", loss, train_logs, judged)
        return way, trained(network, task, setting["learning_rate"], budget)

    way, chosen, score = tuned(settings, budget, attempt)
    return TrainedMethod({"GFlowNet": way}, {**chosen, "value": dict(chosen_value)}, score)
