"""Whole cards on a GPU: a policy's weights packed for the fused kernel, requests in, cards out.

Knows when the kernel applies; where it does not (look-ahead needed, other shapes) the model itself answers.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exactk.errors import ConfigError
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam

Precision = Literal["tf32x3", "bf16x3", "tf32"]
MOST_CANDIDATES = 64  # a set of positions is one 64-bit word
LONGEST_CARD = 16
AT_ONCE = 16_384  # requests whose encoded nodes are kept at a time: 400 MB at 64 candidates of width 32


class CudaDecoder:
    """A policy's beam search as two kernel launches per batch; the same cards as `search.beam`.

    `precision` is that of the encoder's products: three passes of tensor cores (tf32x3, equal to the model to rounding;
    bf16x3, about seventeen bits) or one (tf32, eleven). The decoder is float32 throughout. `exactk bench decode` counts
    how many cards each changes.
    """

    def __init__(
        self,
        policy: Policy,
        precision: Precision = "tf32x3",
        num_warps: int = 4,
        decoder_warps: int = 4,
        decoder_registers: int = 128,
    ) -> None:
        refuse_other_shapes(policy)
        self.policy = policy
        self.precision = precision
        self.num_warps = num_warps
        self.decoder_warps = decoder_warps
        self.decoder_registers = (
            decoder_registers  # a thread's at most: fewer spill, but let more programs run at once
        )
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Pack the policy's weights as they are now."""
        inputs, encoder, pointer = self.policy.inputs, self.policy.encoder, self.policy.pointer
        vectors = inputs.vectors
        parts: list[Tensor] = [encoder.embed.weight.T, encoder.embed.bias]
        layers: Any = encoder.layers
        for layer in layers:
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
        for number in range(pointer.num_layers):
            parts += [start.hidden[0, 0, number], start.cell[0, 0, number]]
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
        """One valid card per request; look-ahead, caps, pins and mixed sizes go the model's own way."""
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
        """The kernels over a batch in which no order of choosing can end early."""
        B, N = batch.item.shape
        if N > MOST_CANDIDATES or card_size > LONGEST_CARD:
            return self._by_model(batch, card_size)
        cards = torch.empty(B, card_size, dtype=torch.long, device=batch.item.device)
        for first in range(0, B, AT_ONCE):
            part = slice(first, first + AT_ONCE)
            some = batch if B <= AT_ONCE else batch.rows(part)
            self._decode(some, self.encode(some), cards[part])
        return cards

    def encode(self, batch: Batch) -> Float[Tensor, "B 3 NP D"]:
        """Node embeddings, then the glimpse's and the pointer's keys as e^2x; candidates padded to a power of two."""
        from exactk.engine.triton_decode import encode_kernel

        B, N = batch.item.shape
        config, padded = self.policy.config, max(16, 1 << (N - 1).bit_length())
        encoded = torch.empty(B, 3, padded, config.width, device=batch.item.device)
        encode_kernel[(B,)](
            *self._projected(batch), batch.present, self.weights, encoded, N,
            NP=padded, D=config.width, H=config.heads, FF=config.feed_forward_size, L=config.encoder_layers,
            POINTER=self.pointer_offset, PRECISION=self.precision, num_warps=self.num_warps,
        )  # fmt: skip
        return encoded

    def _decode(self, batch: Batch, encoded: Float[Tensor, "B 3 NP D"], cards: Int[Tensor, "B K"]) -> None:
        from exactk.engine.triton_decode import decode_kernel

        B, N = batch.item.shape
        config, D, layers = self.policy.config, self.policy.config.width, self.policy.config.decoder_layers
        lower = self.start_offset + 2 * D * layers
        decode_kernel[(B,)](
            encoded, batch.present, batch.graph, self.weights, cards, N,
            NP=encoded.shape[2], D=D, LD=layers, K=cards.shape[1], W=config.beam, POINTER=self.pointer_offset,
            START=self.start_offset, LOWER=lower, UPPER=lower + 8 * D * D + 4 * D,
            num_warps=self.decoder_warps, maxnreg=self.decoder_registers,
        )  # fmt: skip

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
