"""Pictures of cards: the shelf that README and quickstart solve, its graph, and what each rule changes.

Every card shown is the answer of `exactk.solve`; nothing is drawn by hand but the items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import exactk
from exactk_lab.pictures.drawing import Canvas, Colours

KINDS = ("scarf", "hat", "gloves", "socks", "boots", "tea")
ICONS = {  # within 40 x 40
    "scarf": "M9 12 a11 7 0 1 0 22 0 a11 7 0 1 0 -22 0 M15 18 L11 34 L18 36 L21 19 M23 19 L26 35 L32 33 L28 17",
    "hat": "M8 26 C8 8 32 8 32 26 M5 26 L35 26 L35 32 L5 32 Z M20 12 m-3 -4 a3 3 0 1 0 6 0 a3 3 0 1 0 -6 0",
    "gloves": "M12 34 L12 18 C12 6 26 6 26 18 L26 22 C30 16 34 20 31 24 L26 30 L26 34 Z M12 29 L26 29",
    "socks": "M14 5 L26 5 L26 22 C26 26 32 27 34 30 C35 35 32 36 26 35 L18 34 C14 33 14 30 14 26 Z M14 11 L26 11",
    "boots": "M12 5 L26 5 L26 22 C30 24 35 25 35 31 L35 34 L11 34 Z M11 30 L35 30",
    "tea": "M8 14 L28 14 L28 26 C28 36 8 36 8 26 Z M28 17 C36 17 36 27 28 27 M14 5 L14 9 M20 5 L20 9",
}
FIELDS = ("item_id", "title", "kind", "brand", "price", "ad", "hero", "score")
ITEMS: list[dict[str, Any]] = [
    dict(zip(FIELDS, row, strict=True))
    for row in (
        ("red", "wool scarf red", "scarf", "nordwool", 39.9, False, False, 0.94),
        ("blue", "wool scarf blue", "scarf", "nordwool", 39.9, False, False, 0.93),
        ("green", "wool scarf green", "scarf", "nordwool", 41.5, False, False, 0.91),
        ("beanie", "ribbed beanie", "hat", "alto", 24.5, True, False, 0.81),
        ("gloves", "lined gloves", "gloves", "alto", 34.0, True, True, 0.78),
        ("socks", "alpaca socks", "socks", "nordwool", 14.9, False, False, 0.66),
        ("boots", "snow boots", "boots", "fjell", 149.0, False, True, 0.61),
        ("tea", "winter tea", "tea", "morgen", 7.9, False, False, 0.42),
    )
]
VECTORS = {
    "scarf": (1.0, 0.1),
    "hat": (0.7, 0.7),
    "gloves": (0.2, 1.0),
    "socks": (-0.5, 0.9),
    "boots": (-1.0, 0.3),
    "tea": (-0.6, -0.8),
}
for one in ITEMS:
    one["style"] = list(VECTORS[one["kind"]])
TILE, TALL, GAP = 116.0, 128.0, 12.0


def tile(
    canvas: Canvas,
    colours: Colours,
    x: float,
    y: float,
    item: dict[str, Any],
    below: str,
    edge: str | None = None,
    place: int | None = None,
) -> None:
    """One item: its picture, its title, and the line that matters here."""
    canvas.rect(x, y, TILE, TALL, colours.surface, edge or colours.line, stroke_width=2.5 if edge else 1.2)
    kind = colours.kinds[KINDS.index(item["kind"])]
    canvas.rect(x + 8, y + 8, TILE - 16, 60, colours.soft, radius=6)
    canvas.parts.append(f'<g transform="translate({x + TILE / 2 - 20:g} {y + 18:g})">')
    canvas.path(ICONS[item["kind"]], kind, 2.2)
    canvas.parts.append("</g>")
    canvas.text(x + TILE / 2, y + 88, item["title"], colours.ink, 11.5, 600, "middle")
    canvas.text(x + TILE / 2, y + 106, below, colours.muted, 11, None, "middle")
    canvas.text(x + TILE / 2, y + 121, f"score {item['score']:.2f}", colours.muted, 10.5, None, "middle")
    if place is not None:
        canvas.circle(x + 14, y + 14, 10, colours.accent)
        canvas.text(x + 14, y + 18, str(place), colours.surface, 11.5, 700, "middle")


def row(
    canvas: Canvas,
    colours: Colours,
    x: float,
    y: float,
    items: Sequence[dict[str, Any]],
    show: str,
    edges: dict[Any, str],
    places: bool = False,
) -> None:
    """A card: its items side by side."""
    for number, item in enumerate(items):
        below = item[show] if show != "price" else f"{item['price']:.2f}"
        below = (
            {True: f"{show}: yes", False: f"{show}: no"}.get(below, below)
            if isinstance(below, bool)
            else below
        )
        tile(
            canvas,
            colours,
            x + number * (TILE + GAP),
            y,
            item,
            str(below),
            edges.get(item["item_id"]),
            number + 1 if places else None,
        )


def solved(k: int, **asked: Any) -> exactk.Card:
    card: exactk.Card = exactk.solve([item["score"] for item in ITEMS], k=k, items=ITEMS, **asked)
    return card


def named(ids: Sequence[Any]) -> list[dict[str, Any]]:
    known = {item["item_id"]: item for item in ITEMS}
    return [known[name] for name in ids]


def card_picture(colours: Colours) -> Canvas:
    """The README's picture: what single scores choose, and the best card of four."""
    rules = exactk.TitleDistance(0.5) & exactk.AtMost("brand", 2) & exactk.Total("price", at_most=120)
    top, best = solved(4), solved(4, constraints=rules)
    width = 4 * TILE + 3 * GAP
    canvas = Canvas(width + 40, 450, "Top four by score, three scarves among them; and the best card of four")
    spent = [sum(item["price"] for item in named(card.items)) for card in (top, best)]
    for y, heading, card, colour, moral in (
        (
            6.0,
            "The four best items",
            top,
            colours.bad,
            f"three scarves of one brand, {spent[0]:.2f} in all",
        ),
        (
            232.0,
            "The best card of four",
            best,
            colours.good,
            f"titles differ, at most two of a brand, {spent[1]:.2f} of 120: proven best",
        ),
    ):
        marked = [name for name in card.items if card is best or name in ("red", "blue", "green")]
        canvas.rect(6, y, width + 28, 212, colours.soft, radius=14)
        canvas.text(20, y + 28, heading, colours.ink, 16, 700)
        row(canvas, colours, 20, y + 42, named(card.items), "price", dict.fromkeys(marked, colour))
        canvas.text(20, y + 196, moral, colour, 13.5, 600)
    return canvas


