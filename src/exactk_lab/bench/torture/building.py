"""Logs to be built: tables with odd values, files torn in many ways, columns files that say nonsense.

Knows what a plain log looks like. What is built can be opened and read to its end; every row is used or counted.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from exactk.data.dataset import Dataset
from exactk.data.logs.frame import build_frame
from exactk.errors import ExactKError
from exactk_lab.bench.torture.files import PIECES
from exactk_lab.bench.torture.rules import ODD

Rng = np.random.Generator
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
NAMES = ("", "user_id", "item_id", "card", "clicked", "clicked_item", "split", "propensity", "timestamp", "on_card",
         "reward", "é", "x" * 300, "features", "graph", "request_id")  # fmt: skip
COLUMNS: dict[str, Any] = {
    "k": 2,
    "positives_only": False,
    "ignored": ["noise"],
    "rolling": ["clicks_so_far"],
    "pair_features": ["same:brand"],
    "roles": {"request_id": "request_id", "user_id": "user_id", "item_id": "item_id", "clicked": "clicked"},
    "candidate": {"numbers": ["price"]},
    "context": {"categories": ["device"]},
    "item": {"categories": ["brand"]},
}


def trials(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """Tables, files and columns files in turn."""
    for n in range(number):
        yield (table, torn_file, columns_file)[n % 3], (seed, n)


def table(seed: int, n: int) -> str:
    """A table in memory with odd values; as lists, or as a row for each candidate."""
    rng = np.random.default_rng([seed, n])
    rows = _odd(rng, rows_of_candidates(rng) if n % 2 else _wide(rng))
    try:
        frame: Any = pa.Table.from_pylist(rows)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        import pandas

        frame = pandas.DataFrame(rows)
    return _built(frame, rng)


def torn_file(seed: int, n: int) -> str:
    """A file of rows with something cut, doubled or put in."""
    rng = np.random.default_rng([seed, n])
    suffix = SUFFIXES[n // 3 % len(SUFFIXES)]
    rows = rows_of_candidates(rng) if suffix != ".jsonl" or rng.random() < 0.5 else _wide(rng)
    content = _written(rows, suffix)
    for _ in range(int(rng.integers(0, 3))):
        at, end = sorted(rng.integers(0, len(content) + 1, 2).tolist())
        piece = PIECES[int(rng.integers(len(PIECES)))]
        content = [
            content[:at] + piece + content[at:],
            content[:at] + content[end:],
            content[:end] + content[at:],
        ][int(rng.integers(3))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"torn{suffix}"
        path.write_bytes(content)
        return _built(path, rng)


def columns_file(seed: int, n: int) -> str:
    """A columns file in which something is odd."""
    rng = np.random.default_rng([seed, n])
    described = json.loads(json.dumps(COLUMNS))
    for _ in range(int(rng.integers(1, 3))):
        name = str(rng.choice(sorted(described)))
        inner = described[name]
        odd = [each for each in ODD if _fits_toml(each)]
        value: Any = odd[int(rng.integers(len(odd)))]
        if isinstance(inner, dict) and inner and rng.random() < 0.7:
            inner[str(rng.choice(sorted(inner)))] = value
        elif rng.random() < 0.2:
            del described[name]
        else:
            described[name] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "columns.toml"
        text = "\n".join(f"{name} = {_toml(value)}" for name, value in described.items())
        path.write_bytes(
            text.encode() if rng.random() < 0.8 else text.encode()[: int(rng.integers(len(text)))]
        )
        return _built(pa.Table.from_pylist(rows_of_candidates(rng)), rng, path)


def _built(source: Any, rng: Rng, columns: Path | None = None) -> str:
    options: dict[str, Any] = {
        "text_ids": True, "separator": "|", "bad_rows": "error", "item_features": ["price"],
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if rng.random() < 0.2}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "log"
        try:
            report = build_frame(out, source, columns, **chosen)
            data = Dataset.open(out)
            read = sum(len(batch) for batch in data.batches(data.vocabulary(), 16))
        except ExactKError as error:
            left = [path.name for path in Path(folder).iterdir() if path != out]
            return f"left behind: {left}" if left else "" if str(error) else "an error without a word"
        if report.rows_dropped > report.rows_read:
            return f"{report.rows_read} rows read, {report.rows_dropped} dropped"
        return "" if read == len(data) else f"{read} of {len(data)} requests could be read"


def rows_of_candidates(rng: Rng, requests: int = 0) -> list[dict[str, Any]]:
    """A sound log, a row for each candidate."""
    rows = []
    for request in range(requests or int(rng.integers(2, 7))):
        user, device = f"u{rng.integers(3)}", str(rng.choice(["phone", "desk"]))
        for place, item in enumerate(rng.permutation(9)[: rng.integers(2, 6)].tolist()):
            rows.append(
                {
                    "request_id": request, "user_id": user, "item_id": item, "clicked": bool(rng.random() < 0.3),
                    "price": round(float(rng.random() * 50), 2), "brand": "xyz"[item % 3], "device": device,
                    "position": place, "noise": float(rng.normal()), "timestamp": 1_700_000_000 + request,
                }
            )  # fmt: skip
    return rows


def _wide(rng: Rng) -> list[dict[str, Any]]:
    rows = []
    for request in range(int(rng.integers(2, 9))):
        items = rng.permutation(9)[: rng.integers(2, 6)].tolist()
        card = items[: rng.integers(1, len(items) + 1)]
        clicked = bool(rng.random() < 0.5)
        rows.append(
            {
                "request_id": request, "user_id": int(rng.integers(3)), "candidates": items, "card": card,
                "clicked": clicked, "clicked_item": card[0] if clicked else None, "propensity": 0.5,
                "timestamp": 1_700_000_000 + request, "split": str(rng.choice(["train", "valid", "test"])),
            }
        )  # fmt: skip
    return rows


def _odd(rng: Rng, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some values of some columns odd, a column more, less, or by another name."""
    for name in [name for name in rows[0] if rng.random() < 0.2]:
        value = ODD[int(rng.integers(len(ODD)))]
        share = rng.choice([0.1, 1.0])
        for row in rows:
            if rng.random() < share:
                row[name] = value
    if rng.random() < 0.2:
        old, new = str(rng.choice(sorted(rows[0]))), str(rng.choice(NAMES))
        rows = [{(new if name == old else name): value for name, value in row.items()} for row in rows]
    if rng.random() < 0.1:
        del rows[int(rng.integers(len(rows)))][str(rng.choice(sorted(rows[0])))]
    return rows


def _written(rows: list[dict[str, Any]], suffix: str) -> bytes:
    if suffix == ".jsonl":
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    buffer = io.BytesIO()
    held = pa.Table.from_pylist(rows)
    if suffix == ".parquet":
        pq.write_table(held, buffer)
    else:
        pc.write_csv(held, buffer, pc.WriteOptions(delimiter="\t" if suffix == ".tsv" else ","))
    return buffer.getvalue()


def _fits_toml(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_fits_toml, value.values()))
    if isinstance(value, list):
        return all(map(_fits_toml, value))
    return value is not None and (not isinstance(value, int) or abs(value) < 2**63)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if value != value else "inf"
    return json.dumps(value, ensure_ascii=False)
