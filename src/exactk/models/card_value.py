"""CardValue: GAttN's encoder over the candidates, a score of each and of every two; what exact search maximises.

Knows no search and no training. `docs/guide/models.md` says what its numbers are trained to mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from exactk.engine.shapes import CardReads
from exactk.models.card_inputs import CardInputs, Categories, ListInputs, two_of
from exactk.models.inputs import hidden
from exactk.models.pairvalue import PairMember, SearchableValue, Values
from exactk.settings.config import CardValueConfig, InputSizes, PairValueConfig
from exactk.tensors import TensorBatch, rows_of

FAR = -1e9


class Dropout(nn.Module):
    """torch's own, but from 16 random bits a number: torch's draws were a fifth of a step's time on the CPU."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Some of the numbers become 0, the others larger, so that their mean stays."""
        if not self.training or not self.share:
            return values
        if values.is_cuda:
            return functional.dropout(values, self.share)
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: values.numel()].view(values.shape)
        left_out = round(self.share * 2**16)
        return values * ((bits >= left_out - 2**15) * (1 / (1 - left_out / 2**16)))


class Layer(nn.Module):
    """Self-attention, steered by what pairs are like, and a feed-forward part; each beside what it is added to."""

    def __init__(self, config: CardValueConfig, attends: bool) -> None:
        super().__init__()
        D = config.width
        self.heads = config.heads
        self.attends = attends
        if attends:
            self.attention_norm = nn.LayerNorm(D)
            self.project, self.join = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.feed_forward_norm = nn.LayerNorm(D)
        F = config.feed_forward_size
        self.widen, self.narrow = nn.Linear(D, F), nn.Linear(F, D)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, nodes: Float[Tensor, "B N D"], bias: Float[Tensor, "B #H #N N"]
    ) -> Float[Tensor, "B N D"]:
        """Embeddings of the next layer; `bias` is added to the scores of attention, very low where none is wanted."""
        if self.attends:
            B, N, D = nodes.shape
            H, d = self.heads, D // self.heads
            parts = self.project(self.attention_norm(nodes)).view(B, N, 3, H, d)
            query, key, value = parts.permute(2, 0, 3, 1, 4).reshape(3, B * H, N, d)
            start = bias.expand(B, H, N, N).reshape(B * H, N, N)
            scores = torch.baddbmm(start, query, key.transpose(1, 2), alpha=1 / math.sqrt(d))
            weights = self.dropout(scores.softmax(-1))
            mixed = (weights @ value).view(B, H, N, d).transpose(1, 2).reshape(B, N, D)
            nodes = nodes + self.dropout(self.join(mixed))
        wide = self.widen(self.feed_forward_norm(nodes)).relu()
        deeper: Tensor = nodes + self.dropout(self.narrow(wide))
        return deeper


