"""Reward estimators: the logit of P(r=1|A,u), in the paper's PNN form (eq. 18), as a set, or as a pair value.

Knows neither training nor the policy; S cards per request are judged at once.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exactk.errors import InputError
from exactk.models.gattn import EncoderLayer
from exactk.models.inputs import CommonVectors
from exactk.models.pairvalue import Ensemble, PairValue
from exactk.settings.config import Config, InputSizes, RewardConfig
from exactk.tensors import TensorBatch


class RewardMember(nn.Module):
    """What the two forms share: a hidden layer over what was read of a card, and the logit."""

    hidden: nn.Linear
    out: nn.Linear

    def end_with(self, config: RewardConfig, size: int) -> None:
        """The last layers, `size` numbers wide at their beginning."""
        self.hidden = nn.Linear(size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(config.hidden_size, 1)

    def logits(self, read: Float[Tensor, "B S F"]) -> Float[Tensor, "B S"]:
        """Of what was read of each card."""
        logits: Tensor = self.out(self.dropout(self.hidden(read).relu()))
        return logits.squeeze(-1)

    @torch.no_grad()
    def start_small(self) -> None:
        """Begin near a constant."""
        self.out.weight.mul_(0.1)

    @torch.no_grad()
    def start_at(self, logit: float) -> None:
        self.out.bias.fill_(logit)


class PnnReward(RewardMember):
    """W_R2 ReLU(W_R1 [[x_a . x_u]_K; [x_a]_K; x_u] + b_R1) + b_R2: the paper's form, for cards of one size K.

    It reads the items in the order given, though a card is a set.
    """

    def __init__(self, config: RewardConfig, sizes: InputSizes, card_size: int) -> None:
        super().__init__()
        self.card_size = card_size
        self.vectors = CommonVectors(config.inputs, sizes, config.embedding_size)
        E = config.embedding_size
        self.end_with(config, card_size + card_size * E + E)

    def forward(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
        """Logits of cards, each of exactly the K items the network was made for."""
        short = batch.facts is None and bool((cards < 0).any())
        if cards.shape[2] != self.card_size or short:
            raise InputError(
                f"a reward of kind pnn made for {self.card_size} judges cards of exactly {self.card_size} items; "
                "reward.kind=set takes any size"
            )
        item = self.vectors.on_cards(batch, cards)  # B S K E
        user = self.vectors.user(batch)[:, None, None]  # B 1 1 E
        products = (item * user).sum(-1)  # B S K
        same = user.squeeze(2).expand(-1, cards.shape[1], -1)  # B S E
        return self.logits(torch.cat([products, item.flatten(2), same], -1))


class SetReward(RewardMember):
    """A small set transformer: items attend to one another within a card, their mean decides. Any K, no order."""

    def __init__(self, config: RewardConfig, sizes: InputSizes) -> None:
        super().__init__()
        E, D = config.embedding_size, config.width
        self.vectors = CommonVectors(config.inputs, sizes, E)
        self.from_item = nn.Linear(E, D)
        self.from_user = nn.Linear(E, D, bias=False)
        self.from_both = nn.Linear(E, D, bias=False)
        self.layers = nn.ModuleList(
            EncoderLayer(D, config.heads, 2 * D, shared=False) for _ in range(config.layers)
        )
        self.end_with(config, D + 1)

    def forward(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
        B, S, K = cards.shape
        real = cards >= 0
        item = self.vectors.on_cards(batch, cards)  # B S K E
        user = self.vectors.user(batch)[:, None, None]  # B 1 1 E
        nodes = (self.from_item(item) + self.from_user(user) + self.from_both(item * user)).relu()
        nodes = nodes.view(B * S, K, -1)
        for layer in self.layers:
            nodes, _ = layer(nodes, real.view(B * S, K))
        size = real.sum(-1, keepdim=True)  # B S 1
        pooled = (nodes.view(B, S, K, -1) * real.unsqueeze(-1)).sum(2) / size.clamp(min=1)
        return self.logits(torch.cat([pooled, size.to(pooled.dtype)], -1))


class Reward(Ensemble):
    """The estimator of kind `pnn` (which needs the one card size it is for) or `set`."""

    def __init__(
        self,
        config: RewardConfig,
        sizes: InputSizes,
        card_size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            PnnReward(config, sizes, card_size) if config.kind == "pnn" else SetReward(config, sizes)
            for _ in range(config.members)
        )
        self.config = config
        self.sizes = sizes
        self.begin(generator)


def reward_of(
    config: Config, sizes: InputSizes, card_size: int, generator: torch.Generator | None = None
) -> Reward | PairValue:
    """The reward estimator the settings ask for."""
    if config.reward.kind == "pair":
        return PairValue(config.pair_value, sizes, generator)
    return Reward(config.reward, sizes, card_size, generator)
