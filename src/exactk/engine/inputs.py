"""What a model reads of a batch: rows of its tables of ids, and features; x_u of users and x_s of items.

Knows no layer behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int

from exactk.engine.packing import Weights, plain
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.settings.config import Inputs, InputSizes, decided


class Features(NamedTuple):
    """Of a batch, as compiled code takes them; no columns where there are none."""

    user: Float32[np.ndarray, "B f"]
    item: Float32[np.ndarray, "B N g"]


@dataclass(frozen=True, eq=False)
class NumpyVectors:
    """Tables of ids (0 x 0 where none is read) and how many features follow an id's embedding."""

    users: Float32[np.ndarray, "U e"]
    items: Float32[np.ndarray, "I e"]
    user_feature_size: int
    item_feature_size: int

    @classmethod
    def of(cls, weights: Weights, inputs: Inputs, sizes: InputSizes) -> NumpyVectors:
        """From the weights of a model's `vectors`."""
        none = np.zeros((0, 0), np.float32)
        by_ids = decided(inputs, sizes) == "ids"
        return cls(
            users=plain(weights.get("users.weight", none)),
            items=plain(weights.get("items.weight", none)),
            user_feature_size=0 if by_ids else sizes.user_feature_size,
            item_feature_size=0 if by_ids else sizes.item_feature_size,
        )

    @property
    def user_size(self) -> int:
        """Numbers of x_u."""
        return int(self.users.shape[1]) + self.user_feature_size

    @property
    def item_size(self) -> int:
        """Numbers of x_s."""
        return int(self.items.shape[1]) + self.item_feature_size

    def features(self, batch: Batch) -> Features:
        """User and item features; a batch with others than the model reads is refused."""
        B, N = batch.item.shape
        return Features(
            _checked(batch.user_features, self.user_feature_size, (B,), "user"),
            _checked(batch.item_features, self.item_feature_size, (B, N), "item"),
        )

    def user(self, batch: Batch) -> Float[np.ndarray, "B Du"]:
        """x_u."""
        return self._joined(self.users, batch.user, self.features(batch).user)

    def item(self, batch: Batch) -> Float[np.ndarray, "B N Di"]:
        """x_s of every candidate."""
        return self._joined(self.items, batch.item, self.features(batch).item)

    def item_rows(
        self, item: Int[np.ndarray, "I"], features: Float[np.ndarray, "I f"] | None
    ) -> Float[np.ndarray, "I Di"]:
        """x_s of items by their index, outside any request."""
        own = _checked(features, self.item_feature_size, (len(item),), "item")
        return self._joined(self.items, item, own)

    def _joined(self, table: np.ndarray, ids: np.ndarray, features: np.ndarray) -> np.ndarray:
        if not table.shape[1]:
            return features
        outside = (ids < 0) | (ids >= len(table))
        if outside.any():
            b = int(np.flatnonzero(outside.reshape(len(ids), -1).any(1))[0])
            raise unknown_id(b, self)
        return np.concatenate([table[ids], features], -1) if features.shape[-1] else table[ids]


def unknown_id(b: int, vectors: NumpyVectors) -> InputError:
    """An id beyond the tables: no vocabulary of this model gives one."""
    return InputError(
        f"request {b} of the batch names a user or item the model has no row for: "
        f"users are 0..{len(vectors.users) - 1}, items 0..{len(vectors.items) - 1}"
    )


def _checked(
    features: Float[np.ndarray, "*S f"] | None, size: int, shape: tuple[int, ...], name: str
) -> Float32[np.ndarray, "*S g"]:
    if not size:
        return np.zeros((*shape, 0), np.float32)
    if features is None or features.shape[-1] != size:
        given = "none" if features is None else str(features.shape[-1])
        raise InputError(f"this model reads {size} {name} features, the batch has {given}")
    return plain(features)


def taken(
    values: Float[np.ndarray, "B N d"], cards: Int[np.ndarray, "B S K"]
) -> Float[np.ndarray, "B S K d"]:
    """The rows of the items on cards; of an absent one (-1) some candidate's, for the caller to mask."""
    return np.asarray(values[np.arange(len(cards))[:, None, None], np.maximum(cards, 0)])
