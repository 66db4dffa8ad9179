"""Pictures of how it works: a request's walk through the code, and a small search tree with its bounds.

The tree is searched here, in twenty plain lines, with the bound that the engine uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from exactk_lab.pictures.drawing import Canvas, Colours

NAMES = "abcdef"
SCORE = {"a": 9.0, "b": 8.0, "c": 7.0, "d": 5.0, "e": 4.0, "f": 2.0}
PAIR = {"ab": -4.0, "ac": 2.0, "bc": -1.0, "ad": 1.0, "bd": 1.0, "ae": -2.0, "cd": 2.0, "ce": 1.0, "af": 0.0}
FORBIDDEN = {"bc", "ae"}
SIZE = 3


@dataclass(frozen=True)
class Branch:
    """A beginning of a card: its bound, and what became of it."""

    picks: str
    bound: float
    kept: bool
    leaf: float | None = None


def pair(one: str, other: str) -> float:
    return PAIR.get("".join(sorted(one + other)), 0.0)


def allowed(one: str, other: str) -> bool:
    return "".join(sorted(one + other)) not in FORBIDDEN


def value(card: str) -> float:
    """a, c, d: 9 + 7 + 5 and their pairs 2, 1, 2."""
    return sum(SCORE[i] for i in card) + sum(pair(i, j) for i, j in combinations(card, 2))


def worth(item: str, picks: str, rest: str, left: int) -> float:
    """What an item adds now, and half of its `left - 1` best pairs among the rest."""
    gain = SCORE[item] + sum(pair(item, chosen) for chosen in picks)
    best = sorted(
        (pair(item, other) for other in rest if other != item and allowed(item, other)), reverse=True
    )
    return gain + sum(best[: left - 1]) / 2


def bound(picks: str, rest: str) -> float:
    """No card that begins with `picks` and goes on among `rest` is worth more."""
    left = SIZE - len(picks)
    worths = sorted((worth(item, picks, rest, left) for item in rest), reverse=True)
    return value(picks) + sum(worths[:left]) if len(rest) >= left else float("-inf")


def searched() -> list[Branch]:
    """Every beginning looked at, depth first, branches by falling worth; `kept` where it could beat the best so far."""
    seen: list[Branch] = []
    best = float("-inf")

    def below(picks: str, rest: str) -> None:
        nonlocal best
        left = SIZE - len(picks)
        order = sorted(rest, key=lambda item: -worth(item, picks, rest, left))
        for place, item in enumerate(order):
            begun = picks + item
            after = "".join(other for other in order[place + 1 :] if allowed(item, other))
            if len(begun) == SIZE:
                worth_it = value(begun) > best
                best = max(best, value(begun))
                seen.append(Branch(begun, value(begun), worth_it, value(begun)))
                continue
            most = bound(begun, after)
            seen.append(Branch(begun, most, most > best))
            if most > best:
                below(begun, after)

    below("", NAMES)
    return seen


def bounds(colours: Colours) -> Canvas:
    """The tree, each beginning with its bound; grey ones ended without a look below."""
    seen = searched()
    rows = [branch for branch in seen if branch.bound > float("-inf")]
    best = max(branch.leaf for branch in rows if branch.leaf is not None)
    canvas = Canvas(720, 86 + 30 * len(rows), "A small search tree with its bounds")
    canvas.text(
        16,
        26,
        "Choosing 3 of 6: every partial card the search looked at, with its bound",
        colours.ink,
        15,
        700,
    )
    canvas.text(
        16,
        46,
        f"20 sets of three; {sum(b.leaf is not None for b in rows)} cards valued; "
        "grey: cannot beat the best card so far, so the search skips it",
        colours.muted,
        12,
    )
    last: dict[int, float] = {0: 58.0}
    for number, branch in enumerate(rows):
        y, depth = 80.0 + 30 * number, len(branch.picks)
        x = 24.0 + 54 * (depth - 1)
        ended = not branch.kept and branch.leaf is None
        top = branch.leaf == best
        colour = colours.good if top else colours.muted if ended else colours.ink
        if depth > 1:
            canvas.line(x - 42, last[depth - 1] + 12, x - 42, y, colours.line)
            canvas.line(x - 42, y, x - 12, y, colours.line)
        last[depth] = y
        canvas.rect(
            x - 10,
            y - 12,
            26 + 12 * depth,
            24,
            colours.soft if ended else colours.surface,
            colours.good if top else colours.line,
            6,
            2.5 if top else 1.2,
        )
        canvas.text(
            x + 3 + 6 * depth, y + 5, " ".join(branch.picks), colour, 13, 700 if top else 600, "middle", True
        )
        length = branch.bound * 8
        canvas.rect(
            260,
            y - 7,
            length,
            14,
            colours.good if top else colours.line if ended else colours.accent,
            None,
            3,
            opacity=0.85 if not ended else 0.7,
        )
        words = f"card worth {branch.leaf:g}" if branch.leaf is not None else f"at most {branch.bound:g}"
        words += ": the best, proven" if top else ": skipped" if ended else ""
        canvas.text(268 + best * 8, y + 4, words, colour, 12, 700 if top else None)
    canvas.line(260 + best * 8, 62, 260 + best * 8, 80 + 30 * len(rows) - 14, colours.good, 1.5, "4 4")
    return canvas


WALK = (
    ("you ask", "Python, command", "line, HTTP, file"),
    ("Request", "user, candidates,", "context, rules, K"),
    ("Batch", "numpy arrays,", "rules as a graph"),
    ("decide", "exact search,", "or a policy's beam"),
    ("Card", "K items, value,", "bound, reasons"),
)


def walk(colours: Colours) -> Canvas:
    """From a door to a card."""
    canvas = Canvas(760, 130, "A request's walk: door, request, batch, decide, card")
    for number, (name, first, second) in enumerate(WALK):
        x = 8 + 151 * number
        last = number == len(WALK) - 1
        canvas.rect(x, 20, 128, 88, colours.surface, colours.good if last else colours.accent, 10, 2)
        canvas.text(x + 64, 48, name, colours.ink, 15, 700, "middle")
        canvas.text(x + 64, 72, first, colours.muted, 12, None, "middle")
        canvas.text(x + 64, 89, second, colours.muted, 12, None, "middle")
        if not last:
            canvas.arrow(x + 131, 64, x + 148, 64, colours.muted)
    return canvas
