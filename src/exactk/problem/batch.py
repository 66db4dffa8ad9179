"""Batch: B requests as tensors, what was logged beside them; what every recommender reads.

Knows no files and no network. A batch of one equals the batch; permuting candidates permutes nothing but positions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.problem.brief import Brief
from exactk.problem.graph import Requests


@dataclass(frozen=True)
class Batch:
    """Requests padded to one N (`present` says which are real), optionally with the logged card and its outcome.

    `user` and `item` are vocabulary indices (0 = out of vocabulary), `card` and `clicked_position` are positions
    into the candidates (-1 = none, and the padding of a card shorter than the longest in the batch).
    """

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
    brief: Brief | None = None  # numpy: only the exact engine reads it

    def __len__(self) -> int:
        return len(self.user)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {name: t.to(device) for name, t in self._tensors().items() if t is not None}
        return replace(self, **moved)

    def rows(self, index: Int[Tensor, "R"] | Bool[Tensor, "B"] | slice) -> Batch:
        """Some of the requests, in the order asked for."""
        brief = self.brief
        if brief is not None:
            brief = brief.rows(index if isinstance(index, slice) else index.cpu().numpy())
        held: dict[str, Any] = {name: t[index] for name, t in self._tensors().items() if t is not None}
        return replace(self, **held, brief=brief)

    def _tensors(self) -> dict[str, Tensor | None]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "brief"}

    def requests(self) -> Requests:
        """What decides validity, as numpy arrays for the exact engine (no copy on the CPU)."""
        return Requests(
            graph=self.graph.cpu().numpy(),
            present=self.present.cpu().numpy(),
            card_size=self.card_size.cpu().to(torch.int32).numpy(),
            pinned=self.pinned.cpu().numpy(),
            group=self.group.cpu().to(torch.int32).numpy(),
            cap=self.cap.cpu().to(torch.int32).numpy(),
            brief=self.brief,
        )
