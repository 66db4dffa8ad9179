"""The true value of cards, where a dataset knows it: only a simulated world does.

For judging alone: nothing here may reach training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from exactk.data.dataset import Dataset


@dataclass(frozen=True)
class Truth:
    """A world and the view whose requests are judged."""

    world: Any
    view: Dataset

    @classmethod
    def of(cls, view: Dataset) -> Truth | None:
        """The truth behind a view, None where nobody knows it."""
        if view.meta.provenance.get("source") != "world":
            return None
        from exactk.data.world import World  # type: ignore[import-not-found,unused-ignore]

        return cls(World.of(view), view)

    def value(self, places: Int[np.ndarray, "R"], cards: Int[np.ndarray, "R K"]) -> Float64[np.ndarray, "R"]:
        """True click probability of a card for each of these places of the view."""
        raise NotImplementedError
