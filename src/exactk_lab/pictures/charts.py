"""Charts from committed results: comparisons, learning curves, the anytime gap, exact search beside solvers.

Knows the shape of `results/*.json`; measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from exactk_lab.pictures.drawing import Canvas, Colours

Scale = Callable[[float], float]


def _scale(low: float, high: float, start: float, stop: float, log: bool = False) -> Scale:
    turn = math.log10 if log else float
    a, b = turn(low), turn(high)
    return lambda value: start + (turn(value) - a) / (b - a) * (stop - start)


def compare_hotels(document: dict[str, Any], colours: Colours) -> Canvas:
    """The best way of each method on a real log: clicked item on the card, with its interval over users."""
    best: dict[str, dict[str, Any]] = {}
    for row in document["rows"]:
        best.setdefault(row["method"], row)
    rows = list(best.values())
    canvas = Canvas(720, 92 + 34 * len(rows), "Clicked hotel on a card of four, with 95% intervals")
    x = _scale(0.0, 0.8, 230, 620)
    canvas.text(16, 26, "The clicked hotel is among the four chosen", colours.ink, 15, 700)
    canvas.text(
        16, 45, "4,024 later lists of a real log; the same columns for all; 95% intervals", colours.muted, 12
    )
    bottom = 62 + 34 * len(rows)
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8):
        canvas.line(x(tick), 58, x(tick), bottom, colours.line, 1, "2 4")
        canvas.text(x(tick), bottom + 18, f"{tick:.0%}", colours.muted, 11.5, None, "middle")
    for number, row in enumerate(rows):
        y = 78 + 34 * number
        ours = row["kind"] == "ours"
        colour = colours.accent if ours else colours.muted
        found = row["precision"]
        canvas.text(218, y + 4, _name(row["way"]), colours.ink, 13, 700 if ours else None, "end")
        canvas.line(x(0.0), y, x(found["estimate"]), y, colour, 9 if ours else 7, opacity=0.35)
        canvas.line(x(found["low"]), y, x(found["high"]), y, colour, 2.5)
        canvas.circle(x(found["estimate"]), y, 5, colour)
        canvas.text(
            632, y + 4, f"{found['estimate']:.1%}", colour if ours else colours.ink, 13, 700 if ours else None
        )
    return canvas


def _name(way: str) -> str:
    plain = way.removesuffix(" greedy").removesuffix(" + exact")
    return {
        "card value": "GAttN, exact decoder (ours)",
        "logged policy": "what the site showed",
        "random": "chance",
    }.get(plain, plain)


CURVES = (
    ("RLfD, preset paper", "RLfD as in the paper"),
    ("SL, policy sampling", "imitation alone"),
    ("RL, no hill climbing", "rewards alone"),
    ("RL, hill climbing", "rewards, hill climbing"),
)


def curves(document: dict[str, Any], colours: Colours) -> Canvas:
    """Validation figures over epochs of the paper's training and its parts, mean over seeds and their spread."""
    canvas = Canvas(720, 330, "Learning curves of RLfD and its parts on the authors' files")
    shown = [(name, [r for r in document["rows"] if r["curve"] == key]) for key, name in CURVES]
    lows = [r["P"] - r["P_sd"] for _, rows in shown for r in rows]
    highs = [r["P"] + r["P_sd"] for _, rows in shown for r in rows]
    x, y = _scale(1, 10, 60, 520), _scale(min(lows) - 0.01, max(highs) + 0.01, 280, 62)
    canvas.text(16, 26, "Clicked item on the card, validation, over epochs", colours.ink, 15, 700)
    canvas.text(16, 45, "the authors' files, K=4 of N=20; bands: spread over seeds", colours.muted, 12)
    for tick in (0.2, 0.25, 0.3, 0.35, 0.4):
        canvas.line(60, y(tick), 520, y(tick), colours.line, 1, "2 4")
        canvas.text(52, y(tick) + 4, f"{tick:.2f}", colours.muted, 11.5, None, "end")
    for epoch in range(1, 11):
        canvas.text(x(epoch), 300, str(epoch), colours.muted, 11.5, None, "middle")
    canvas.text(290, 320, "epoch", colours.muted, 11.5, None, "middle")
    palette = (colours.accent, *colours.kinds)
    ends = _apart([y(rows[-1]["P"]) for _, rows in shown], 17)
    for (name, rows), colour, end in zip(shown, palette, ends, strict=False):
        top = [f"{x(r['epoch']):.1f} {y(r['P'] + r['P_sd']):.1f}" for r in rows]
        low = [f"{x(r['epoch']):.1f} {y(r['P'] - r['P_sd']):.1f}" for r in reversed(rows)]
        canvas.path("M" + " L".join(top + low) + " Z", "none", 0, colour, 0.14)
        canvas.path("M" + " L".join(f"{x(r['epoch']):.1f} {y(r['P']):.1f}" for r in rows), colour, 2.4)
        canvas.text(530, end + 4, f"{name} {rows[-1]['P']:.2f}", colour, 12.5, 600)
    return canvas


