"""Cards on the CPU without torch's overhead: a policy's weights packed for the compiled kernel, requests in, cards out.

Knows what the kernel cannot do (numbers beyond its range); there the model itself answers.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from exactk.engine.decode.decode_kernel import BEYOND_RANGE, NO_CARD, UNKNOWN_ID, decode_each
from exactk.engine.decode.encode_kernel import Places, Sizes
from exactk.engine.decode.guide import CompiledGuide
from exactk.engine.decode.guide_kernel import Gains
from exactk.engine.packing import aligned, in_groups, padded, plain, rounded
from exactk.engine.sharing import shared
from exactk.errors import InfeasibleError, InputError
from exactk.models.policy import Policy
from exactk.problem.batch import Batch
from exactk.problem.compiling import num_cores
from exactk.search import Feasible, beam
from exactk.tensors import TensorBatch

GRAIN = 4  # requests a thread takes at least


class CompiledDecoder:
    """A policy's beam search as one compiled call per batch; the same cards as `search.beam`.

    `threads` (all cores if not given) share a batch. After training on, call `refresh`.
    """

    def __init__(self, policy: Policy, threads: int | None = None) -> None:
        self.policy = policy
        self.threads = threads or num_cores()
        self._own = threading.local()
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Pack the policy's weights as they are now."""
        vectors = self.policy.inputs.vectors
        none = np.zeros((0, 0), np.float32)
        self._tables = (
            none if vectors.users is None else plain(vectors.users.weight),
            none if vectors.items is None else plain(vectors.items.weight),
        )
        self._sizes = sizes_of(self.policy)
        self._weights = packed(self.policy, self._sizes)
        self._guide = None if self.policy.guide is None else CompiledGuide(self.policy.guide)

    @torch.no_grad()
    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request, positions in order of choice, -1 beyond a card's size."""
        if (
            batch.brief is not None
        ):  # the kernel knows pairs and caps; completion under a brief is the exact engine's
            return self._by_model(batch)
        B, N = batch.item.shape
        requests = batch.requests()
        sizes = requests.card_size
        cards = np.full((B, int(sizes.max())), -1, np.int64)
        status = np.empty(B, np.int64)
        asked, answer = np.empty((2, B, N), np.bool_)
        ids = (plain(batch.user), plain(batch.item))
        rules = tuple(
            np.ascontiguousarray(part)
            for part in (
                requests.graph, requests.present, sizes, requests.pinned, requests.group, requests.cap,
            )
        )  # fmt: skip
        given = (self._features(batch), self._affinity(batch), self._gains(batch))
        self._spread(B, N, ids, *given, rules, asked, answer, cards, status)
        if status.any():
            return self._mended(batch, cards, status)
        return cards

    def _spread(self, B: int, N: int, ids: Any, features: Any, *rest: Any) -> None:
        """The kernel over all requests, on all threads where there are enough."""
        places, counter = places_of(self._sizes, N), np.zeros(1, np.int64)
        given = (self._weights, self._tables, features, ids, *rest)
        shared(
            min(self.threads, B // GRAIN),
            lambda _: decode_each(counter, self._sizes, places, self._scratch(places), *given),
        )

    def _scratch(self, places: Places) -> Float32[np.ndarray, "n"]:
        """This thread's working memory for one number of candidates; its padding is zero and stays so."""
        if getattr(self._own, "places", None) != (places, self._sizes):
            self._own.scratch = aligned(places.end)
            self._own.places = (places, self._sizes)
        scratch: np.ndarray = self._own.scratch
        return scratch

    def _features(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """User and item features as the model reads them; refuses others as the model would."""
        vectors, B = self.policy.inputs.vectors, len(batch)
        user, item = batch.user_features, batch.item_features
        if vectors.user_feature_size and (user is None or user.shape[-1] != vectors.user_feature_size):
            vectors.user(TensorBatch.of(batch))
        if vectors.item_feature_size and (item is None or item.shape[-1] != vectors.item_feature_size):
            vectors.item(TensorBatch.of(batch))
        return (
            np.zeros((B, 0), np.float32) if user is None else plain(user),
            np.zeros((B, 0, 0), np.float32) if item is None else plain(item),
        )

    def _affinity(self, batch: Batch) -> Float32[np.ndarray, "B n"]:
        """What the policy adds to the scores of every step; no columns where it adds nothing."""
        affinity = self.policy.affinity
        if affinity is None:
            return np.zeros((len(batch), 0), np.float32)
        # An id beyond the tables gets some row's numbers here; the kernel refuses its request by number.
        users, items = (max(len(table) - 1, 0) for table in self._tables)
        known = replace(batch, user=batch.user.clip(0, users), item=batch.item.clip(0, items))
        return plain(affinity(TensorBatch.of(known)))

    def _gains(self, batch: Batch) -> Gains:
        """What the guide adds to the scores step by step; empty arrays where there is none."""
        if self._guide is not None:
            return self._guide.gains(batch)
        B, N = batch.item.shape
        return Gains(*(np.zeros(shape, np.float32) for shape in ((B, 0), (B, 0, 0), (B, 0, N), (0,))))

    def _mended(self, batch: Batch, cards: np.ndarray, status: np.ndarray) -> Int[np.ndarray, "B K"]:
        """Name what cannot be answered; leave to the model what only it can."""
        if (status == UNKNOWN_ID).any():
            b = int(np.flatnonzero(status == UNKNOWN_ID)[0])
            raise InputError(
                f"request {b} of the batch names a user or item the model has no row for: "
                f"users are 0..{len(self._tables[0]) - 1}, items 0..{len(self._tables[1]) - 1}"
            )
        if (status == NO_CARD).any():
            b = int(np.flatnonzero(status == NO_CARD)[0])
            size, num = int(batch.card_size[b]), int(batch.present[b].sum())
            raise InfeasibleError(
                f"request {b} of the batch has no valid card: no {size} of its {num} candidates may stand together"
            )
        rows = status == BEYOND_RANGE
        found = self._by_model(batch.rows(rows))
        cards[rows, : found.shape[1]] = found
        return cards

    def _by_model(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        asked = TensorBatch.of(batch)
        return beam(self.policy.steps(asked), Feasible.of(asked), self.policy.config.beam).cards[:, 0].numpy()


def sizes_of(policy: Policy) -> Sizes:
    """The network's sizes, padded to what a register holds."""
    config, vectors = policy.config, policy.inputs.vectors
    head = config.width // config.heads
    return Sizes(
        width=rounded(config.width),
        true_width=config.width,
        heads=config.heads,
        head_size=rounded(head),
        true_head_size=head,
        parts=1 if config.attention == "shared" else 3,
        feed_forward_size=rounded(config.feed_forward_size),
        layers=config.encoder_layers,
        item_size=vectors.item_size,
        user_size=vectors.user_size,
        decoder_layers=config.decoder_layers,
        rows=rounded(config.beam, 4),
        beam=config.beam,
    )


@lru_cache(maxsize=64)
def places_of(sizes: Sizes, num_candidates: int) -> Places:
    """Room for everything the kernel keeps; products take four rows at a time, so rows come in fours."""
    D, F, H = sizes.width, sizes.feed_forward_size, sizes.heads * sizes.head_size
    span, n, rows = rounded(num_candidates), rounded(num_candidates, 4), sizes.rows
    needed = {
        "zeros": max(span, 4 * D, sizes.parts * H, F),
        "inputs": max(n * sizes.item_size, 4 * sizes.user_size),
        "user_row": 4 * D,
        "nodes": n * D,
        "hidden": n * max(D, F),
        "joined": n * D,
        "projected": n * sizes.parts * H,
        "mixed": n * H,
        "keys_t": H * span,
        "attention": n * span,
        "nodes_t": D * span,
        "glimpse_keys": D * span,
        "pointer_keys": D * span,
        "absent": span,
        "decoded": rows * 2 * D,
        "query": rows * D,
        "scores": rows * span,
        "masks": 2 * rows * span,
        "allowed": rows * span,
        "gates": rows * 4 * D,
        "pair": rows * 2 * D,
        "states": 4 * sizes.decoder_layers * rows * D,
    }
    places, used = {}, 0
    for name, size in needed.items():
        places[name] = used
        used += rounded(size)
    return Places(**places, end=used)


def packed(policy: Policy, sizes: Sizes) -> Float32[np.ndarray, "n"]:
    """All weights in the order in which the kernel reads them."""
    parts = [
        *_input_weights(policy, sizes),
        *_encoder_weights(policy, sizes),
        *_pointer_weights(policy, sizes),
    ]
    flat = torch.cat([part.reshape(-1).float() for part in parts]).numpy()
    weights = aligned(len(flat))
    weights[:] = flat
    return weights


def _input_weights(policy: Policy, sizes: Sizes) -> list[Tensor]:
    D, inputs = sizes.width, policy.inputs
    return [
        in_groups(torch.ones(sizes.true_width), 1, D),
        padded(inputs.item_weight.weight, sizes.item_size, D),
        padded(inputs.user_weight.weight, sizes.user_size, D),
        in_groups(inputs.item_weight.bias, 1, D),
    ]


def _encoder_weights(policy: Policy, sizes: Sizes) -> list[Tensor]:
    D, F, H = sizes.width, sizes.feed_forward_size, sizes.heads * sizes.head_size
    encoder = policy.encoder
    parts = [padded(encoder.embed.weight, D, D), in_groups(encoder.embed.bias, 1, D)]
    layers: Any = encoder.layers
    for layer in layers:
        project = in_groups(layer.attention.project.weight.T, sizes.parts * sizes.heads, sizes.head_size)
        join = in_groups(layer.attention.join.weight, sizes.heads, sizes.head_size)
        parts += [padded(project.T, D, sizes.parts * H), padded(join, H, D)]
        parts += [in_groups(p, 1, D) for p in (layer.attention_norm.weight, layer.attention_norm.bias)]
        parts += [padded(layer.widen.weight, D, F), in_groups(layer.widen.bias, 1, F)]
        parts += [padded(layer.narrow.weight, F, D), in_groups(layer.narrow.bias, 1, D)]
        parts += [in_groups(p, 1, D) for p in (layer.feed_forward_norm.weight, layer.feed_forward_norm.bias)]
    return parts


def _pointer_weights(policy: Policy, sizes: Sizes) -> list[Tensor]:
    """tanh(k + q) is made of e^2k and e^2q: the doubling, and the -2 of the sum, are in the weights."""
    D, pointer, width = sizes.width, policy.pointer, sizes.true_width
    keys = [padded(part, D, D).T for part in (2 * pointer.keys.weight).chunk(2)]
    query = in_groups(2 * pointer.pointer_query.weight, 2, D)
    vectors = [in_groups(-2 * v.weight, 1, D) for v in (pointer.glimpse_vector, pointer.pointer_vector)]
    parts = [*keys, padded(2 * pointer.glimpse_query.weight, D, D), padded(query, 2 * D, D), *vectors]
    nothing = torch.zeros(1, 1, width, device=pointer.keys.weight.device)
    begin = policy.start(pointer.encode(nothing, None), 1)
    for layer in range(sizes.decoder_layers):
        parts += [in_groups(part[0, 0, layer], 1, D) for part in (begin.hidden, begin.cell)]
    for from_input, from_hidden, bias_input, bias_hidden in pointer.recurrent.all_weights:
        gates = [in_groups(g.T, 4, D) for g in (from_input, from_hidden)]
        parts += [padded(g.T, D, 4 * D) for g in gates] + [in_groups(bias_input + bias_hidden, 4, D)]
    return [part.cpu() for part in parts]
