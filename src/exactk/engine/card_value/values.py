"""A card value on the CPU without torch: a batch in, node and pair values out, all members in one product of matrices.

Knows no search; the network is that of `models.card_value`, its weights by the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from exactk.engine.card_value.reading import CardReader, Listed
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import Config, InputSizes

FAR = np.float32(-1e9)
ROWS_AT_ONCE = 64  # candidates of all requests of a step: larger arrays leave the cache


class CardValues(NamedTuple):
    """logit(A) = bias + sum of node over A + sum of pair over the pairs of A; pair symmetric, diagonal 0."""

    bias: Float64[np.ndarray, "B"]
    node: Float64[np.ndarray, "B N"]
    pair: Float64[np.ndarray, "B N N"]


class CardColumnValues:
    """The values of a learned card value; M members side by side along the first axis, R rows of all requests next."""

    def __init__(self, weights: Mapping[str, np.ndarray], config: Config, sizes: InputSizes) -> None:
        own = config.card_value
        self.sizes, self.heads, self.num_layers, self.members = sizes, own.heads, own.layers, own.members
        self._attends = own.attention == "always" or (own.attention == "auto" and sizes.shown != "card")
        scales = {
            name.removeprefix("inputs."): a for name, a in weights.items() if name.startswith("inputs.")
        }
        self._read = CardReader(scales, sizes, self._attends and sizes.shown != "list")
        names = [name.removeprefix("members.0.") for name in weights if name.startswith("members.0.")]
        self._w = {
            name: np.stack(
                [np.asarray(weights[f"members.{m}.{name}"], np.float32) for m in range(self.members)]
            )
            for name in names
        }
        for name in names:  # matrices stand as they are multiplied
            if (
                self._w[name].ndim == 3
                and "tables" not in name
                and "vectors" not in name
                and name != "base.table"
            ):
                self._w[name] = np.ascontiguousarray(self._w[name].transpose(0, 2, 1))

    def __call__(self, batch: Batch) -> CardValues:
        """Of every candidate and pair: the members' mean. A few requests at a time stay near the processor."""
        B, N = batch.item.shape
        step = max(1, ROWS_AT_ONCE // max(N, 1))
        if step >= B:
            return self._values(batch)
        parts = [self._values(batch.rows(slice(b, b + step))) for b in range(0, B, step)]
        return CardValues(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _values(self, batch: Batch) -> CardValues:
        M, (B, N) = self.members, batch.item.shape
        listed, base = self._read(batch), self._base(batch)
        h = self._embedded(batch, listed, base.features)  # M B*N D
        scores = self._linear("node_out", self._hidden("node_hidden", h)) + self._linear("node_linear", h)
        offset = self._w["offset"][:, None, None] * listed.score
        node = (scores.reshape(M, B, N) + offset + base.node) * batch.present
        if self.sizes.shown == "list":
            node = softmax(np.where(batch.present, node, FAR)) * batch.present
            return CardValues(np.zeros(B), node.mean(0, dtype=np.float64), np.zeros((B, N, N)))
        pair = (self._pairs(h.reshape(M, B, N, -1), listed) + base.pair).mean(0, dtype=np.float64)
        two = batch.present[:, :, None] & batch.present[:, None, :] & ~np.eye(N, dtype=bool)
        bias = (base.bias + self._w["user_bias"][:, None]).mean(0, dtype=np.float64)
        return CardValues(bias, node.mean(0, dtype=np.float64), (pair + pair.transpose(0, 2, 1)) / 2 * two)

    def _linear(self, name: str, x: Float32[np.ndarray, "_ R n"]) -> Float32[np.ndarray, "M R m"]:
        """W x + b of each member; an `x` of one row of members is the same for all."""
        y = x @ self._w[f"{name}.weight"]
        if f"{name}.bias" in self._w:
            y += self._w[f"{name}.bias"][:, None]
        return np.asarray(y)

    def _hidden(self, name: str, x: Float32[np.ndarray, "_ R n"]) -> Float32[np.ndarray, "M R m"]:
        y = self._linear(name, x)
        return np.asarray(np.maximum(y, 0, out=y))

    def _base(self, batch: Batch) -> Base:
        """The pair value's terms of ids and features, and what the encoder reads of them."""
        M, (B, N) = self.members, batch.item.shape
        if "base.table" not in self._w:
            none = np.zeros((1, 1, 1), np.float32)
            return Base(
                np.zeros((1, B), np.float32), none, none[..., None], np.zeros((1, B * N, 0), np.float32)
            )
        users = batch.user if self.sizes.users_recur else np.zeros_like(batch.user)
        item = self._vectors("items", batch.item, batch.item_features).reshape(M, B * N, -1)
        user = self._vectors("users", users, batch.user_features)  # M B Du
        both = self._linear("base.map_item", item).reshape(M, B, N, -1)
        both = (both * self._linear("base.map_user", user)[:, :, None]).reshape(M, B * N, -1)
        hidden = self._linear("base.node_item", item) + self._linear("base.node_both", both)
        hidden = hidden.reshape(M, B, N, -1) + self._linear("base.node_user", user)[:, :, None]
        hidden = np.maximum(hidden, 0).reshape(M, B * N, -1)
        node = self._linear("base.node_out", hidden) + self._linear("base.node_linear", item)
        node = (node[..., 0] + both.sum(-1)).reshape(M, B, N)
        bias = self._linear("base.user_bias", user)[..., 0]
        pair = np.zeros((1, 1, 1, 1), np.float32)
        if self.sizes.shown != "list":
            kinds = softmax(self._linear("base.kinds", item)).reshape(M, B, N, -1)
            places = self._linear("base.places", item).reshape(M, B, N, -1)
            minding = np.logaddexp(0, self._linear("base.minding", user)[..., 0])[..., None, None]
            pair = minding * (self._together(kinds) + self._closeness(places))
        return Base(bias, node, pair, np.concatenate([item, both], -1))

    def _together(self, kinds: Float32[np.ndarray, "M B N C"]) -> Float32[np.ndarray, "M B N N"]:
        table = self._w["base.table"]
        return np.asarray(kinds @ ((table + table.transpose(0, 2, 1)) / 2)[:, None] @ kinds.swapaxes(2, 3))

    def _closeness(self, places: Float32[np.ndarray, "M B N Z"]) -> Float32[np.ndarray, "M B N N"]:
        square = (places * places).sum(-1)
        apart = square[..., None] + square[..., None, :] - 2 * places @ places.swapaxes(2, 3)
        near: np.ndarray = np.exp(-np.maximum(apart, 0))
        return np.asarray(self._w["base.closeness"][:, None, None, None] * near)

    def _vectors(
        self, kind: str, ids: np.ndarray, features: np.ndarray | None
    ) -> Float32[np.ndarray, "M B ..."]:
        """Rows of the members' tables, then features, as `models.inputs` joins them."""
        parts = []
        if f"base.vectors.{kind}.weight" in self._w:
            table = self._w[f"base.vectors.{kind}.weight"]
            if ((ids < 0) | (ids >= table.shape[1])).any():
                raise InputError(f"a request of the batch names one of {kind} the model has no row for")
            parts.append(table[:, ids])
        size = self.sizes.user_feature_size if kind == "users" else self.sizes.item_feature_size
        if size:
            if features is None or features.shape[-1] != size:
                raise InputError(f"this model reads {size} features of {kind}, the batch has others")
            parts.append(np.broadcast_to(features.astype(np.float32), (self.members, *features.shape)))
        return np.concatenate(parts, -1)

    def _embedded(self, batch: Batch, listed: Listed, features: np.ndarray) -> Float32[np.ndarray, "M R D"]:
        M, (B, N) = self.members, batch.item.shape
        columns = listed.candidates.reshape(1, B * N, -1)
        own = [self._looked_up("categories", listed.categories.reshape(B * N, -1)), features]
        nodes = self._split("item", columns, own).reshape(M, B, N, -1)
        own = [self._looked_up("context_categories", listed.context_categories)]
        nodes = (nodes + self._split("context", listed.context[None], own)[:, :, None]).reshape(M, B * N, -1)
        steering = self._steering(batch, listed)
        for layer in range(self.num_layers):
            nodes = self._layer(f"layers.{layer}", nodes, None if steering is None else steering[layer], B)
        return self._normed("norm", nodes)

    def _split(self, name: str, shared: np.ndarray, own: list[np.ndarray]) -> Float32[np.ndarray, "M R D"]:
        """W [shared; own] + b, where `shared` is the same for all members."""
        weight, used = self._w[f"{name}.weight"], shared.shape[-1]
        y = shared @ weight[:, :used] + self._w[f"{name}.bias"][:, None]
        for part in own:
            if part.shape[-1]:
                y += part @ weight[:, used : used + part.shape[-1]]
                used += part.shape[-1]
        return np.asarray(y)

    def _looked_up(self, name: str, codes: np.ndarray) -> Float32[np.ndarray, "M R E"]:
        tables = [self._w[f"{name}.tables.{c}.weight"] for c in range(codes.shape[-1])]
        parts = [table[:, codes[:, c]] for c, table in enumerate(tables)]
        return np.concatenate([np.zeros((self.members, len(codes), 0), np.float32), *parts], -1)

    def _steering(self, batch: Batch, listed: Listed) -> list[np.ndarray] | None:
        """What is added to the scores of attention in each layer, M B H N N; nothing where nobody attends."""
        if not self._attends:
            return None
        B, N = batch.item.shape
        far = np.where(batch.present, np.float32(0), FAR)[None, :, None, None]  # 1 B 1 1 N
        if "bias_out.weight" not in self._w:
            return [far] * self.num_layers
        rows = listed.pairs.reshape(1, -1, listed.pairs.shape[-1])
        extra = self._linear("bias_out", self._hidden("bias_hidden", rows))
        extra = extra.reshape(self.members, B, -1, self.num_layers * self.heads).swapaxes(2, 3)
        square = both_ways(np.ascontiguousarray(extra), N)  # M B L*H N N
        return [far + square[:, :, at * self.heads : (at + 1) * self.heads] for at in range(self.num_layers)]

    def _layer(self, name: str, nodes: np.ndarray, bias: np.ndarray | None, num: int) -> np.ndarray:
        M, R, D = nodes.shape
        if bias is not None:
            parts = self._linear(f"{name}.project", self._normed(f"{name}.attention_norm", nodes))
            parts = parts.reshape(M, num, R // num, 3, self.heads, D // self.heads).transpose(
                3, 0, 1, 4, 2, 5
            )
            query, key, value = np.ascontiguousarray(parts)  # M B H N d
            scores = query @ key.swapaxes(-1, -2)
            scores *= np.float32(1 / np.sqrt(D // self.heads))
            scores += bias
            mixed = (softmax(scores) @ value).swapaxes(2, 3).reshape(M, R, D)
            nodes = nodes + self._linear(f"{name}.join", mixed)
        wide = self._hidden(f"{name}.widen", self._normed(f"{name}.feed_forward_norm", nodes))
        return np.asarray(nodes + self._linear(f"{name}.narrow", wide))

    def _normed(self, name: str, x: Float32[np.ndarray, "M R D"]) -> Float32[np.ndarray, "M R D"]:
        apart = x - x.mean(-1, keepdims=True)
        apart *= 1 / np.sqrt((apart * apart).mean(-1, keepdims=True) + np.float32(1e-5))
        return np.asarray(apart * self._w[f"{name}.weight"][:, None] + self._w[f"{name}.bias"][:, None])

    def _pairs(self, h: Float32[np.ndarray, "M B N D"], listed: Listed) -> Float32[np.ndarray, "M B N N"]:
        M, B, N, _ = h.shape
        pair: np.ndarray = np.zeros((M, B, N, N), np.float32)
        if "pair_out.weight" in self._w:
            rows = listed.pairs.reshape(1, -1, listed.pairs.shape[-1])
            deep = self._linear("pair_out", self._hidden("pair_hidden", rows))
            flat = (deep + self._linear("pair_linear", rows)).reshape(M, B, 1, -1)
            pair = both_ways(flat, N)[:, :, 0]
        if "low.weight" in self._w:
            low = h @ self._w["low.weight"][:, None]
            weighed = low * self._w["low_weight"][:, None, None]
            pair = pair + weighed @ low.swapaxes(2, 3) * np.float32(1 / np.sqrt(low.shape[-1]))
        return pair


class Base(NamedTuple):
    """Terms of ids and features; of one member and row where there are none."""

    bias: Float32[np.ndarray, "M B"]
    node: Float32[np.ndarray, "M B N"]
    pair: Float32[np.ndarray, "M B N N"]
    features: Float32[np.ndarray, "M R F"]


def both_ways(values: Float32[np.ndarray, "M B C T"], size: int) -> Float32[np.ndarray, "M B C N N"]:
    """Values of the pairs i < j as a symmetric matrix, 0 on its diagonal."""
    i, j = np.triu_indices(size, 1)
    place = np.full((size, size), len(i))
    place[i, j] = place[j, i] = np.arange(len(i))
    padded = np.concatenate([values, np.zeros((*values.shape[:-1], 1), np.float32)], -1)
    return np.asarray(padded[..., place])


def softmax(x: Float32[np.ndarray, "*S n"]) -> Float32[np.ndarray, "*S n"]:
    """Along the last axis; takes its argument's place."""
    x -= x.max(-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(-1, keepdims=True)
    return x