def _apart(places: Sequence[float], least: float) -> list[float]:
    """The same heights, moved down until no two are nearer than `least`: [10, 12, 40] by 5 is [10, 15, 40]."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for above, here in pairwise(order):
        moved[here] = max(moved[here], moved[above] + least)
    return moved


def anytime(document: dict[str, Any], colours: Colours) -> Canvas:
    """Value and bound over the time limit: what is known at each moment of a hard request."""
    rows = document["rows"]
    best = max(row["value"] for row in rows)
    canvas = Canvas(720, 320, "Value and bound of a hard request as the time limit grows")
    x = _scale(rows[0]["limit_ms"], rows[-1]["limit_ms"], 70, 540, log=True)
    y = _scale(0.9, 1.6, 270, 64)
    canvas.text(
        16, 26, "A hard request: the best 10 of 200 candidates, all pairs scored", colours.ink, 15, 700
    )
    canvas.text(
        16, 45, "value and bound, as shares of the best value, for each time limit", colours.muted, 12
    )
    for tick in (1.0, 1.2, 1.4, 1.6):
        canvas.line(70, y(tick), 540, y(tick), colours.line, 1, "2 4")
        canvas.text(62, y(tick) + 4, f"{tick:.0%}", colours.muted, 11.5, None, "end")
    for limit in (each for each in (2, 10, 100, 1000, 5000) if each <= rows[-1]["limit_ms"]):
        words = f"{limit} ms" if limit < 1000 else f"{limit // 1000} s"
        canvas.text(x(limit), 290, words, colours.muted, 11.5, None, "middle")
    canvas.text(305, 312, "time limit (log scale)", colours.muted, 11.5, None, "middle")
    for key, colour in (("bound", colours.bad), ("value", colours.good)):
        points = [f"{x(row['limit_ms']):.1f} {y(row[key] / best):.1f}" for row in rows]
        canvas.path("M" + " L".join(points), colour, 2.6)
        for row in rows:
            canvas.circle(x(row["limit_ms"]), y(row[key] / best), 3.2, colour)
    canvas.text(552, y(rows[0]["bound"] / best) + 4, "bound: no card", colours.bad, 12.5, 600)
    canvas.text(552, y(rows[0]["bound"] / best) + 20, "is worth more", colours.bad, 12.5, 600)
    canvas.text(552, y(1.0) - 6, "best card so far;", colours.good, 12.5, 600)
    canvas.text(552, y(1.0) + 10, "where the two meet,", colours.good, 12.5, 600)
    canvas.text(552, y(1.0) + 26, "it is proven best", colours.good, 12.5, 600)
    return canvas


SOLVED = ((50, 4), (50, 6), (200, 4), (200, 10), (500, 10))


def exact(document: dict[str, Any], colours: Colours) -> Canvas:
    """Milliseconds to a proven best card beside the better of two general solvers."""
    canvas = Canvas(720, 316, "Milliseconds to a proven best card, exactk beside CP-SAT and HiGHS")
    x = _scale(0.01, 30_000, 130, 690, log=True)
    canvas.text(16, 26, "Time to a proven best card", colours.ink, 15, 700)
    canvas.text(
        16, 45, "items and pairs scored, nine in ten pairs allowed, one core, log scale", colours.muted, 12
    )
    for tick, words in (
        (0.01, "10 µs"),
        (0.1, "0.1 ms"),
        (1, "1 ms"),
        (10, "10 ms"),
        (100, "0.1 s"),
        (1000, "1 s"),
        (10_000, "10 s"),
    ):
        canvas.line(x(tick), 58, x(tick), 282, colours.line, 1, "2 4")
        canvas.text(x(tick), 302, words, colours.muted, 11.5, None, "middle")
    for number, (nodes, size) in enumerate(SOLVED):
        row = next(
            r
            for r in document["rows"]
            if (r.get("kind"), r["num_nodes"], r["card_size"], r["density"])
            == ("node+pair", nodes, size, 0.9)
        )
        rivals = [
            cell["median"]
            for name, cell in row.items()
            if name.endswith("_ms") and isinstance(cell, dict) and name != "ours_ms"
        ]
        ours, rival = row["ours_ms"]["median"], min(rivals, default=20_000)
        y = 70 + 43 * number
        canvas.text(118, y + 12, f"{size} of {nodes}", colours.ink, 13, 600, "end")
        canvas.rect(x(0.01), y, x(ours) - x(0.01), 12, colours.accent, radius=3)
        stopped = rival >= 20_000
        canvas.rect(x(0.01), y + 15, x(min(rival, 20_000)) - x(0.01), 8, colours.line, radius=3)
        words = "stopped at 20 s" if stopped else "best of CP-SAT, HiGHS" if number == 0 else ""
        canvas.text(
            *((x(20_000) - 4, y + 35, words) if stopped else (x(rival) + 6, y + 23, words)),
            colours.muted,
            11,
            None,
            "end" if stopped else "start",
        )
        if number == 0:
            canvas.text(x(ours) + 6, y + 11, "exactk", colours.accent, 12, 700)
    return canvas
