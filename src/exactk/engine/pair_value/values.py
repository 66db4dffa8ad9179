"""A pair value on the CPU with torch left out: requests in, the numbers of all candidates and pairs out.

Knows no search, and no network from inside but the order of its weights.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor, nn

from exactk.engine.packing import aligned, in_groups, padded, plain, rounded
from exactk.engine.pair_value.kernel import PairPlaces, PairSizes, values_each
from exactk.errors import InputError
from exactk.models.pairvalue import PairMember, PairValue
from exactk.problem.batch import Batch
from exactk.tensors import TensorBatch


class CompiledPairValues:
    """The numbers of `PairValue.values` by one compiled call. After training on, call `refresh`."""

    def __init__(self, model: PairValue) -> None:
        self.model = model
        self._own = threading.local()
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Pack the model's weights as they are now."""
        members: Any = self.model.members
        self._sizes = sizes_of(self.model)
        self._tables = tuple(
            tuple(_table(getattr(member.vectors, name)) for member in members) for name in ("users", "items")
        )
        flat = torch.cat(
            [part.reshape(-1).float().cpu() for m in members for part in _weights(m, self._sizes)]
        )
        self._weights = aligned(len(flat))
        self._weights[:] = flat.numpy()

    def values(self, batch: Batch) -> tuple[Float64[np.ndarray, "B N"], Float64[np.ndarray, "B N N"]]:
        """Node and pair values of all candidates."""
        B, N = batch.item.shape
        node, pair = np.empty((B, N)), np.empty((B, N, N))
        places = places_of(self._sizes, N)
        if getattr(self._own, "places", None) != (places, self._sizes):
            self._own.scratch, self._own.places = aligned(places.end), (places, self._sizes)
        ids = (plain(batch.user), plain(batch.item))
        unknown = values_each(
            self._sizes,
            places,
            self._own.scratch,
            self._weights,
            self._tables,
            self.features(batch),
            ids,
            node,
            pair,
        )
        if unknown >= 0:
            raise InputError(f"request {unknown} of the batch names a user or item the model has no row for")
        return node, pair

    def features(self, batch: Batch) -> tuple[Float32[np.ndarray, "B 1 f"], Float32[np.ndarray, "B N g"]]:
        """User and item features as the model reads them; refuses others as the model would."""
        members: Any = self.model.members
        vectors, (B, N) = members[0].vectors, batch.item.shape
        user, item = batch.user_features, batch.item_features
        if vectors.user_feature_size and (user is None or user.shape[-1] != vectors.user_feature_size):
            vectors.user(TensorBatch.of(batch))
        if vectors.item_feature_size and (item is None or item.shape[-1] != vectors.item_feature_size):
            vectors.item(TensorBatch.of(batch))
        return (
            np.zeros((B, 1, 0), np.float32) if user is None else plain(user)[:, None],
            np.zeros((B, N, 0), np.float32) if item is None else plain(item),
        )

    @property
    def item_tables(self) -> tuple[np.ndarray, ...]:
        """The members' tables of items, empty where they read no ids."""
        return self._tables[1]


def _table(table: nn.Embedding | None) -> Float32[np.ndarray, "n e"]:
    return np.zeros((0, 0), np.float32) if table is None else plain(table.weight)


def sizes_of(model: PairValue) -> PairSizes:
    """The network's sizes, padded to what a register holds."""
    members: Any = model.members
    vectors, config = members[0].vectors, model.config
    return PairSizes(
        item_size=vectors.item_size,
        user_size=vectors.user_size,
        embedding=rounded(config.embedding_size),
        hidden=rounded(config.hidden_size),
        kinds=rounded(config.kinds),
        place=rounded(config.place_size),
        members=len(members),
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


def _weights(member: PairMember, sizes: PairSizes) -> list[Tensor]:
    """One member's weights in the order in which the kernel reads them."""
    E, H, item, user = sizes.embedding, sizes.hidden, sizes.item_size, sizes.user_size
    C, Z, num_kinds = sizes.kinds, sizes.place, len(member.table)
    ones = torch.ones(1, member.map_item.out_features, device=member.table.device)
    barred = torch.zeros(C)
    barred[num_kinds:] = -torch.inf
    return [
        padded(member.map_user.weight, user, E),
        in_groups(member.map_user.bias, 1, E),
        padded(member.map_item.weight, item, E),
        in_groups(member.map_item.bias, 1, E),
        padded(member.node_user.weight, user, H),
        in_groups(member.node_item.bias, 1, H),
        padded(member.node_item.weight, item, H),
        padded(member.node_both.weight, E, H),
        in_groups(member.node_out.weight, 1, H),
        member.node_linear.weight,
        in_groups(ones, 1, E),
        padded(member.kinds.weight, item, C),
        in_groups(member.kinds.bias, 1, C),
        barred,
        padded((member.table + member.table.T) / 2, C, C),
        padded(member.places.weight, item, Z),
        in_groups(member.places.bias, 1, Z),
        member.closeness,
        member.minding.weight,
        member.minding.bias,
    ]
