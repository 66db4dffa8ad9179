"""A learned value of whole cards, searched: every card where they are few, else swaps from several starts.

Knows the reward networks of `models`; what it adds is only the search over them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from exactk.learning.losses import mean_over, reward_loss
from exactk.models.reward import Reward
from exactk.problem.batch import Batch
from exactk.rivals.contract import Budget, CardPicker, Logs, Setting, TrainedMethod, tuned
from exactk.rivals.selection import scatter
from exactk.rivals.training import RivalTask, mean_loss, settings_for, trained
from exactk.search.decoding import greedy_by_weight
from exactk.search.feasible import Feasible, kept_sets, mark
from exactk.search.maximise import improve
from exactk.settings.config import RewardConfig
from exactk.tensors import TensorBatch, rows_of

FEW_CARDS = 5_000  # as many as a network judges one by one: C(20, 4) = 4,845
STARTS = 2
AT_ONCE = 40_000  # cards judged in one pass


def fit_value(train_logs: Logs, valid: Logs, budget: Budget) -> tuple[Reward, Setting, float]:
    """A permutation-invariant reward network, tuned by its log loss on validation cards, clicked or not."""
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
