"""Files of scored candidates and of rules, torn in many ways, in Python and on the command line.

Knows what sound files look like; a torn one must be read or refused in words that name it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exactk.errors import ExactKError
from exactk.problem.rules.constraints import load_rules
from exactk.problem.solving_file import solve_file

CSV = b"request_id,item_id,brand,score\na,1,x,0.5\na,2,y,0.25\nb,1,x,3\nb,042,z,1\n"
LINES = b"".join(
    json.dumps(row).encode() + b"\n"
    for row in (
        {"request_id": 1, "item_id": 1, "score": 2},
        {"request_id": 1, "item_id": 2, "score": 1.5},
        {
            "request_id": 2,
            "items": [{"item_id": "a", "score": 1}],
            "k": 1,
            "include": ["a"],
            "pair_scores": [],
        },
    )
)
RULES_TOML = (
    b'[[rule]]\ntype = "at_most"\nfield = "brand"\nm = 2\n\n[[rule]]\ntype = "forbid"\npairs = [[1, 2]]\n'
)
RULES_JSON = b'{"rule": [{"type": "title_distance", "minimum": 0.5, "field": "brand"}]}'
SOUND = {".csv": CSV, ".jsonl": LINES, ".parquet": CSV, ".toml": RULES_TOML, ".json": RULES_JSON}
PIECES = [
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b",",
    b'"',
    b"{",
    b"[" * 2000,
    b"9" * 400,
    b"1e999",
    b"NaN",
    b"\xe9",
    b"PAR1",
    b"[/b]",
]


def torn(seed: int, n: int, suffix: str) -> bytes:
    """A sound file with something cut, doubled, put in, encoded otherwise."""
    rng = np.random.default_rng([seed, n])
    content = SOUND[suffix]
    for _ in range(int(rng.integers(1, 4))):
        at, end = sorted(rng.integers(0, len(content) + 1, 2).tolist())
        piece = PIECES[int(rng.integers(len(PIECES)))]
        content = [
            content[:at] + piece + content[at:],
            content[:at] + content[end:],
            content[:end] + content[at:],
            rng.bytes(40),
            content[:at] + rng.bytes(3) + content[at:],
        ][int(rng.integers(5))]
    whole = int(rng.integers(12))
    if whole == 0:
        return gzip.compress(content)
    return content.decode("latin-1").encode("utf-16") if whole == 1 else content


def trials(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """Every kind of file in turn."""
    kinds = list(SOUND)
    for n in range(number):
        yield read, (seed, n, kinds[n % len(kinds)])


def read(seed: int, n: int, suffix: str) -> str:
    """Cards of what can be read, or an error that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"torn{suffix}"
        path.write_bytes(torn(seed, n, suffix))
        try:
            if suffix in (".toml", ".json"):
                load_rules(path)
                return ""
            for answer in solve_file(path, 1, text_ids=bool(n % 2)):
                if answer.error is None and len(answer.cards[0].items) != (1 if answer.cards else 0):
                    return f"a card of another size: {answer}"
        except ExactKError as error:
            return "" if "torn" in str(error) else f"the error does not name the file: {error}"
    return ""


def commands(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """`exactk solve` on torn files, torn rules and odd places for the cards."""
    outs = ["cards.jsonl", "cards.csv", "torn.csv", "none/cards.jsonl", ".", "/dev/null", "cards.xlsx", ""]
    for n in range(number):
        yield command, (seed, n, [".csv", ".jsonl"][n % 2], outs[n % len(outs)])


def command(seed: int, n: int, suffix: str, out: str) -> str:
    """Exit 0 or 2, words on stderr, the input as it was."""
    from exactk.cli import main

    with tempfile.TemporaryDirectory() as folder:
        path, rules = Path(folder) / f"torn{suffix}", Path(folder) / "rules.toml"
        content = torn(seed, n, suffix) if n % 3 else SOUND[suffix]
        path.write_bytes(content)
        rules.write_bytes(torn(seed, n, ".toml") if n % 5 == 0 else b"")
        words = ["exactk", "solve", str(path), "-k", "1", "--rules", str(rules), "--json"]
        sys.argv = [*words, "--out", str(Path(folder) / out)] if out else words
        said, code = io.StringIO(), 0
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                main()
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 1
        if path.read_bytes() != content:
            return "the input was changed"
        if code not in (0, 2):
            return f"exit {code}: {said.getvalue()[-300:]}"
        if code == 2 and not said.getvalue().strip():
            return "exit 2 without a word"
        left_behind = {file.name for file in Path(folder).iterdir()} - {path.name, "rules.toml", out}
        return f"left behind: {left_behind}" if left_behind else ""
