"""The committed pictures are what the maker draws today, and the little search tree in one of them is right."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from exactk_lab.pictures import search
from exactk_lab.pictures.drawing import LIGHT
from exactk_lab.pictures.drawn import written
from exactk_lab.pictures.terminal import session, terminal

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


@pytest.mark.slow
def test_the_terminal_shows_real_answers_and_all_of_them_without_motion() -> None:
    said = session()
    assert [bool(each.lines) for each in said] == [True] * 4
    assert "optimal" in "".join(said[1].lines)
    assert "infeasible" in "".join(said[2].lines)
    svg = terminal(LIGHT).svg()
    drawn = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]
    assert [text for text in drawn if text != "$"] == [
        line for each in said for line in (each.command, *each.lines)
    ]
    assert "prefers-reduced-motion: reduce) { .typed, .shown { animation: none; }" in svg
    assert "opacity=" not in svg
    assert svg.count("opacity: 0") == 1, "nothing is hidden but by the animation's first moment"
