"""The committed pictures are what the maker draws today, and the little search tree in one of them is right."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from exactk_lab.pictures import search
from exactk_lab.pictures.drawn import written

IMG = Path(__file__).resolve().parents[2] / "docs" / "img"


@pytest.mark.slow
def test_the_pictures_are_those_of_today() -> None:
    stale = [name for name, text in written().items() if (IMG / name).read_text(encoding="utf-8") != text]
    assert stale == [], "python -m exactk_lab.pictures draws them anew"


def test_the_drawn_search_finds_the_best_card_and_no_bound_is_too_low() -> None:
    cards = [
        "".join(card)
        for card in combinations(search.NAMES, search.SIZE)
        if all(search.allowed(i, j) for i, j in combinations(card, 2))
    ]
    seen = search.searched()
    found = max(branch.leaf for branch in seen if branch.leaf is not None)
    assert found == max(map(search.value, cards)) == 26.0
    earlier: set[str] = set()
    for branch in seen:
        below = [card for card in cards if set(branch.picks) <= set(card) and not set(card) & earlier]
        if len(branch.picks) == 1:
            assert branch.bound >= max(map(search.value, below), default=float("-inf")), branch
            earlier |= set(branch.picks)
