"""Numbers of tensors as compiled code takes them: plain arrays, padded to what a register holds.

Knows no network.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor


def plain(values: Tensor | np.ndarray) -> np.ndarray:
    """The numbers as compiled code takes them: on the CPU, row after row, int64 or float32."""
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(values, np.float32 if values.dtype.kind == "f" else np.int64)
    wanted = torch.float32 if values.is_floating_point() else torch.int64
    return np.ascontiguousarray(values.detach().to("cpu", wanted).numpy())


def aligned(size: int) -> Float32[np.ndarray, "n"]:
    """Zeros that begin on a cache line: a register's load then never touches two."""
    room = np.zeros(size + 16, np.float32)
    skip = (-room.ctypes.data // 4) % 16
    return room[skip : skip + size]


def rounded(size: int, multiple: int = 16) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def padded(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """The matrix [out, in] transposed, then zeros to the right and below."""
    turned = matrix.detach().float().T
    return torch.nn.functional.pad(turned, (0, columns - turned.shape[1], 0, rows - turned.shape[0]))


def in_groups(vector: Tensor, groups: int, size: int) -> Tensor:
    """Groups of numbers along the last axis, each padded to `size`."""
    apart = vector.detach().float().reshape(*vector.shape[:-1], groups, -1)
    return torch.nn.functional.pad(apart, (0, size - apart.shape[-1])).flatten(-2)