class CardMember(nn.Module):
    """One network: h = encoder(columns, context, terms of ids and features); node = f(h) + offset by the score;
    pair = g(pair columns) + <h_i W, h_j W>, where cards tell of pairs; both on top of a pair value's own terms.
    """

    def __init__(
        self, config: CardValueConfig, pair_config: PairValueConfig, sizes: InputSizes, reads: CardReads
    ) -> None:
        super().__init__()
        D = config.width
        self.hidden_share = config.hidden_share
        self.attends, self.scores_pairs = reads.attends, reads.scores_pairs
        self.knows_users = sizes.users_recur
        self.base = PairMember(replace(pair_config, hidden_share=0.0), sizes) if reads.base else None
        alike = (config.embedding_size, config.hidden_share)
        self.categories = Categories(reads.categories, *alike)
        self.context_categories = Categories(reads.context_categories, *alike)
        base_size = 0 if self.base is None else self.base.vectors.item_size + pair_config.embedding_size
        self.item = nn.Linear(reads.candidate_size + self.categories.size + base_size, D)
        self.context = nn.Linear(reads.context_size + self.context_categories.size, D)
        self.layers = nn.ModuleList(Layer(config, self.attends) for _ in range(config.layers))
        self.steers = self.attends and reads.pair_size > 0 and config.layers > 0
        if self.steers:
            self.bias_hidden = nn.Linear(reads.pair_size, config.bias_hidden)
            self.bias_out = nn.Linear(config.bias_hidden, config.heads * config.layers)
        self.norm = nn.LayerNorm(D)
        self.node_hidden, self.node_out = nn.Linear(D, D), nn.Linear(D, 1, bias=False)
        self.node_linear = nn.Linear(D, 1, bias=False)
        self.offset = nn.Parameter(torch.empty(()))  # weight of the upstream score
        self.user_bias = nn.Parameter(torch.empty(()))
        self.choice_scale = nn.Parameter(torch.empty(()))  # as a pair value's
        self.low_rank = config.low_rank if self.scores_pairs else 0
        if self.scores_pairs and reads.pair_size:
            self.pair_linear = nn.Linear(reads.pair_size, 1, bias=False)
            self.pair_hidden = nn.Linear(reads.pair_size, config.pair_hidden)
            self.pair_out = nn.Linear(config.pair_hidden, 1)
        if self.low_rank:
            self.low = nn.Linear(D, self.low_rank, bias=False)
            self.low_weight = nn.Parameter(torch.empty(self.low_rank))
        self.dropout = Dropout(config.dropout)

    @torch.no_grad()
    def start_small(self) -> None:
        """Pairs begin at nothing: an untrained pair score would decide cards that it knows nothing of."""
        if self.base is not None:
            self.base.start_small()
        if self.steers:
            self.bias_out.weight.zero_()
        if self.scores_pairs and hasattr(self, "pair_out"):
            self.pair_linear.weight.zero_()
            self.pair_out.weight.zero_()

    @torch.no_grad()
    def start_at(self, logit: float) -> None:
        """Begin at this constant."""
        self.user_bias.fill_(logit)

    def pair_weights(self) -> list[Tensor]:
        """As of a pair value, its terms among them."""
        found = [] if self.base is None else self.base.pair_weights()
        if hasattr(self, "pair_out"):
            found += [self.pair_linear.weight, self.pair_out.weight, self.pair_out.bias]
        return [*found, self.low_weight] if self.low_rank else found

    def values(self, batch: TensorBatch, listed: ListInputs, at: Int[Tensor, "B R"] | None = None) -> Values:
        """Scores of all candidates, or of the positions `at`, for which `listed` was read."""
        base, features = self._base(batch, at)
        h = self._embedded(listed, features)
        node = self.node_out(self.dropout(self.node_hidden(h).relu())) + self.node_linear(h)
        node = node.squeeze(-1) + self.offset * listed.score + base.node
        return Values(self.user_bias + base.bias, node * listed.present, self._pairs(h, listed) + base.pair)

    def _base(self, batch: TensorBatch, at: Tensor | None) -> tuple[Values, Tensor]:
        """The pair value's terms, and what the encoder reads of ids and features."""
        B, R = batch.item.shape if at is None else at.shape
        if self.base is None:
            none = torch.zeros(B, R, 0, device=batch.item.device)
            return Values(none.new_zeros(B), none.new_zeros(B, R), none.new_zeros(B, 1, 1)), none
        if not self.knows_users:
            batch = replace(batch, user=torch.zeros_like(batch.user))
        if self.training:
            hide = self.hidden_share
            batch = replace(batch, item=hidden(batch.item, hide), user=hidden(batch.user, hide))
        item, user = self.base.vectors.item(batch, at), self.base.vectors.user(batch)
        both = self.base.map_item(item) * self.base.map_user(user).unsqueeze(1)
        terms = self.base.terms(item, user)
        pair = terms.node.new_zeros(B, 1, 1)
        if self.scores_pairs:
            pair = self.base.pairs(terms)
        values = Values(self.base.user_bias(user).squeeze(-1), terms.node, pair)
        return values, torch.cat([item, both], -1)

    def _embedded(self, listed: ListInputs, features: Tensor) -> Float[Tensor, "B R D"]:
        item = self.item(torch.cat([listed.candidates, self.categories(listed.categories), features], -1))
        context = [listed.context, self.context_categories(listed.context_categories)]
        nodes = self.dropout(item + self.context(torch.cat(context, -1)).unsqueeze(1))
        for layer, bias in zip(self.layers, self._steering(listed), strict=True):
            nodes = layer(nodes, bias)
        normed: Tensor = self.norm(nodes)
        return normed

    def _steering(self, listed: ListInputs) -> Sequence[Tensor]:
        """What is added to the scores of attention in each layer."""
        far = torch.zeros_like(listed.score).masked_fill(~listed.present, FAR)[:, None, None]  # B 1 1 N
        if not self.steers:
            return [far] * len(self.layers)
        extra = self.bias_out(self.bias_hidden(listed.pairs).relu())  # B T H*L
        square = both_ways(extra, listed.score.shape[1]).permute(0, 3, 1, 2)
        return (square + far).chunk(len(self.layers), 1)

    def _pairs(self, h: Tensor, listed: ListInputs) -> Float[Tensor, "B R R"]:
        B, R = listed.score.shape
        pair = h.new_zeros(B, R, R)
        if not self.scores_pairs:
            return pair
        if hasattr(self, "pair_out"):
            deep = self.pair_out(self.dropout(self.pair_hidden(listed.pairs).relu()))
            pair = both_ways(self.pair_linear(listed.pairs) + deep, R).squeeze(-1)
        if self.low_rank:
            low = self.low(h)
            pair = pair + (low * self.low_weight) @ low.transpose(1, 2) / math.sqrt(self.low_rank)
        return pair


