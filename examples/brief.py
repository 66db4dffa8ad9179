"""The brief of a shelf, written in eight lines and solved exactly: `python examples/brief.py`.

Four items: a hero in the first place and nothing sponsored there, at most two of a brand, at least one on sale, exactly
one sponsored, at most 200 in total, at least three categories, and preferably no two of one colour.
"""

from __future__ import annotations

import random
import time

import exactk
from exactk import AtMost, Count, Distinct, Prefer, Slots, Total, Variety, Where

BRIEF = [
    Slots(where={1: Where("hero") & ~Where("sponsored")}),
    AtMost("brand", 2),
    Count("on_sale", at_least=1),
    Count("sponsored", exactly=1),
    Total("price", at_most=200),
    Variety("category", at_least=3),
    Prefer(Distinct("colour"), worth=0.1),
]


def shelf(num_items: int = 60) -> dict[str, list[object]]:
    """Made-up items; a pandas, polars or Arrow frame would do as well."""
    chance = random.Random(7)
    items: dict[str, list[object]] = {
        "item_id": [f"item-{n}" for n in range(num_items)],
        "score": [round(chance.random(), 3) for _ in range(num_items)],
        "brand": [chance.choice("abcdefgh") for _ in range(num_items)],
        "category": [chance.choice(["hats", "shoes", "bags", "belts", "socks"]) for _ in range(num_items)],
        "colour": [chance.choice(["red", "green", "blue", "black"]) for _ in range(num_items)],
        "price": [chance.randrange(1999, 12000, 500) / 100 for _ in range(num_items)],
        "hero": [chance.random() < 0.2 for _ in range(num_items)],
        "on_sale": [chance.random() < 0.2 for _ in range(num_items)],
        "sponsored": [chance.random() < 0.2 for _ in range(num_items)],
    }
    looks = zip(items["colour"], items["category"], strict=True)
    return items | {"title": [f"{colour} {category} {n}" for n, (colour, category) in enumerate(looks)]}


def main() -> None:
    """Solve it, say what it cost, and why the best item left out is not in."""
    items = shelf()
    card = exactk.solve("score", k=4, items=items, constraints=BRIEF, explain=True)
    started = time.perf_counter()
    exactk.solve("score", k=4, items=items, constraints=BRIEF)
    taken = 1e3 * (time.perf_counter() - started)
    print(f"{card.items}, worth {card.value:.3f}, proven: {card.optimal}, in {taken:.2f} ms")  # noqa: T201
    for broken in card.broken:
        print(f"broken {broken.times} times at a cost of {broken.cost:g}: {broken.rule}")  # noqa: T201
    worth = dict(zip(items["item_id"], items["score"], strict=True))
    print(max(card.reasons, key=lambda reason: worth[reason.item]))  # noqa: T201


if __name__ == "__main__":
    main()