@dataclass(frozen=True)
class RuleExample:
    """What a rule's picture shows: K, the rule, the column people should look at, and the moral."""

    k: int
    asked: dict[str, Any]
    show: str
    moral: str
    places: bool = False


def rules_shown() -> dict[str, RuleExample]:
    """One picture a rule; the name is the page's."""
    W = exactk.Where
    allowed = np.ones((len(ITEMS), len(ITEMS)), bool)
    allowed[0, 1:4] = allowed[1:4, 0] = False

    def under(rule: Any) -> dict[str, Any]:
        return {"constraints": rule}

    has_tea: Any = lambda card: any(item["kind"] == "tea" for item in card)  # noqa: E731

    return {
        "title-distance": RuleExample(
            4, under(exactk.TitleDistance(0.5)), "kind", "no two titles closer than 0.5"
        ),
        "distinct": RuleExample(4, under(exactk.Distinct("kind")), "kind", "each kind at most once"),
        "at-most": RuleExample(4, under(exactk.AtMost("brand", 2)), "brand", "at most two of a brand"),
        "minimum-distance": RuleExample(
            4,
            under(exactk.MinimumDistance("style", 0.15, "cosine")),
            "kind",
            "style vectors at least 0.15 apart",
        ),
        "minimum-gap": RuleExample(
            4, under(exactk.MinimumGap("price", 10)), "price", "prices at least 10 apart"
        ),
        "forbid": RuleExample(
            4,
            under(exactk.Forbid([["red", "blue"], ["beanie", "gloves"]])),
            "kind",
            "never red with blue, never beanie with gloves",
        ),
        "allowed": RuleExample(
            4, {"allowed": allowed}, "kind", "your own matrix: red may not stand with the next three"
        ),
        "count": RuleExample(4, under(exactk.Count("ad", exactly=2)), "ad", "exactly two ads"),
        "share": RuleExample(
            4,
            under(exactk.Share(W("brand", equals="alto"), at_least=0.5)),
            "brand",
            "at least half from one brand",
        ),
        "total": RuleExample(4, under(exactk.Total("price", at_most=100)), "price", "at most 100 in all"),
        "variety": RuleExample(
            4, under(exactk.Variety("brand", at_least=4)), "brand", "at least four brands"
        ),
        "slots": RuleExample(
            4,
            under(exactk.Slots(where={1: W("hero")}, apart="brand", weights=[1, 0.8, 0.6, 0.4])),
            "brand",
            "a hero picture first; neighbours of different brands",
            True,
        ),
        "prefer": RuleExample(
            4,
            under(exactk.Prefer(exactk.Distinct("kind"), worth=0.12)),
            "kind",
            "each pair of one kind costs 0.12",
        ),
        "rule": RuleExample(
            4,
            under(exactk.Rule(has_tea, "with tea", on="card")),
            "kind",
            "your own function: one item must be tea",
        ),
        "include-exclude": RuleExample(
            4, {"include": ["tea"], "exclude": ["red"]}, "kind", "tea is pinned, red is excluded"
        ),
    }


