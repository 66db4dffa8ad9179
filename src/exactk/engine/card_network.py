"""The card value in plain numpy: an encoder over the candidates, a score of each and of every two.

Knows no search. What it computes is `models.card_value`, weights by the same names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from exactk.engine.card_columns import CardColumns, NumpyListInputs
from exactk.engine.card_values import SummedValue
from exactk.engine.network import linear, normed, softmax
from exactk.engine.packing import Weights, part_of
from exactk.engine.pair_value.values import CompiledPairValues, PairValues
from exactk.problem.batch import Batch
from exactk.settings.config import Config, InputSizes

FAR = np.float32(-1e9)
AT_ONCE = 8  # requests: what they pass from layer to layer then stays near the processor


class CardNetwork(SummedValue):
    """Members that read the same columns; their mean is a sum over items and pairs again."""

    def __init__(self, weights: Weights, config: Config, sizes: InputSizes) -> None:
        self._sizes = sizes
        self._inputs = CardColumns(part_of(weights, "inputs"), sizes, config.card_value)
        self._members = [
            NumpyCardMember(part_of(weights, f"members.{m}"), config, sizes, self._inputs.attends)
            for m in range(config.card_value.members)
        ]

    def values(self, batch: Batch) -> PairValues:
        """Mean node and pair values; where whole lists were seen a node is the chance that it is the one clicked."""
        several = [self._values(batch.rows(slice(b, b + AT_ONCE))) for b in range(0, len(batch), AT_ONCE)]
        return PairValues(*(np.concatenate(part) for part in zip(*several, strict=True)))

    def _values(self, batch: Batch) -> PairValues:
        listed = self._inputs(batch)
        parts = [member.values(batch, listed) for member in self._members]
        bias, node, pair = (
            np.asarray(np.mean(part, axis=0, dtype=np.float64))
            for part in zip(*map(self._read, parts), strict=True)
        )
        two = batch.present[:, :, None] & batch.present[:, None] & ~np.eye(batch.item.shape[1], dtype=bool)
        return PairValues(
            bias, np.where(batch.present, node, 0.0), (pair + pair.transpose(0, 2, 1)) / 2 * two
        )

    def _read(self, values: PairValues) -> PairValues:
        if self._sizes.shown != "list":
            return values
        # Where nobody is, the node is far below every other.
        return PairValues(values.bias * 0, softmax(values.node), values.pair)


class NumpyCardMember:
    """One network, with a pair value's terms of ids and features below it where those are worth any."""

    def __init__(self, weights: Weights, config: Config, sizes: InputSizes, attends: bool) -> None:
        self._weights, self._sizes, self._config, self._attends = weights, sizes, config.card_value, attends
        base = part_of(weights, "base")
        own = {f"members.0.{name}": array for name, array in base.items()}
        pairs = replace(config.pair_value, members=1)
        self._base, self._pairs = base, CompiledPairValues(own, pairs, sizes) if base else None
        self._layers = [part_of(weights, f"layers.{number}") for number in range(config.card_value.layers)]

    def values(self, batch: Batch, listed: NumpyListInputs) -> PairValues:
        """Scores of all candidates, far below zero where nobody is, and of all pairs."""
        w, scores_pairs = self._weights, self._sizes.shown != "list"
        if not self._sizes.users_recur:
            batch = replace(batch, user=np.zeros_like(batch.user))
        h = self._embedded(batch, listed)
        node = linear(w, "node_out", np.maximum(linear(w, "node_hidden", h), 0)) + linear(w, "node_linear", h)
        node = node[..., 0] + w["offset"] * listed.score
        pair = self._of_pairs(h, listed) if scores_pairs else np.zeros((len(node), *2 * node.shape[1:]))
        bias = np.full(len(node), float(w["user_bias"]))
        if self._pairs is not None:
            base = self._pairs(batch)
            bias, node = bias + base.bias, node + base.node
            pair = pair + base.pair if scores_pairs else pair
        return PairValues(bias, np.where(batch.present, node, FAR), pair)

    def _embedded(self, batch: Batch, listed: NumpyListInputs) -> Float[np.ndarray, "B N D"]:
        w = self._weights
        parts = [listed.candidates, *self._embeddings("categories", listed.categories)]
        if self._pairs is not None:
            vectors = self._pairs.vectors[0]
            item, user = vectors.item(batch), vectors.user(batch)
            both = linear(self._base, "map_item", item) * linear(self._base, "map_user", user)[:, None]
            parts += [item, both]
        context = [listed.context, *self._embeddings("context_categories", listed.context_categories)]
        nodes = linear(w, "item", np.concatenate(parts, -1))
        nodes = nodes + linear(w, "context", np.concatenate(context, -1))[:, None]
        for layer, steering in zip(self._layers, self._steering(batch.present, listed), strict=True):
            if self._attends:
                nodes = nodes + self._attention(layer, nodes, steering)
            wide = np.maximum(linear(layer, "widen", normed(layer, "feed_forward_norm", nodes)), 0)
            nodes = nodes + linear(layer, "narrow", wide)
        return normed(w, "norm", nodes)

    def _embeddings(self, name: str, codes: np.ndarray) -> Iterator[np.ndarray]:
        """Each column's, side by side."""
        for c in range(codes.shape[-1]):
            yield self._weights[f"{name}.tables.{c}.weight"][codes[..., c]]

    def _attention(
        self, layer: Weights, nodes: Float[np.ndarray, "B N D"], steering: Float[np.ndarray, "B h N N"]
    ) -> Float[np.ndarray, "B N D"]:
        B, N, D = nodes.shape
        heads = self._config.heads
        parts = linear(layer, "project", normed(layer, "attention_norm", nodes))
        query, key, value = parts.reshape(B, N, 3, heads, D // heads).transpose(2, 0, 3, 1, 4)
        attention = softmax(query @ key.swapaxes(-1, -2) / np.float32(math.sqrt(D // heads)) + steering)
        return linear(layer, "join", (attention @ value).swapaxes(1, 2).reshape(B, N, D))

    def _steering(self, present: Bool[np.ndarray, "B N"], listed: NumpyListInputs) -> list[np.ndarray]:
        """What is added to the scores of attention in each layer."""
        far = np.where(present, np.float32(0), FAR)[:, None, None]  # B 1 1 N
        if "bias_out.weight" not in self._weights:
            return [far] * len(self._layers)
        w = self._weights
        extra = linear(w, "bias_out", np.maximum(linear(w, "bias_hidden", listed.pairs), 0))  # B T H*L
        square = both_ways(extra, present.shape[1]).transpose(0, 3, 1, 2)
        return [far + part for part in np.split(square, len(self._layers), 1)]

    def _of_pairs(self, h: Float[np.ndarray, "B N D"], listed: NumpyListInputs) -> Float[np.ndarray, "B N N"]:
        w, N = self._weights, h.shape[1]
        pair = np.zeros((len(h), N, N), np.float32)
        if "pair_out.weight" in w:
            deep = linear(w, "pair_out", np.maximum(linear(w, "pair_hidden", listed.pairs), 0))
            pair = both_ways(linear(w, "pair_linear", listed.pairs) + deep, N)[..., 0]
        if "low_weight" in w:
            low = linear(w, "low", h)
            rank = np.float32(math.sqrt(len(w["low_weight"])))
            pair = pair + (low * w["low_weight"]) @ low.swapaxes(1, 2) / rank
        return pair


def both_ways(values: Float[np.ndarray, "B T C"], size: int) -> Float[np.ndarray, "B N N C"]:
    """Values of the pairs i < j as a symmetric matrix, 0 on its diagonal."""
    i, j = np.triu_indices(size, 1)
    full = np.zeros((len(values), size, size, values.shape[-1]), values.dtype)
    full[:, i, j] = full[:, j, i] = values
    return full