def both_ways(values: Float[Tensor, "B T C"], size: int) -> Float[Tensor, "B R R C"]:
    """Values of the pairs i < j as a symmetric matrix, 0 on its diagonal."""
    i, j = torch.triu_indices(size, size, 1, device=values.device)
    upper = values.new_zeros(values.shape[0], size, size, values.shape[-1])
    upper[:, i, j] = values
    return upper + upper.transpose(1, 2)


class CardValue(SearchableValue):
    """Members that read the same columns; their mean is a sum over items and pairs again, so exact search applies.

    Where the whole list was seen a node is the chance that this item is the one clicked, so that a card's value is the
    chance that the click falls on it; elsewhere nodes and pairs add up to a logit.
    """

    def __init__(
        self,
        config: CardValueConfig,
        pair_config: PairValueConfig,
        sizes: InputSizes,
        generator: torch.Generator | None = None,
    ) -> None:
        reads = CardReads.of(config, pair_config, sizes)
        super().__init__(CardMember(config, pair_config, sizes, reads) for _ in range(config.members))
        self.config, self.sizes = config, sizes
        self.inputs = CardInputs(reads, sizes, config.bins)
        self.begin(generator)

    def raw_values(self, batch: TensorBatch, at: Int[Tensor, "B R"] | None = None) -> list[Values]:
        """What each member says of all candidates, or of positions `at`: nodes of a list as they enter its softmax."""
        listed = self.inputs(batch, at)
        found: list[Values] = []
        for member in self.members:
            assert isinstance(member, CardMember)
            bias, node, pair = member.values(batch, listed, at)
            found.append(Values(bias, node, (pair + pair.transpose(1, 2)) / 2 * two_of(listed.present)))
        return found

    def values(self, batch: TensorBatch) -> Values:
        """Mean node and pair values of the members."""
        return Values.mean(self._weighed(batch))

    def _weighed(self, batch: TensorBatch, at: Int[Tensor, "B R"] | None = None) -> list[Values]:
        """What adds up to the worth of a card: of a list each node is a share of its softmax."""
        parts = self.raw_values(batch, at)
        if self.sizes.shown != "list":
            return parts
        return [v._replace(node=shares(v.node, batch), bias=v.bias * 0) for v in parts]

    def on_cards(
        self, batch: TensorBatch
    ) -> list[tuple[Float[Tensor, "B"], Float[Tensor, "B K"], Float[Tensor, ""]]]:
        """Of each member: its bias, what each item brings to the logged card, and how sharply the best is clicked."""
        assert batch.card is not None
        real = batch.card >= 0
        found = []
        for member, values in zip(self.members, self.raw_values(batch, batch.card.clamp(min=0)), strict=True):
            pairs = values.pair * (real.unsqueeze(2) & real.unsqueeze(1))
            found.append((values.bias, (values.node + pairs.sum(-1) / 2) * real, member.choice_scale))
        return found  # type: ignore[return-value]

    def member_logits(self, batch: TensorBatch, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "M B S"]:
        """What each member says of cards; only their items are read where nothing else was seen."""
        S, K = cards.shape[1:]
        at = None
        if self.sizes.shown == "card" and self.config.attention != "always" and batch.item.shape[1] > S * K:
            at = cards.clamp(min=0).flatten(1)
            cards = torch.where(cards >= 0, torch.arange(S * K, device=cards.device).view(S, K), -1)
        return torch.stack([v.bias.unsqueeze(1) + sums(v, cards) for v in self._weighed(batch, at)])


def shares(node: Float[Tensor, "B N"], batch: TensorBatch) -> Float[Tensor, "B N"]:
    """How likely each candidate is the one clicked."""
    return node.masked_fill(~batch.present, FAR).softmax(-1) * batch.present


def sums(values: Values, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S"]:
    """Nodes and pairs of cards, given by places among the values (-1: no item)."""
    at, real = cards.clamp(min=0), cards >= 0
    node = rows_of(values.node, at) * real  # B S K
    request = torch.arange(len(cards), device=cards.device)[:, None, None, None]
    pair = values.pair[request, at.unsqueeze(3), at.unsqueeze(2)]  # B S K K
    return node.sum(-1) + (pair * (real.unsqueeze(3) & real.unsqueeze(2))).sum((2, 3)) / 2
