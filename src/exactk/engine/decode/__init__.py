"""Cards on the CPU by a policy: its weights packed for the compiled kernel, requests in, cards out.

Knows no network but by the names of its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int

from exactk.engine import (
    NumpyVectors,
    Scratch,
    Weights,
    encoder_layer,
    in_groups,
    laid_out,
    linear,
    packed,
    padded,
    padded_linear,
    padded_norm,
    padded_row,
    part_of,
    plain,
    rounded,
    unknown_id,
)
from exactk.engine.decode.beam import likeliest_cards
from exactk.engine.decode.kernel import (
    NO_CARD,
    UNKNOWN_ID,
    Gains,
    Places,
    Sizes,
    decode_each,
    scores_each,
    shares_each,
)
from exactk.engine.pair_values import CompiledPairValues, PairValues
from exactk.engine.shapes import SHARING_PACE
from exactk.errors import InfeasibleError
from exactk.problem.batch import Batch
from exactk.problem.compiling import num_cores, shared
from exactk.problem.exact.cliques import plain_arrays
from exactk.settings.config import InputSizes, PairValueConfig, PolicyConfig

GRAIN = 4  # requests a thread takes at least


class CompiledAffinity:
    """<p_u, q_i> + b_i + m_ui of every candidate."""

    def __init__(self, weights: Weights, config: PolicyConfig, num_items: int) -> None:
        self._weights, self._config, self._num_items = weights, config, num_items

    def __call__(self, batch: Batch) -> Float32[np.ndarray, "B N"]:
        """Ids beyond the tables get some row's numbers: the kernel refuses their request."""
        config, weights = self._config, self._weights
        q = config.affinity_pace * self._summed("item", batch.item, batch.item_features)  # B N r+1
        scores = q[..., -1]
        if config.affinity:
            p = config.affinity_pace * self._summed("user", batch.user, batch.user_features)  # B r
            scores = (q[..., :-1] @ p[..., None])[..., 0] + scores
        if "pairs" in weights:
            place = (batch.user[:, None] * self._num_items + batch.item) % len(weights["pairs"])
            remembered = -config.memory * weights["pairs"][place]
            scores = scores - np.where(remembered > 0, remembered, np.expm1(np.minimum(remembered, 0)))
        return plain(scores.astype(np.float32, copy=False))

    def _summed(self, kind: str, ids: np.ndarray, features: np.ndarray | None) -> np.ndarray:
        """The row of the table and the linear part of the features, whichever there are."""
        table = self._weights.get(f"{kind}s.weight")
        by_id = None if table is None else table[ids.clip(0, len(table) - 1)]
        if f"from_{kind}.weight" not in self._weights or features is None:
            assert by_id is not None
            return np.asarray(by_id)
        by_features = linear(self._weights, f"from_{kind}", features)
        return np.asarray(by_features if by_id is None else by_id + by_features)


class CompiledGuide:
    """The gains of a policy's guide, all of them times its scale, for the decoder's kernel."""

    def __init__(self, weights: Weights, config: PairValueConfig, sizes: InputSizes) -> None:
        value = part_of(weights, "value")
        self.scale = np.float32(weights["scale"])
        self.values = CompiledPairValues(value, config, sizes)
        members = [part_of(value, f"members.{m}.sharing") for m in range(config.members)]
        sharing = [member for member in members if member]
        size = rounded(self.values.sizes.item_size)
        self._sharing = tuple(
            plain(np.stack([padded_row(part[name], size) for part in sharing]))
            if sharing
            else np.zeros((0, 0), np.float32)
            for name in ("level", "sharpness")
        )
        worth = [SHARING_PACE * part["weight"] / len(members) for part in sharing]
        self._worth = plain(np.concatenate([np.zeros(0, np.float32), *worth])) * self.scale

    def gains(self, batch: Batch, values: PairValues | None = None) -> Gains:
        """Of every request; `values` spare computing them again."""
        B, N = batch.item.shape
        values = self.values(batch) if values is None else values
        has = np.empty((B, len(self._worth), N), np.float32)
        if len(self._worth):
            vectors = self.values.vectors
            tables = tuple(each.items for each in vectors)
            shares_each(*self._sharing, tables, vectors[0].features(batch).item, plain(batch.item), has)
        node, pair = (self.scale * part.astype(np.float32) for part in (values.node, values.pair))
        return Gains(node, pair, has, self._worth)


def no_gains(batch: Batch) -> Gains:
    """Empty arrays: nothing is added to the scores."""
    B, N = batch.item.shape
    return Gains(*(np.zeros(shape, np.float32) for shape in ((B, 0), (B, 0, 0), (B, 0, N), (0,))))


