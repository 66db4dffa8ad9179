"""All pictures of the site by name, and writing them.

Knows which result each is made from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exactk_lab.pictures import charts, search, shelf
from exactk_lab.pictures.drawing import THEMES, Canvas, Colours
from exactk_lab.pictures.terminal import terminal

ROOT = Path(__file__).resolve().parents[3]


def pictures() -> dict[str, Callable[[Colours], Canvas]]:
    """How each is drawn in given colours."""
    found: dict[str, Callable[[Colours], Canvas]] = {
        "card": shelf.card_picture,
        "graph": shelf.graph_picture,
        "bounds": search.bounds,
        "walk": search.walk,
        "terminal": terminal,
    }
    for name, result, draw in (
        ("compare-hotels", "compare-hotels", charts.compare_hotels),
        ("curves", "reproduce-curves", charts.curves),
        ("anytime", "bench-anytime", charts.anytime),
        ("exact", "bench-exact", charts.exact),
    ):
        found[name] = _from(result, draw)
    for name, shown in shelf.rules_shown().items():
        found[f"rule-{name}"] = _rule(shown, name)
    return found


def _from(result: str, draw: Callable[[dict[str, Any], Colours], Canvas]) -> Callable[[Colours], Canvas]:
    document = json.loads((ROOT / "results" / f"{result}.json").read_text(encoding="utf-8"))
    return lambda colours: draw(document, colours)


def _rule(shown: shelf.RuleExample, name: str) -> Callable[[Colours], Canvas]:
    return lambda colours: shelf.rule_picture(colours, shown, name.replace("-", " "))


def written() -> dict[str, str]:
    """File name to SVG, of every picture in every theme."""
    return {
        f"{name}-{theme}.svg": draw(colours).svg()
        for name, draw in pictures().items()
        for theme, colours in THEMES.items()
    }


def write(folder: Path) -> None:
    """All of them, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in written().items():
        (folder / name).write_text(text, encoding="utf-8")