def rule_picture(colours: Colours, shown: RuleExample, name: str) -> Canvas:
    """The best card without the rule, above the best one with it; what changed has a coloured edge."""
    before, after = solved(shown.k), solved(shown.k, **shown.asked)
    left = 128.0
    canvas = Canvas(left + shown.k * (TILE + GAP) + 20, 2 * (TALL + 20) + 34, f"{name}: {shown.moral}")
    gone = dict.fromkeys(set(before.items) - set(after.items), colours.bad)
    new = dict.fromkeys(set(after.items) - set(before.items), colours.good)
    for y, words, card, edges, places in (
        (8.0, ("without", "the rule"), before, gone, False),
        (TALL + 28, ("with", "the rule"), after, new, shown.places),
    ):
        canvas.text(8, y + 46, words[0], colours.ink, 14, 700)
        canvas.text(8, y + 64, words[1], colours.ink, 14, 700)
        worth = (
            card.value
            if not shown.places or card is before
            else sum(item["score"] for item in named(card.items))
        )
        canvas.text(8, y + 86, f"{worth:.2f} in all", colours.muted, 12)
        row(canvas, colours, left, y, named(card.items), shown.show, edges, places)
    canvas.text(left, 2 * (TALL + 20) + 22, shown.moral, colours.accent, 13.5, 600)
    return canvas


def graph_picture(colours: Colours) -> Canvas:
    """Candidates on a ring, lines between those that may share a card, the best card as a clique."""
    rules = exactk.TitleDistance(0.5) & exactk.MinimumGap("price", 4)
    best = solved(4, constraints=rules)
    prices, titles = [i["price"] for i in ITEMS], [i["kind"] for i in ITEMS]
    canvas = Canvas(640, 400, "The graph of pairs that may share a card, and the best clique of four")
    spots = [
        (
            210 + 150 * math.sin(2 * math.pi * i / len(ITEMS)),
            200 - 150 * math.cos(2 * math.pi * i / len(ITEMS)),
        )
        for i in range(len(ITEMS))
    ]
    chosen = set(best.positions)
    for i in range(len(ITEMS)):
        for j in range(i + 1, len(ITEMS)):
            if titles[i] == titles[j] or abs(prices[i] - prices[j]) < 4:
                continue
            inside = i in chosen and j in chosen
            canvas.line(
                *spots[i],
                *spots[j],
                colours.good if inside else colours.line,
                3.5 if inside else 1.1,
                opacity=None if inside else 0.8,
            )
    for i, (x, y) in enumerate(spots):
        held = i in chosen
        canvas.circle(x, y, 30, colours.surface, colours.good if held else colours.line, 3 if held else 1.5)
        canvas.text(x, y - 1, ITEMS[i]["item_id"], colours.ink, 12, 700 if held else None, "middle")
        canvas.text(x, y + 14, f"{ITEMS[i]['score']:.2f}", colours.muted, 11, None, "middle")
    for number, (words, colour, weight) in enumerate(
        (
            ("a line: the two may share a card", colours.muted, 400),
            ("no line: titles too similar,", colours.muted, 400),
            ("or prices less than 4 apart", colours.muted, 400),
            ("green: the best four, all lines", colours.good, 700),
            (f"between them: worth {best.value:.2f}", colours.good, 700),
        )
    ):
        canvas.text(410, 150 + 24 * number, words, colour, 13.5, weight)
    return canvas
