"""The embedded requests teach what their text says they teach."""

from __future__ import annotations

from exactk.demo import Example, examples


def by_name() -> dict[str, Example]:
    return {example.name: example for example in examples()}


def test_our_card_is_valid_and_never_worth_less_than_another_valid_one() -> None:
    for example in examples():
        *others, ours = example.shown
        assert ours.valid
        assert example.best.optimal
        assert all(ours.value >= other.value - 1e-12 for other in others if other.valid)


def test_the_stories_are_true() -> None:
    told = by_name()
    assert not told["Winter shelf"].shown[0].valid
    top, greedy, ours = told["Film night"].shown
    assert greedy.valid
    assert greedy.value < ours.value - 0.5
    assert top.titles[0] not in ours.titles
    assert not told["Dead end"].shown[1].valid
    assert len(told["Dead end"].shown[1].titles) == 2
    assert {"felt hat", "silk scarf"} <= set(told["Outfit"].shown[2].titles)
