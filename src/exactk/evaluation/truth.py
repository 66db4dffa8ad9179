"""The true value of cards, where a dataset knows it: only a simulated world does.

For judging alone: nothing here may reach training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

from exactk.data.dataset import Dataset
from exactk.data.world.world import World

AT_ONCE = 2048  # requests whose graphs are held in memory together


@dataclass(frozen=True)
class TrueValues:
    """A world and the view whose requests are judged."""

    world: World
    view: Dataset

    @classmethod
    def of(cls, view: Dataset) -> TrueValues | None:
        """The truth behind a view, None where nobody knows it."""
        known = view.meta.provenance.get("source") == "world"
        return cls(World.of(view), view) if known else None

    def value(self, places: Int[np.ndarray, "R"], cards: Int[np.ndarray, "R K"]) -> Float64[np.ndarray, "R"]:
        """True click probability of a card for each of these places of the view; NaN for a card that is not full."""
        asked = self.world.asked(self.view, places)
        full = (cards >= 0).sum(1) == asked.requests.card_size
        items = np.take_along_axis(asked.items, cards.clip(0), axis=1)
        return np.where(full, self.world.value(asked.users, items), np.nan)

    def optimum(self, places: Int[np.ndarray, "R"]) -> Float64[np.ndarray, "R"]:
        """The true value of the best valid card for each of these places."""
        found = []
        for first in range(0, len(places), AT_ONCE):
            asked = self.world.asked(self.view, places[first : first + AT_ONCE])
            found.append(self.world.optimum(asked.users, asked.items, asked.requests).value)
        return np.concatenate([*found, np.empty(0)])


def true_figures(
    view: Dataset, places: Int[np.ndarray, "R"], cards: Int[np.ndarray, "R K"]
) -> dict[str, np.ndarray]:
    """What cards of a world are truly worth, and what the best valid ones would be; nothing where nobody knows."""
    truth = TrueValues.of(view)
    return (
        {} if truth is None else {"true_value": truth.value(places, cards), "optimum": truth.optimum(places)}
    )