class WrittenCards(NamedTuple):
    """The W likeliest cards, best first, positions in order of choice, -1 beyond a card's size; how many there are."""

    cards: Int[np.ndarray, "B W K"]
    num_found: Int[np.ndarray, "B"]


class CompiledDecoder:
    """A policy's beam search as one compiled call per batch; the same cards as `search.beam`.

    `threads` (all cores if not given) share a batch.
    """

    def __init__(
        self,
        weights: Weights,
        config: PolicyConfig,
        sizes: InputSizes,
        guide_config: PairValueConfig,
        threads: int | None = None,
    ) -> None:
        self.vectors = NumpyVectors.of(part_of(weights, "inputs.vectors"), config.inputs, sizes)
        self.threads = threads or num_cores()
        affinity, guide = part_of(weights, "affinity"), part_of(weights, "guide")
        self._affinity = CompiledAffinity(affinity, config, sizes.num_items) if affinity else None
        self._guide = CompiledGuide(guide, guide_config, sizes) if guide else None
        self._sizes = sizes_of(config, self.vectors)
        self._tables = (self.vectors.users, self.vectors.items)
        self._weights = packed(
            _encoder_weights(weights, self._sizes) + _pointer_weights(weights, self._sizes)
        )
        self._named = weights
        self._scratch = Scratch()

    @property
    def beam(self) -> int:
        """Cards kept side by side."""
        return self._sizes.beam

    def with_beam(self, width: int) -> CompiledDecoder:
        """The same policy, decoded by a beam of this width."""
        other = copy(self)
        other._sizes = self._sizes._replace(beam=width, rows=rounded(width, 4))
        other._scratch = Scratch()
        return other

    def recommend(self, batch: Batch) -> Int[np.ndarray, "B K"]:
        """One valid card per request, positions in order of choice, -1 beyond a card's size."""
        written = self.write(batch)
        if not written.num_found.all():
            b = int(np.flatnonzero(written.num_found == 0)[0])
            size, num = int(batch.card_size[b]), int(batch.present[b].sum())
            raise InfeasibleError(
                f"request {b} of the batch has no valid card: no {size} of its {num} candidates may share a card"
            )
        return written.cards[:, 0]

    def write(self, batch: Batch, kept: int = 1, values: PairValues | None = None) -> WrittenCards:
        """The `kept` likeliest cards; `values` are the guide's, where they are known already."""
        B, N = batch.item.shape
        if batch.brief is not None:  # the kernel knows pairs and caps alone
            alone = [batch.rows(slice(b, b + 1)) for b in range(B)]
            return WrittenCards(*likeliest_cards(batch, partial(self._after, alone), self.beam, kept))
        requests = batch.requests()
        cards = np.full((B, kept, int(requests.card_size.max())), -1, np.int64)
        status = np.empty(B, np.int64)
        places, counter = places_of(self._sizes, N), np.zeros(1, np.int64)
        asked, answer = np.empty((2, B, N), np.bool_)
        given = (
            self._weights, self._tables, *self._given(batch, values), plain_arrays(requests), asked, answer, cards,
            status,
        )  # fmt: skip
        shared(
            min(self.threads, B // GRAIN),
            lambda _: decode_each(counter, self._sizes, places, self._scratch.of(places, places.end), *given),
        )
        if (status == UNKNOWN_ID).any():
            raise unknown_id(int(np.flatnonzero(status == UNKNOWN_ID)[0]), self.vectors)
        return WrittenCards(cards, np.where(status == NO_CARD, 0, (cards[:, :, 0] >= 0).sum(1)))

    def scores(self, batch: Batch, begun: Int[np.ndarray, "B t"] | None = None) -> Float32[np.ndarray, "B N"]:
        """Raw scores of every candidate as the choice after the positions `begun`; as the first if none are given."""
        B, N = batch.item.shape
        scores, places = np.empty((B, N), np.float32), places_of(self._sizes, N)
        begun = np.empty((B, 0), np.int64) if begun is None else np.ascontiguousarray(begun)
        unknown = scores_each(
            self._sizes, places, self._scratch.of(places, places.end), self._weights, self._tables,
            *self._given(batch, None), np.ascontiguousarray(batch.present), begun, scores,
        )  # fmt: skip
        if unknown >= 0:
            raise unknown_id(unknown, self.vectors)
        return scores

    def _after(
        self, alone: Sequence[Batch], b: int, begun: Int[np.ndarray, "W t"]
    ) -> Float32[np.ndarray, "W N"]:
        """The scores of request b after each of some cards begun."""
        return self.scores(alone[b].rows(np.zeros(len(begun), np.int64)), begun)

    def attention(self, batch: Batch) -> Float32[np.ndarray, "B L H N N"]:
        """What every candidate attends to in the encoder, per layer and head (the paper's Fig. 4)."""
        inputs = self._named
        item = linear(inputs, "inputs.item_weight", self.vectors.item(batch))
        user = linear(inputs, "inputs.user_weight", self.vectors.user(batch))
        nodes, found = linear(inputs, "encoder.embed", np.maximum(item + user[:, None], 0)), []
        for number in range(self._sizes.layers):
            layer = part_of(inputs, f"encoder.layers.{number}")
            nodes, attention = encoder_layer(layer, nodes, batch.present, self._sizes.heads)
            found.append(attention)
        return np.stack(found, 1)

    def _given(self, batch: Batch, values: PairValues | None) -> tuple[Any, Any, np.ndarray, Gains]:
        """What the kernels read of a batch: features, ids, affinity (no columns where there is none), gains."""
        features = self.vectors.features(batch)
        affinity = np.zeros((len(batch), 0), np.float32) if self._affinity is None else self._affinity(batch)
        gains = no_gains(batch) if self._guide is None else self._guide.gains(batch, values)
        ids = (plain(batch.user), plain(batch.item))
        return (features.user[:, None], features.item), ids, affinity, gains


def sizes_of(config: PolicyConfig, vectors: NumpyVectors) -> Sizes:
    """The network's sizes, padded to what a register holds."""
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
    places, end = laid_out(needed)
    return Places(**places, end=end)


def _encoder_weights(policy: Weights, sizes: Sizes) -> list[np.ndarray]:
    D, F, H = sizes.width, sizes.feed_forward_size, sizes.heads * sizes.head_size
    encoder = part_of(policy, "encoder")
    parts = [
        padded_row(np.ones(sizes.true_width, np.float32), D),
        padded(policy["inputs.item_weight.weight"], sizes.item_size, D),
        padded(policy["inputs.user_weight.weight"], sizes.user_size, D),
        padded_row(policy["inputs.item_weight.bias"], D),
        *padded_linear(encoder, "embed", D, D),
    ]
    for number in range(sizes.layers):
        layer = part_of(encoder, f"layers.{number}")
        project = in_groups(layer["attention.project.weight"].T, sizes.parts * sizes.heads, sizes.head_size)
        join = in_groups(layer["attention.join.weight"], sizes.heads, sizes.head_size)
        parts += [padded(project.T, D, sizes.parts * H), padded(join, H, D)]
        parts += padded_norm(layer, "attention_norm", D)
        parts += [*padded_linear(layer, "widen", D, F), *padded_linear(layer, "narrow", F, D)]
        parts += padded_norm(layer, "feed_forward_norm", D)
    return parts


def _pointer_weights(policy: Weights, sizes: Sizes) -> list[np.ndarray]:
    """tanh(k + q) is made of e^2k and e^2q: the doubling, and the -2 of the sum, are in the weights."""
    D, pointer = sizes.width, part_of(policy, "pointer")
    keys = [padded(part, D, D).T for part in np.split(2 * pointer["keys.weight"], 2)]
    query = in_groups(2 * pointer["pointer_query.weight"], 2, D)
    vectors = [padded_row(-2 * pointer[f"{name}_vector.weight"], D) for name in ("glimpse", "pointer")]
    parts = [*keys, padded(2 * pointer["glimpse_query.weight"], D, D), padded(query, 2 * D, D), *vectors]
    cells = [_cell(part_of(pointer, "recurrent"), layer) for layer in range(sizes.decoder_layers)]
    for hidden_and_cell in _begin(cells, sizes.true_width):
        parts += [padded_row(part, D) for part in hidden_and_cell]
    for from_input, from_hidden, bias in cells:
        gates = [in_groups(g.T, 4, D) for g in (from_input, from_hidden)]
        parts += [padded(g.T, D, 4 * D) for g in gates] + [in_groups(bias, 4, D)]
    return parts


def _cell(recurrent: Weights, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of one LSTM cell: the weights of its input and of its hidden vector, and both biases together."""
    return (
        recurrent[f"weight_ih_l{layer}"],
        recurrent[f"weight_hh_l{layer}"],
        recurrent[f"bias_ih_l{layer}"] + recurrent[f"bias_hh_l{layer}"],
    )


def _begin(
    cells: list[tuple[np.ndarray, np.ndarray, np.ndarray]], width: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """d_1 = g(0, 0) (eq. 11): each layer's hidden vector and cell, the same for every request."""
    below, found = np.zeros(width, np.float32), []
    for from_input, _, bias in cells:
        i, _, g, o = np.split(from_input @ below + bias, 4)
        cell = np.tanh(g) / (1 + np.exp(-i))
        below = np.tanh(cell) / (1 + np.exp(-o))
        found.append((below, cell))
    return found
