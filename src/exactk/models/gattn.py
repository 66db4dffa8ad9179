"""The network of GAttN: an encoder of self-attention over the nodes, a decoder that glimpses at them and points to one.

Knows nothing of users, ids or constraints: its scores are raw, what may be chosen is `search.feasible`'s business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from exactk.settings.config import PolicyConfig
from exactk.tensors import rows_of


class SelfAttention(nn.Module):
    """M heads of softmax(QK^T / sqrt(d))V, joined by W_O (eq. 6, 7); in the paper Q = K = V = H W_h."""

    def __init__(self, width: int, heads: int, shared: bool) -> None:
        super().__init__()
        self.heads = heads
        self.shared = shared
        self.project = nn.Linear(width, width if shared else 3 * width, bias=False)
        self.join = nn.Linear(width, width, bias=False)

    def forward(
        self, nodes: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"] | None
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B H N N"]]:
        """New node embeddings, and the attention of every node (row) to every other, per head."""
        B, N, D = nodes.shape
        parts = self.project(nodes).view(B, N, -1, self.heads, D // self.heads)
        parts = parts.permute(2, 0, 3, 1, 4)  # 1|3 B H N d
        query, key, value = (parts[0], parts[0], parts[0]) if self.shared else parts.unbind(0)
        scores = query @ key.transpose(-1, -2) / math.sqrt(D // self.heads)  # B H N N
        if present is not None:
            scores = scores.masked_fill(~present[:, None, None, :], torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(B, N, D)
        return self.join(mixed), weights


class EncoderLayer(nn.Module):
    """Self-attention, then two linear maps around a ReLU (eq. 8); each with skip-connection and layer norm."""

    def __init__(self, width: int, heads: int, feed_forward_size: int, shared: bool) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, shared)
        self.attention_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, feed_forward_size)
        self.narrow = nn.Linear(feed_forward_size, width)
        self.feed_forward_norm = nn.LayerNorm(width)

    def forward(
        self, nodes: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"] | None
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B H N N"]]:
        """Node embeddings of the next layer, and this layer's attention."""
        mixed, weights = self.attention(nodes, present)
        nodes = self.attention_norm(nodes + mixed)
        return self.feed_forward_norm(nodes + self.narrow(self.widen(nodes).relu())), weights


