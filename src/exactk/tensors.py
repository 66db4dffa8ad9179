"""TensorBatch: a batch as networks read it. The one door between numpy and torch, without a copy on the CPU.

Knows no network: everything that learns, and nothing that only answers, comes through here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from exactk.problem.batch import Batch
from exactk.problem.brief import Brief
from exactk.problem.graph import Requests


class Facts(NamedTuple):
    """What about a batch steers Python: to know it, somebody must read it from the device."""

    all_safe: bool = False
    complete: bool = False  # every pair of present positions is allowed, in every request
    has_pins: bool = False
    ragged: bool = False  # card sizes differ
    all_present: bool = False
    longest: int = 0  # the largest card size


@dataclass(frozen=True)
class TensorBatch:
    """The fields of `Batch` as tensors on one device."""

    user: Int[Tensor, "B"]
    item: Int[Tensor, "B N"]
    present: Bool[Tensor, "B N"]
    graph: Bool[Tensor, "B N N"]
    card_size: Int[Tensor, "B"]
    pinned: Bool[Tensor, "B N"]
    group: Int[Tensor, "B C N"]
    cap: Int[Tensor, "B C"]
    user_features: Float[Tensor, "B Fu"] | None = None
    item_features: Float[Tensor, "B N Fi"] | None = None
    card: Int[Tensor, "B K"] | None = None
    clicked: Bool[Tensor, "B"] | None = None
    clicked_position: Int[Tensor, "B"] | None = None
    propensity: Float[Tensor, "B"] | None = None
    candidate_numbers: Float[Tensor, "B N Fc"] | None = None
    candidate_categories: Int[Tensor, "B N Cc"] | None = None
    context_numbers: Float[Tensor, "B Fx"] | None = None
    context_categories: Int[Tensor, "B Cx"] | None = None
    item_categories: Int[Tensor, "B N Ci"] | None = None
    user_categories: Int[Tensor, "B Cu"] | None = None
    item_vectors: Float[Tensor, "B N V"] | None = None
    pair_features: Float[Tensor, "B N N P"] | None = None
    score: Float[Tensor, "B N"] | None = None
    position: Float[Tensor, "B N"] | None = None
    clicks: Float[Tensor, "B N"] | None = None
    reward: Float[Tensor, "B N"] | None = None
    tie_key: Int[Tensor, "B N"] | None = None
    brief: Brief | None = None  # arrays still: only the exact engine reads it
    facts: Facts | None = None  # where they are known nothing is read: a recorded CUDA graph cannot look

    @classmethod
    def of(cls, batch: Batch, device: torch.device | str = "cpu") -> TensorBatch:
        """The same numbers on a device; on the CPU the very same memory."""
        held = {f.name: getattr(batch, f.name) for f in fields(batch) if f.name != "brief"}
        moved: dict[str, Any] = {n: torch.from_numpy(a).to(device) for n, a in held.items() if a is not None}
        return cls(**moved, brief=batch.brief)

    def __len__(self) -> int:
        return len(self.user)

    def to(self, device: torch.device | str) -> TensorBatch:
        """The same batch on another device."""
        moved: dict[str, Any] = {name: tensor.to(device) for name, tensor in self.named().items()}
        return replace(self, **moved)

    def rows(self, index: Int[Tensor, "R"] | Bool[Tensor, "B"] | slice) -> TensorBatch:
        """Some of the requests, in the order asked for."""
        brief = self.brief
        if brief is not None:
            brief = brief.rows(index if isinstance(index, slice) else index.cpu().numpy())
        some: dict[str, Any] = {name: tensor[index] for name, tensor in self.named().items()}
        return replace(self, **some, brief=brief, facts=None)

    def named(self) -> dict[str, Tensor]:
        """The tensors there are, by field."""
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("brief", "facts")}
        return {name: tensor for name, tensor in held.items() if tensor is not None}

    def arrays(self) -> Batch:
        """The same numbers as numpy arrays."""
        held: dict[str, Any] = {name: tensor.detach().cpu().numpy() for name, tensor in self.named().items()}
        return Batch(**held, brief=self.brief)

    def requests(self) -> Requests:
        """What decides validity, for the exact engine."""
        return Requests(
            graph=_array(self.graph, np.bool_),
            present=_array(self.present, np.bool_),
            card_size=_array(self.card_size, np.int32),
            pinned=_array(self.pinned, np.bool_),
            group=_array(self.group, np.int32),
            cap=_array(self.cap, np.int32),
            brief=self.brief,
            tie_key=None if self.tie_key is None else _array(self.tie_key, np.int64),
        )


def _array(tensor: Tensor, kind: type[np.generic]) -> np.ndarray:
    return tensor.cpu().numpy().astype(kind, copy=False)


def rows_of(values: Tensor, at: Tensor) -> Tensor:
    """values[b, at[b]] for every request b, whatever the shape of at[b]."""
    request = torch.arange(len(at), device=at.device).view(-1, *[1] * (at.ndim - 1))
    return values[request, at]


def off_diagonal(size: int, device: torch.device) -> Bool[Tensor, "N N"]:
    """True for every two different places."""
    return ~torch.eye(size, dtype=torch.bool, device=device)


def arrays_of(module: nn.Module) -> dict[str, np.ndarray]:
    """A network's weights by name, as arrays: on the CPU the very same memory."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
