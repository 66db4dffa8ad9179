"""Whole cards on a GPU: a policy's weights packed for the Triton kernels, requests in, cards out.

Knows when the kernels apply, and which of their answers rounding may have decided; there the model itself answers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.errors import ConfigError
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.search import Feasible, beam

MOST_CANDIDATES = 64  # a set of positions is one 64-bit word
LONGEST_CARD = 16
AT_ONCE = 16_384  # requests whose encoded nodes are kept at a time: 540 MB at 64 candidates of width 32
# Warps of a program. With four, Triton (3.6) takes Hopper's wgmma for the encoder's products, which then reads outside
# its shared memory; a choice made by one warp needs no barrier.
ENCODER_WARPS, CHOICE_WARPS, RECURRENCE_WARPS = 2, 1, 2
CHOICE_REGISTERS = 128  # at most: more warps on a processor hide more of the memory's delay
ROWS = 64  # of the recurrence a program takes
LARGEST = 60_000.0  # what an operand of a product may be: float16 ends at 65,504


class CudaDecoder:
    """A policy's beam search as 2 K kernel launches per batch; the same cards as `search.beam`.

    Products go through tensor cores in three passes of float16 halves, equal to the model's to rounding; all else is
    float32. A request in which some choice was won by less than `doubt` (in log-probability) is decoded again by the
    model; equal terms are decided by the model's own rule. `exactk bench decode --device cuda` counts the cards that
    differ.
    """

    def __init__(self, policy: Policy, doubt: float = 0.0) -> None:
        refuse_other_shapes(policy)
        self.policy = policy
        self.doubt = doubt
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
        of_decoded, of_glimpse = pointer.pointer_query.weight[:, :D], pointer.pointer_query.weight[:, D:]
        parts += [pointer.glimpse_query.weight.T, pointer.keys.weight[:D].T, of_decoded.T, of_glimpse.T]
        parts += [pointer.keys.weight[D:].T, pointer.glimpse_vector.weight, pointer.pointer_vector.weight]
        self.start_offset = sum(part.numel() for part in parts)
        device = encoder.embed.weight.device
        start = self.policy.start(pointer.encode(torch.zeros(1, 1, D, device=device), None), 1)
        for number in range(pointer.num_layers):
            parts += [start.hidden[0, 0, number], start.cell[0, 0, number]]
        for weight_input, weight_hidden, bias_input, bias_hidden in pointer.recurrent.all_weights:
            parts += [weight_input.T, weight_hidden.T, bias_input + bias_hidden]
        flat = torch.cat([part.reshape(-1).float() for part in parts])
        self.weights = torch.nn.functional.pad(
            flat, (0, -len(flat) % 16)
        ).contiguous()  # so that loads are wide
        high = self.weights.half()
        self.split = torch.stack([high, (self.weights - high.float()).half()])
        self.largest_input = largest_input(self.policy)
        # d_1 = g(0, 0), so also its queries, are the same for every request.
        first = start.hidden[0, 0, -1]
        glimpse_query = (2 * pointer.glimpse_query(first).clamp(-40, 40)).exp()
        self.first_queries = torch.stack([glimpse_query, of_decoded @ first]).float().contiguous()
        # Without features both halves of eq. 4 are a look-up: W_S x_s + b_I and W_U x_u for every id.
        self.by_id = not (vectors.item_feature_size or vectors.user_feature_size)
        if self.by_id:
            assert vectors.items is not None
            assert vectors.users is not None
            self.item_table = inputs.item_weight(vectors.items.weight).contiguous()
            self.user_table = inputs.user_weight(vectors.users.weight).contiguous()
            self.known = self._within(self.item_table, self.user_table)

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[Tensor, "B K"]:
        """One valid card per request; look-ahead, caps, pins and mixed sizes go the model's own way."""
        feasible = Feasible.of(batch)
        N, K = batch.item.shape[1], feasible.longest
        if feasible.ragged or batch.cap.shape[1] or N > MOST_CANDIDATES or K > LONGEST_CARD:
            return self._by_model(batch)
        known = self.known if self.by_id else self._within(*self._projected(batch)[::2])
        if not known or not bool(feasible.safe.any()):
            return self._by_model(batch)
        return self.decided(batch, K, ~feasible.safe)[0]

    @torch.no_grad()
    def decided(
        self, batch: Batch, card_size: int, unsafe: Bool[Tensor, "B"] | None = None
    ) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B"]]:
        """As `launch`, but requests in doubt, and those known to be unsafe, have the model's card."""
        cards, margins = self.launch(batch, card_size)
        doubtful = margins < self.doubt
        rows = (doubtful if unsafe is None else doubtful | unsafe).nonzero().squeeze(1)
        if len(rows):
            cards[rows] = self._by_model(batch.rows(rows))
        return cards, margins

    @torch.no_grad()
    def launch(self, batch: Batch, card_size: int) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B"]]:
        """The kernels alone, over requests in which no order of choosing can end early: cards, and what decided them.

        The second is the least difference of log-probability between what was kept and what was not; -1 where a beam
        could not be filled, which only the model knows how to go on with.
        """
        B, device = len(batch), batch.item.device
        cards = torch.empty(B, card_size, dtype=torch.long, device=device)
        margins = torch.empty(B, device=device)
        for first in range(0, B, AT_ONCE):
            part = slice(first, first + AT_ONCE)
            some = batch if B <= AT_ONCE else batch.rows(part)
            self.decode(some, self.encode(some), cards[part], margins[part])
        return cards, margins

    def encode(self, batch: Batch) -> Float[Tensor, "B 4 E"]:
        """What `decode` asks of each request (`encode_kernel`); candidates padded to a power of two."""
        from exactk.engine.triton_encode import encode_kernel

        B, N = batch.item.shape
        config, padded = self.policy.config, max(16, 1 << (N - 1).bit_length())
        encoded = torch.empty(B, 4, padded * config.width, device=batch.item.device)
        encode_kernel[(B,)](
            *self._projected(batch), batch.present, self.weights, self.split, self.split.shape[1], encoded, N,
            NP=padded, D=config.width, H=config.heads, FF=config.feed_forward_size, L=config.encoder_layers,
            POINTER=self.pointer_offset, num_warps=ENCODER_WARPS, num_stages=1,
        )  # fmt: skip
        return encoded

    def decode(
        self,
        batch: Batch,
        encoded: Float[Tensor, "B 4 E"],
        cards: Int[Tensor, "B K"],
        margins: Float[Tensor, "B"],
    ) -> None:
        """K choices and the K - 1 steps of the recurrence between them, into `cards` and `margins`."""
        from exactk.engine.triton_decode import advance_kernel, choose_kernel

        B, K, W, device = len(batch), cards.shape[1], self.policy.config.beam, batch.item.device
        D, LD, N = self.policy.config.width, self.policy.config.decoder_layers, batch.item.shape[1]
        padded = encoded.shape[2] // D
        opened, chosen = torch.empty(2, K, B, 4, dtype=torch.long, device=device)
        totals = torch.empty(K, B, 4, device=device)
        links = torch.empty(K, B, 4, dtype=torch.int32, device=device)
        states = torch.empty(2, LD, B * W, 2, D, device=device)
        queries = torch.empty(B * W, 2, D, device=device)
        fast = device.type == "cuda"
        for t in range(K):
            choose_kernel[(B,)](
                encoded, queries if t else self.first_queries, batch.present, batch.graph, self.weights,
                opened, chosen, totals, links, margins, cards, B, N, t,
                NP=padded, D=D, K=K, W=W, POINTER=self.pointer_offset, FIRST=t == 0, LAST=t == K - 1,
                FAST=fast, num_warps=CHOICE_WARPS, maxnreg=CHOICE_REGISTERS,
            )  # fmt: skip
            if t < K - 1:
                advance_kernel[(-(-B * W // ROWS),)](
                    encoded, links, self.weights, self.split, self.split.shape[1],
                    states[t % 2], states[1 - t % 2], queries, B, t,
                    NP=padded, D=D, LD=LD, W=W, T=ROWS, POINTER=self.pointer_offset, START=self.start_offset,
                    LSTM=self.start_offset + 2 * D * LD, FIRST=t == 0, FAST=fast,
                    num_warps=RECURRENCE_WARPS,
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

    def _within(self, items: Float[Tensor, "I D"], users: Float[Tensor, "U D"]) -> bool:
        """Whether ReLU(item + user) is in the products' range, whoever meets whom."""
        return float(items.amax() + users.amax()) <= self.largest_input

    def _by_model(self, batch: Batch) -> Int[Tensor, "B K"]:
        return beam(self.policy.steps(batch), Feasible.of(batch), self.policy.config.beam).cards[:, 0]


@torch.no_grad()
def largest_input(policy: Policy) -> float:
    """How large x_i may be so that no operand of a product leaves float16's range; below 0 if one may in any case."""
    encoder, D = policy.encoder, policy.config.width
    layers: Any = encoder.layers

    def gain(linear: torch.nn.Linear) -> float:
        return float(linear.weight.abs().sum(1).max())

    def shift(linear: torch.nn.Linear) -> float:
        return float(linear.bias.abs().max())

    def normed(norm: torch.nn.LayerNorm) -> float:  # a normed number is at most the root of the width
        return float(norm.weight.abs().max()) * math.sqrt(D) + float(norm.bias.abs().max())

    operands = [float(p.abs().max()) for p in (*encoder.parameters(), *policy.pointer.parameters())]
    for number, layer in enumerate(layers):
        between, after = normed(layer.attention_norm), normed(layer.feed_forward_norm)
        operands += [between, after, between * gain(layer.widen) + shift(layer.widen)]
        if number + 1 < len(layers):
            operands.append(after * gain(layers[number + 1].attention.project))
    if not max(operands) <= LARGEST:  # not a number is too large, too
        return -1.0
    first = max(1.0, gain(layers[0].attention.project)) if len(layers) else 1.0
    return min(LARGEST, (LARGEST / first - shift(encoder.embed)) / max(gain(encoder.embed), 1e-9))


def refuse_other_shapes(policy: Policy) -> None:
    """The kernel knows the paper's network: say which setting it does not."""
    config = policy.config
    wanted = {
        "policy.cell must be lstm": config.cell == "lstm",
        "policy.attention must be shared": config.attention == "shared",
        "policy.affinity must be 0": config.affinity == 0,
        "policy.memory must be 0": config.memory == 0,
        "policy.guided must be false": not config.guided,
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
