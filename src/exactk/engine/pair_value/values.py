"""A pair value on the CPU: requests in, the numbers of all candidates and pairs out, by one compiled call.

Knows no search, and of the network no more than the names of its weights.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from exactk.engine.inputs import NumpyVectors, unknown_id
from exactk.engine.packing import Weights, aligned, in_groups, packed, padded, part_of, plain, rounded
from exactk.engine.pair_value.kernel import PairPlaces, PairSizes, values_each
from exactk.problem.batch import Batch
from exactk.settings.config import InputSizes, PairValueConfig


class PairValues(NamedTuple):
    """logit(A) = bias + sum of node over A + sum of pair over the pairs of A; pair symmetric, diagonal 0."""

    bias: Float64[np.ndarray, "B"]
    node: Float64[np.ndarray, "B N"]
    pair: Float64[np.ndarray, "B N N"]


class CompiledPairValues:
    """The values of a learned pair value."""

    def __init__(self, weights: Weights, config: PairValueConfig, sizes: InputSizes) -> None:
        members = [part_of(weights, f"members.{m}") for m in range(config.members)]
        self.vectors = [NumpyVectors.of(part_of(m, "vectors"), config.inputs, sizes) for m in members]
        self.sizes = sizes_of(config, self.vectors[0])
        self._tables = (tuple(v.users for v in self.vectors), tuple(v.items for v in self.vectors))
        self._weights = packed([part for member in members for part in _weights(member, self.sizes)])
        self._own = threading.local()

    def __call__(self, batch: Batch) -> PairValues:
        """Of every candidate and pair."""
        B, N = batch.item.shape
        values = PairValues(np.empty(B), np.empty((B, N)), np.empty((B, N, N)))
        places = places_of(self.sizes, N)
        if getattr(self._own, "places", None) != places:
            self._own.scratch, self._own.places = aligned(places.end), places
        features = self.vectors[0].features(batch)
        unknown = values_each(
            self.sizes,
            places,
            self._own.scratch,
            self._weights,
            self._tables,
            (features.user[:, None], features.item),
            (plain(batch.user), plain(batch.item)),
            values.bias,
            values.node,
            values.pair,
        )
        if unknown >= 0:
            raise unknown_id(unknown, self.vectors[0])
        return values


def sizes_of(config: PairValueConfig, vectors: NumpyVectors) -> PairSizes:
    """The network's sizes, padded to what a register holds."""
    return PairSizes(
        item_size=vectors.item_size,
        user_size=vectors.user_size,
        embedding=rounded(config.embedding_size),
        hidden=rounded(config.hidden_size),
        kinds=rounded(config.kinds),
        place=rounded(config.place_size),
        members=config.members,
    )


@lru_cache(maxsize=64)
def places_of(sizes: PairSizes, num_candidates: int) -> PairPlaces:
    """Room for everything the kernel keeps; rows come in fours."""
    span, n = rounded(num_candidates), rounded(num_candidates, 4)
    E, H, C, Z = sizes.embedding, sizes.hidden, sizes.kinds, sizes.place
    needed = {
        "zeros": max(span, H, C),
        "user": 4 * sizes.user_size,
        "inputs": n * (sizes.item_size + E),
        "mapped_user": 4 * E,
        "mapped": n * E,
        "row": 4 * H,
        "hidden": n * H,
        "kinds": n * C,
        "tabled": n * C,
        "places": n * Z,
        "square": span,
        "turned": max(C, Z) * span,
        "pair": n * span,
        "products": n * span,
    }
    places, used = {}, 0
    for name, size in needed.items():
        places[name] = used
        used += rounded(size)
    return PairPlaces(**places, end=used)


def _weights(member: Weights, sizes: PairSizes) -> list[np.ndarray]:
    """One member's weights in the order in which the kernel reads them."""
    E, H, item, user = sizes.embedding, sizes.hidden, sizes.item_size, sizes.user_size
    C, Z, table = sizes.kinds, sizes.place, member["table"]
    barred = np.zeros(C, np.float32)
    barred[len(table) :] = -np.inf
    return [
        padded(member["map_user.weight"], user, E),
        in_groups(member["map_user.bias"], 1, E),
        padded(member["map_item.weight"], item, E),
        in_groups(member["map_item.bias"], 1, E),
        padded(member["node_user.weight"], user, H),
        in_groups(member["node_item.bias"], 1, H),
        padded(member["node_item.weight"], item, H),
        padded(member["node_both.weight"], E, H),
        in_groups(member["node_out.weight"], 1, H),
        member["node_linear.weight"],
        in_groups(np.ones_like(member["map_item.bias"]), 1, E),
        padded(member["kinds.weight"], item, C),
        in_groups(member["kinds.bias"], 1, C),
        barred,
        padded((table + table.T) / 2, C, C),
        padded(member["places.weight"], item, Z),
        in_groups(member["places.bias"], 1, Z),
        member["closeness"],
        member["minding.weight"],
        member["minding.bias"],
        member["user_bias.weight"],
        member["user_bias.bias"],
    ]
