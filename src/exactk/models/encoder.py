"""The encoder of GAttN: self-attention over the nodes, no positions, so their order cannot matter (eq. 5 to 8).

Knows nothing of users, ids or cards.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from exactk.settings.config import PolicyConfig


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
        parts = (
            self.project(nodes).view(B, N, -1, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        )  # 1|3 B H N d
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
