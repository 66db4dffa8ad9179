"""Model folders and log folders with a file cut, changed or missing, and settings of absurd sizes.

Knows how to make a sound folder of each kind once a process.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from exactk.errors import ExactKError

SHOWN = 20  # impressions of the service's log
ABSURD: list[Any] = [10**9, -1, 0, None, "x", [], 1.5, 10**30, True]


def models(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """Half are damaged, half are changed by someone who can compute checksums."""
    for n in range(number):
        yield load_model, (seed, n)


def logs(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """Dataset folders with a damaged file."""
    for n in range(number):
        yield open_log, (seed, n)


def service_logs(seed: int, number: int) -> Iterator[tuple[Callable[..., str], tuple[Any, ...]]]:
    """The log of a service with a damaged file."""
    for n in range(number):
        yield build_service_log, (seed, n)


def load_model(seed: int, n: int) -> str:
    """A model, or one of exactk's errors; never an endless load."""
    from exactk.recommender import Recommender

    rng = np.random.default_rng([seed, n])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        shutil.copytree(sound_model(), path)
        if n % 2:
            _damaged(path, rng)
        else:
            _tampered(path / "config.json", rng)
        try:
            Recommender.load(path)
        except ExactKError as error:
            return "" if str(error) else "an error without a word"
    return ""


def open_log(seed: int, n: int) -> str:
    """A dataset whose batches can be read, or one of exactk's errors."""
    from exactk.data.dataset import Dataset

    rng = np.random.default_rng([seed, n])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        shutil.copytree(_sound_log(), path)
        _damaged(path, rng)
        try:
            data = Dataset.open(path)
            for _ in data.batches(data.vocabulary(), 16):
                pass
        except ExactKError as error:
            return "" if str(error) else "an error without a word"
    return ""


def build_service_log(seed: int, n: int) -> str:
    """A dataset of what was served, or one of exactk's errors; journals cut short lose the torn row alone."""
    from exactk.data.dataset import Dataset
    from exactk.serving.log.collecting import collect

    rng = np.random.default_rng([seed, n])
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "log", Path(folder) / "built"
        shutil.copytree(_sound_service_log(), path)
        _damaged(path, rng)
        try:
            found = collect(path, out)
            held = len(Dataset.open(out))
        except ExactKError as error:
            return "" if str(error) else "an error without a word"
    return "" if held == found.rows <= SHOWN else f"{held} impressions, {found}"


def _damaged(path: Path, rng: np.random.Generator) -> None:
    """One file cut, emptied, gone, or with some bytes changed; an index, which can be made anew, is only cut."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    file = files[int(rng.integers(len(files)))]
    content = bytearray(file.read_bytes())
    way = int(rng.integers(3 if ".index" in file.parts else 4))
    if way == 0:
        file.unlink()
        return
    if way == 1:
        content = content[: int(rng.integers(len(content) + 1))]
    elif way == 2:
        content = bytearray()
    for _ in range(3 if content and way == 3 else 0):
        content[int(rng.integers(len(content)))] = int(rng.integers(256))
    file.write_bytes(content)


def _tampered(config: Path, rng: np.random.Generator) -> None:
    """One value of config.json replaced by an absurd one."""
    described = json.loads(config.read_text(encoding="utf-8"))
    places = [place for place in _places(described) if place[0] != "sha256"]
    *way, last = places[int(rng.integers(len(places)))]
    inner = described
    for step in way:
        inner = inner[step]
    inner[last] = ABSURD[int(rng.integers(len(ABSURD)))]
    config.write_text(json.dumps(described), encoding="utf-8")


def _places(described: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(described, dict):
        for name, inner in described.items():
            yield (*way, name)
            yield from _places(inner, (*way, name))


@cache
def _sound_log() -> Path:
    import pyarrow as pa

    from exactk.data.logs.frame import build_frame

    rng = np.random.default_rng(0)
    rows = []
    for _ in range(60):
        items = rng.permutation(12)[:5].tolist()
        clicked = bool(rng.random() < 0.5)
        clicked_item = items[0] if clicked else None
        row = {"user_id": int(rng.integers(6)), "candidates": items, "card": items[:2]}
        rows.append(row | {"clicked": clicked, "clicked_item": clicked_item})
    folder = kept_folder("log")
    build_frame(folder, pa.Table.from_pylist(rows))
    return folder


@cache
def _sound_service_log() -> Path:
    """Parts and journals of impressions, feedback and items."""
    from exactk.serving.log import Impression, ImpressionLog

    folder = kept_folder("service-log")
    for turn in range(2):
        log = ImpressionLog(folder, 1 << 20, 3600.0, lambda _: None)
        for n in range(SHOWN // 2):
            items = [f"i{p}" for p in range(n, n + 5)]
            log.described([{"item_id": item, "title": "a title", "features": [1.0, 2.0]} for item in items])
            log.shown(Impression(f"r{turn}-{n}", f"u{n % 3}", items, items[:2], 0.5, 0.3, "champion", "v"))
            log.answered(f"r{turn}-{n}", n % 2 == 0, items[0] if n % 2 == 0 else None).result()
        log.close()
    for part in sorted(folder.glob("*.parquet"))[::2]:  # half of them as journals that nobody shelved
        rows = pq.read_table(part).to_pylist()
        part.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        part.unlink()
    return folder


@cache
def sound_model() -> Path:
    """A model that reads ids, made once a process."""
    from exactk.data.dataset import Dataset
    from exactk.recommender import Recommender

    learned, held_out, _ = Dataset.open(_sound_log()).split("random")
    folder = kept_folder("model")
    Recommender("tiny").fit(learned, held_out, show=False).save(folder)
    return folder


def kept_folder(name: str) -> Path:
    """A folder that lasts as long as the bench; every child makes its own."""
    return Path(tempfile.mkdtemp()) / name
