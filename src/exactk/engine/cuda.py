"""Whole cards on a GPU: a policy's weights packed for the fused kernel, requests in, cards out.

Knows when the kernel applies; where it does not (look-ahead needed, other shapes) the model itself answers.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from exactk.errors import ConfigError
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam

Precision = Literal["float32", "tf32", "bfloat16"]
MOST_CANDIDATES = 64  # a set of positions is one 64-bit word
LONGEST_CARD = 16


class CudaDecoder:
    """A policy's beam search as one kernel launch per batch; the same cards as `search.beam`.

    float32: three tensor-core passes per product, equal to the model to rounding. tf32 and bfloat16 trade digits of the
    products for speed; `exactk bench decode` counts how many cards that changes.
    """

    def __init__(self, policy: Policy, precision: Precision = "float32", num_warps: int = 4) -> None:
        refuse_other_shapes(policy)
        self.policy = policy
        self.precision = precision
        self.num_warps = num_warps
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Pack the policy's weights as they are now."""
        inputs, encoder, pointer = self.policy.inputs, self.policy.encoder, self.policy.pointer
        vectors = inputs.vectors
        parts: list[Tensor] = [encoder.embed.weight.T, encoder.embed.bias]
        for layer in encoder.layers:
            parts += [layer.attention.project.weight.T, layer.attention.join.weight.T]
            parts += [layer.attention_norm.weight, layer.attention_norm.bias]
            parts += [layer.widen.weight.T, layer.widen.bias, layer.narrow.weight.T, layer.narrow.bias]
            parts += [layer.feed_forward_norm.weight, layer.feed_forward_norm.bias]
        self.pointer_offset = sum(part.numel() for part in parts)
        D = self.policy.config.width
        parts += [pointer.glimpse_query.weight.T, pointer.keys.weight[:D].T]
        parts += [pointer.pointer_query.weight[:, :D].T, pointer.pointer_query.weight[:, D:].T]
        parts += [pointer.keys.weight[D:].T, pointer.glimpse_vector.weight, pointer.pointer_vector.weight]
        self.start_offset = sum(part.numel() for part in parts)
        device = encoder.embed.weight.device
        start = self.policy.start(pointer.encode(torch.zeros(1, 1, D, device=device), None), 1)
        for layer in range(pointer.num_layers):
            parts += [start.hidden[0, 0, layer], start.cell[0, 0, layer]]
        for weight_input, weight_hidden, bias_input, bias_hidden in pointer.recurrent.all_weights:
            parts += [weight_input.T, weight_hidden.T, bias_input + bias_hidden]
        self.weights = torch.cat([part.reshape(-1).float() for part in parts]).contiguous()
        # Without features both halves of eq. 4 are a look-up: W_S x_s + b_I and W_U x_u for every id.
        self.by_id = not (vectors.item_feature_size or vectors.user_feature_size)
        if self.by_id:
            assert vectors.items is not None
            assert vectors.users is not None
            self.item_table = inputs.item_weight(vectors.items.weight).contiguous()
            self.user_table = inputs.user_weight(vectors.users.weight).contiguous()

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[Tensor, "B K"]:
        """One valid card per request; requests that need look-ahead, caps, pins or mixed sizes go the model's own way."""
        feasible = Feasible.of(batch)
        if feasible.all_safe and not feasible.ragged and not batch.cap.shape[1]:
            return self.launch(batch, feasible.longest)
        if feasible.ragged or batch.cap.shape[1]:
            return beam(self.policy.steps(batch), feasible, self.policy.config.beam).cards[:, 0]
        cards = torch.empty(len(batch), feasible.longest, dtype=torch.long, device=batch.item.device)
        for rows, decode in ((feasible.safe, self.launch), (~feasible.safe, self._by_model)):
            if bool(rows.any()):
                cards[rows] = decode(batch.rows(rows), feasible.longest)
        return cards

    def launch(self, batch: Batch, card_size: int) -> Int[Tensor, "B K"]:
        """The kernel over a batch in which no order of choosing can end early."""
        from exactk.engine.triton_decode import decode_kernel

        B, N = batch.item.shape
        if N > MOST_CANDIDATES or card_size > LONGEST_CARD:
            return self._by_model(batch, card_size)
        config = self.policy.config
        D, layers = config.width, config.decoder_layers
        items, item_index, users, user_index = self._projected(batch)
        cards = torch.empty(B, card_size, dtype=torch.long, device=batch.item.device)
        decode_kernel[(B,)](
            items, item_index, users, user_index, batch.present, batch.graph, self.weights, cards, N,
            NP=max(16, 1 << (N - 1).bit_length()), D=D, H=config.heads, FF=config.feed_forward_size,
            L=config.encoder_layers, LD=layers, K=card_size, W=config.beam,
            ENCODER=0, POINTER=self.pointer_offset, START=self.start_offset,
            LOWER=self.start_offset + 2 * D * layers, UPPER=self.start_offset + 2 * D * layers + 8 * D * D + 4 * D,
            HALF=self.precision == "bfloat16", FAST=self.precision != "float32",
            PRECISION="tf32x3" if self.precision == "float32" else "tf32", num_warps=self.num_warps,
        )  # fmt: skip
        return cards

    def _projected(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tables of projected items and users, and each candidate's row in them."""
        if self.by_id:
            return self.item_table, batch.item, self.user_table, batch.user
        inputs = self.policy.inputs
        D = self.policy.config.width
        items = inputs.item_weight(inputs.vectors.item(batch)).reshape(-1, D).contiguous()
        users = inputs.user_weight(inputs.vectors.user(batch)).contiguous()
        every = torch.arange(len(items), device=items.device)
        return items, every, users, every[: len(users)]

    def _by_model(self, batch: Batch, card_size: int) -> Int[Tensor, "B K"]:  # noqa: ARG002
        return beam(self.policy.steps(batch), Feasible.of(batch), self.policy.config.beam).cards[:, 0]


def refuse_other_shapes(policy: Policy) -> None:
    """The kernel knows the paper's network: say which setting it does not."""
    config = policy.config
    wanted = {
        "policy.cell must be lstm": config.cell == "lstm",
        "policy.attention must be shared": config.attention == "shared",
        "policy.decoder_layers must be 1 or 2": config.decoder_layers in (1, 2),
        "policy.beam must be at most 4": config.beam <= 4,
        "policy.width / policy.heads must be a power of two of at least 16": _tile(
            config.width // config.heads
        ),
        "policy.width must be a power of two": _tile(config.width),
        "policy.feed_forward_size must be a power of two of at least 16": _tile(config.feed_forward_size),
    }
    for sentence, kept in wanted.items():
        if not kept:
            raise ConfigError(f"the fused GPU decoder does not know this network: {sentence}")


def _tile(size: int) -> bool:
    return size >= 16 and size & (size - 1) == 0
