"""Weights by name, and their numbers as compiled code takes them: plain arrays, padded to what a register holds.

Knows no network. `Weights` are what a state dict holds, as numpy arrays: of a saved model, or of one still in training.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32

Weights = Mapping[str, np.ndarray]


def part_of(weights: Weights, name: str) -> dict[str, np.ndarray]:
    """The weights below a name: of "members.0.table" the part "members.0" holds "table"."""
    return {key[len(name) + 1 :]: array for key, array in weights.items() if key.startswith(f"{name}.")}


def plain(values: np.ndarray) -> np.ndarray:
    """The numbers row after row, int64 or float32."""
    return np.ascontiguousarray(values, np.float32 if values.dtype.kind == "f" else np.int64)


def packed(parts: list[np.ndarray]) -> Float32[np.ndarray, "n"]:
    """All parts one after the other, from a cache line on."""
    weights = aligned(sum(part.size for part in parts))
    np.concatenate([part.reshape(-1) for part in parts], out=weights, casting="same_kind")
    return weights


def aligned(size: int) -> Float32[np.ndarray, "n"]:
    """Zeros that begin on a cache line: a register's load then never touches two."""
    room = np.zeros(size + 16, np.float32)
    skip = (-room.ctypes.data // 4) % 16
    return room[skip : skip + size]


def rounded(size: int, multiple: int = 16) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def padded(matrix: Float32[np.ndarray, "out in"], rows: int, columns: int) -> Float32[np.ndarray, "r c"]:
    """The matrix [out, in] transposed, then zeros to the right and below."""
    turned = np.zeros((rows, columns), np.float32)
    turned[: matrix.shape[1], : matrix.shape[0]] = matrix.T
    return turned


def in_groups(vector: Float32[np.ndarray, "*S n"], groups: int, size: int) -> Float32[np.ndarray, "*S m"]:
    """Groups of numbers along the last axis, each padded to `size`."""
    apart = vector.reshape(*vector.shape[:-1], groups, -1)
    wider = np.zeros((*apart.shape[:-1], size), np.float32)
    wider[..., : apart.shape[-1]] = apart
    return wider.reshape(*vector.shape[:-1], groups * size)