class Encoder(nn.Module):
    """x_1..x_N to h_1..h_N: a linear map to the width (eq. 5), then L layers."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.embed = nn.Linear(config.width, config.width)
        self.layers = nn.ModuleList(
            EncoderLayer(config.width, config.heads, config.feed_forward_size, config.attention == "shared")
            for _ in range(config.encoder_layers)
        )

    def forward(
        self, inputs: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N D"]:
        """h of every node; `present` (none: all) says which are real, the others are attended by no one."""
        nodes: Tensor = self.embed(inputs)
        for layer in self.layers:
            nodes, _ = layer(nodes, present)
        return nodes

    def attention(
        self, inputs: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B L H N N"]:
        """What every node attends to, per layer and head (the paper's Fig. 4)."""
        nodes, weights = self.embed(inputs), []
        for layer in self.layers:
            nodes, weight = layer(nodes, present)
            weights.append(weight)
        return torch.stack(weights, 1)


class EncodedRequests(NamedTuple):
    """B encoded requests: node embeddings h_j and their keys, made once for all steps."""

    nodes: Float[Tensor, "B N D"]
    glimpse_keys: Float[Tensor, "B N D"]  # 2 W_D2 h_j, doubled for `additive`
    pointer_keys: Float[Tensor, "B N D"]  # 2 W_D4 h_j
    present: Bool[Tensor, "B N"] | None  # none: all positions are real
    affinity: Float[Tensor, "B N"] | None = None  # of user and item, added to the scores of every step


class State(NamedTuple):
    """Before a choice, S rows per request: d_t is the last layer's hidden vector."""

    hidden: Float[Tensor, "B S L D"]
    cell: Float[Tensor, "B S L D"]


class Pointer(nn.Module):
    """g(d, a) as stacked LSTM cells; glimpse and pointer as additive attention over the nodes."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        D = config.width
        self.num_layers = config.decoder_layers
        self.recurrent = nn.LSTM(D, D, num_layers=config.decoder_layers, batch_first=True)
        self.keys = nn.Linear(D, 2 * D, bias=False)  # [W_D2; W_D4]
        self.glimpse_query = nn.Linear(D, D, bias=False)  # W_D1
        self.glimpse_vector = nn.Linear(D, 1, bias=False)  # v_D1
        self.pointer_query = nn.Linear(2 * D, D, bias=False)  # W_D3
        self.pointer_vector = nn.Linear(D, 1, bias=False)  # v_D2

    def encode(self, nodes: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"] | None) -> EncodedRequests:
        """Keys of the nodes, once per request."""
        glimpse_keys, pointer_keys = (2 * self.keys(nodes)).chunk(2, -1)
        return EncodedRequests(nodes, glimpse_keys, pointer_keys, present)

    def point(self, encoded: EncodedRequests, decoded: Float[Tensor, "B R D"]) -> Float[Tensor, "B R N"]:
        """Glimpse c_t and \\hat d_t = [d_t; c_t] (eq. 12), then the pointer's u_tj (eq. 13), unmasked."""
        glimpse = additive(self.glimpse_query(decoded), encoded.glimpse_keys, self.glimpse_vector)  # B R N
        if encoded.present is not None:
            glimpse = glimpse.masked_fill(~encoded.present.unsqueeze(1), torch.finfo(glimpse.dtype).min)
        context = glimpse.softmax(-1) @ encoded.nodes  # B R D
        query = self.pointer_query(torch.cat([decoded, context], -1))
        scores = additive(query, encoded.pointer_keys, self.pointer_vector)
        return scores if encoded.affinity is None else scores + encoded.affinity.unsqueeze(1)

    def advance(self, inputs: Float[Tensor, "B S D"], state: State) -> State:
        """d_t = g(d_t-1, a_t-1) (eq. 11) of embeddings, one layer's cell after the other."""
        B, S, L, D = state.hidden.shape
        below = inputs.reshape(B * S, D)
        before, kept = (part.reshape(B * S, L, D).unbind(1) for part in state)
        hidden, cell = [], []
        for layer, weights in enumerate(self.recurrent.all_weights):
            below, carried = torch.lstm_cell(below, (before[layer], kept[layer]), *weights)
            hidden.append(below)
            cell.append(carried)
        return State(*(torch.stack(part, 1).view(B, S, L, D) for part in (hidden, cell)))


@dataclass(frozen=True)
class PointerSteps:
    """A pointer and the requests it is to write cards for (a `search.Steps`)."""

    pointer: Pointer
    encoded: EncodedRequests

    def start(self, num_rows: int) -> State:
        """d_1 = g(0, 0) (eq. 11), the same for every request and row."""
        nodes = self.encoded.nodes
        B, _, D = nodes.shape
        zero = nodes.new_zeros(1, 1, self.pointer.num_layers, D)
        state = self.pointer.advance(nodes.new_zeros(1, 1, D), State(zero, zero))
        return State(*(part.expand(B, num_rows, -1, -1) for part in state))

    def step(self, state: State) -> Float[Tensor, "B S N"]:
        return self.pointer.point(self.encoded, state.hidden[:, :, -1])

    def advance(self, state: State, position: Int[Tensor, "B S"]) -> State:
        """d_t of the embedding of the node chosen."""
        return self.pointer.advance(rows_of(self.encoded.nodes, position), state)

    def replay(self, cards: Int[Tensor, "B S K"]) -> Float[Tensor, "B S K N"]:
        """The scores before each choice of given cards: K steps of the recurrence, then all pointers at once."""
        B, S, K = cards.shape
        N, D = self.encoded.nodes.shape[1:]
        chosen = nodes_at(
            self.encoded.nodes, cards[:, :, :-1]
        )  # B S K-1 D; of a finished card (-1) any will do
        inputs = nn.functional.pad(chosen, (0, 0, 1, 0))  # B S K D, the first is 0
        outputs, _ = self.pointer.recurrent(inputs.view(B * S, K, D))
        outputs = outputs.reshape(B, S, K, D)
        if S == 1:
            return self.pointer.point(self.encoded, outputs.squeeze(1)).unsqueeze(1)
        # Before the first choice all rows are one: scored once, then spread.
        rows = torch.cat([outputs[:, 0, :1], outputs[:, :, 1:].flatten(1, 2)], 1)  # B 1+S*(K-1) D
        scores = self.pointer.point(self.encoded, rows)
        first, later = scores[:, :1].unsqueeze(1), scores[:, 1:].reshape(B, S, K - 1, N)
        return torch.cat([first.expand(B, S, 1, N), later], 2)


def nodes_at(nodes: Float[Tensor, "B N D"], at: Int[Tensor, "B S k"]) -> Float[Tensor, "B S k D"]:
    """The embeddings of chosen nodes; on a GPU by a product with ones and zeros, whose gradient is one, too."""
    N, D = nodes.shape[1:]
    if nodes.device.type != "cuda":
        return rows_of(nodes, at)
    ones = at.flatten(1).unsqueeze(-1) == torch.arange(N, device=at.device)  # B S*k N
    return (ones.to(nodes.dtype) @ nodes).view(*at.shape, D)


def additive(
    query: Float[Tensor, "B R D"], doubled_keys: Float[Tensor, "B N D"], vector: nn.Linear
) -> Float[Tensor, "B R N"]:
    """v^T tanh(query + key_j) for every row and node (Bahdanau's attention).

    By tanh x = 2 sigmoid(2x) - 1, because torch's sigmoid is six times as fast as its tanh on the CPU.
    """
    sigmoids = torch.add(doubled_keys.unsqueeze(1), query.unsqueeze(2), alpha=2).sigmoid_()  # B R N D
    scores: Tensor = vector(sigmoids)  # B R N 1
    return torch.add(-vector.weight.sum(), scores.squeeze(-1), alpha=2)
