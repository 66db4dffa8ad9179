"""What kinds of signal a log holds, for whoever learns from it or judges by it.

Knows only the index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from exactk.data.index import Index


@dataclass(frozen=True)
class Signal:
    """Counts of what was seen. `names` says what can be learned; a log may offer several kinds, or none."""

    cards: int  # impressions with a card
    clicked_cards: int
    named_clicks: int  # clicked cards of which it is known which item was clicked
    lists: int  # impressions in which an item of the list shown was clicked
    outside_clicks: int  # clicks on items that were not on the card, or where there was none
    rewards: int  # candidates with a reward

    @property
    def whole_lists(self) -> bool:
        """The list was seen, not the card alone: items outside any card were clicked."""
        return self.outside_clicks > 0

    @property
    def positives_only(self) -> bool:
        """Every card was chosen and none refused: there is no negative."""
        return (
            self.cards > 0
            and self.clicked_cards == self.cards
            and not self.whole_lists
            and not self.named_clicks
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of "card clicked", "item of the card", "item of the list", "positives only", "rewards"."""
        held = {
            "card clicked": 0 < self.clicked_cards < self.cards,
            "item of the card": self.named_clicks > 0 and not self.whole_lists,
            "item of the list": self.whole_lists,
            "positives only": self.positives_only,
            "rewards": self.rewards > 0,
        }
        return tuple(name for name, there in held.items() if there)


def signal_of(index: Index, rows: Int64[np.ndarray, "R"], rewards: int = 0) -> Signal:
    """Count the signals of these rows."""
    carded = index.card_start[rows + 1] > index.card_start[rows]
    clicked = index.clicked[rows]
    named = index.clicked_position[rows] >= 0
    clicks = index.click_start[rows + 1] - index.click_start[rows]
    return Signal(
        cards=int(carded.sum()),
        clicked_cards=int((carded & clicked).sum()),
        named_clicks=int((carded & clicked & named).sum()),
        lists=int((clicks > 0).sum()),
        outside_clicks=int(outside_clicks(index, rows).sum()),
        rewards=rewards,
    )


def outside_clicks(index: Index, rows: Int64[np.ndarray, "R"]) -> Int64[np.ndarray, "R"]:
    """Clicks of each row on positions that its card does not hold."""
    clicks = index.click_start[rows + 1] - index.click_start[rows]
    owner = np.repeat(np.arange(len(rows)), clicks)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(clicks) - clicks, clicks)
    position = index.click[index.click_start[rows][owner] + place]
    sizes = index.card_start[rows + 1] - index.card_start[rows]
    of_card = np.repeat(np.arange(len(rows)), sizes)
    at = np.arange(len(of_card)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    on_card = index.card[index.card_start[rows][of_card] + at]
    width = int(max(position.max(initial=0), on_card.max(initial=0))) + 1
    inside = np.isin(owner * width + position, of_card * width + on_card)
    return np.bincount(owner[~inside], minlength=len(rows)).astype(np.int64)
