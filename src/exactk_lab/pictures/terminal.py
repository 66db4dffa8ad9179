"""A terminal session drawn: real commands are run, and their lines appear one after the other, once.

Knows which session is shown. A reader who wants no motion, or whose viewer knows none, sees all of it at once.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from exactk_lab.pictures.drawing import MONO, Canvas, Colours

COLUMNS, SIZE, LETTER, LINE = 94, 12.5, 7.5, 18.0
LEFT, TOP = 18.0, 44.0
TYPED_PER_SECOND, READING_SECONDS = 38.0, 1.3  # between a command's answer and the next command
FILES = {
    "shelf.csv": """\
item_id,title,brand,price,score
scarf-red,wool scarf red,nordwool,39.90,0.94
scarf-blue,wool scarf blue,nordwool,39.90,0.93
scarf-green,wool scarf green,nordwool,39.90,0.91
beanie,ribbed beanie,alto,24.50,0.81
gloves,lined gloves,alto,34.00,0.78
socks,alpaca socks,nordwool,14.90,0.66
boots,waterproof snow boots,fjell,149.00,0.61
tea,winter spice tea,morgen,7.90,0.42
""",
    "rules.toml": """\
rule = [
  {type = "title_distance", minimum = 0.5},            # no near-duplicates
  {type = "at_most", field = "brand", m = 2},          # at most two of a brand
  {type = "total", field = "price", at_most = 120},    # at most 120 in all
]
""",
}
COMMANDS = (
    "cat rules.toml",
    "exactk solve shelf.csv --k 4 --rules rules.toml --explain",
    "exactk solve shelf.csv --k 4 --rules rules.toml --include boots",
    "exactk solve shelf.csv --k 4 --rules rules.toml --include boots --relax total",
)
STYLE = """\
.typed { animation: typed linear backwards; } .shown { animation: shown 0.2s backwards; }
@keyframes typed { from { clip-path: inset(0 100% 0 0); } }
@keyframes shown { from { opacity: 0; } }
@media (prefers-reduced-motion: reduce) { .typed, .shown { animation: none; } }"""


class Said(NamedTuple):
    """A command and the lines it answered with."""

    command: str
    lines: tuple[str, ...]


@cache
def session() -> tuple[Said, ...]:
    """Run the commands in a folder with the files, on a terminal of so many columns."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return tuple(Said(command, _lines(command, Path(folder))) for command in COMMANDS)


def _lines(command: str, folder: Path) -> tuple[str, ...]:
    """What a command prints, wrapped as a terminal wraps it."""
    words = shlex.split(command)
    if words[0] == "exactk":
        words = [sys.executable, "-m", *words]
    environment = os.environ | {"COLUMNS": str(COLUMNS), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):  # 2: there is no card, and the answer says why
        raise RuntimeError(done.stderr)
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    wrapped = [line[at : at + COLUMNS] for line in lines for at in range(0, max(len(line), 1), COLUMNS)]
    return tuple(line for line in wrapped if line)


def terminal(colours: Colours) -> Canvas:
    """The session as a window."""
    said = session()
    count = sum(1 + len(each.lines) for each in said)
    spaces = 0.5 * (len(said) - 1)
    canvas = Canvas(COLUMNS * LETTER + 2 * LEFT, TOP + LINE * (count + spaces) + 4, "exactk in a terminal")
    canvas.parts.append(f"<style>{STYLE}</style>")
    canvas.rect(0.5, 0.5, canvas.width - 1, canvas.height - 1, colours.surface, colours.line, radius=10)
    for n in range(3):
        canvas.circle(LEFT + 4 + 16 * n, 18, 4.5, colours.line)
    y, clock = TOP, 0.4
    for each in said:
        seconds = len(each.command) / TYPED_PER_SECOND
        _line(canvas, LEFT, y, "$", colours.accent, "", clock - 0.3)
        _line(
            canvas,
            LEFT + 2 * LETTER,
            y,
            each.command,
            colours.ink,
            f"animation-duration:{seconds:.2f}s",
            clock,
        )
        clock += seconds + 0.3
        fill = colours.muted
        for line in each.lines:
            y += LINE
            fill = _colour(line, colours, fill)
            _line(canvas, LEFT, y, line, fill, "", clock)
        clock += READING_SECONDS
        y += 1.5 * LINE
    return canvas


def _colour(line: str, colours: Colours, before: str) -> str:
    """Proof is good, none is bad; what explains is quiet; a row of a table that goes on keeps its colour."""
    if "infeasible" in line:
        return colours.bad
    if "optimal" in line:
        return colours.good
    if line.startswith(" " * 8):
        return before
    return colours.ink if line.startswith(("  {", "rule", "]")) else colours.muted


def _line(canvas: Canvas, x: float, y: float, text: str, fill: str, style: str, clock: float) -> None:
    """A line that comes at a moment; a command is typed, an answer is there. Letters keep to their columns."""
    kind = "typed" if style else "shown"
    canvas.parts.append(
        f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{SIZE:g}" font-family="{MONO}" xml:space="preserve" '
        f'textLength="{len(text) * LETTER:g}" class="{kind}" style="{style}{";" if style else ""}'
        f'animation-delay:{clock:.2f}s">{escape(text)}</text>'
    )
