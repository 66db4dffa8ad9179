"""Whatever bytes a file holds, every reader of files reads it or refuses it in words."""

from __future__ import annotations

import copy
import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactk.data.columns import Columns
from exactk.data.dataset import SplitRecord
from exactk.data.logs.frame import build_frame
from exactk.data.logs.request_rows import AskedColumns
from exactk.errors import ExactKError
from exactk.model_files import checked_description
from exactk.model_folder import load
from exactk.problem.rules.constraints import load_rules
from exactk.problem.solving_file import solve_file
from exactk.scale.plan import files_of, parts_of
from exactk.scale.reading import PartReader
from exactk.serving.settings import read_key_hashes
from exactk.settings.presets import read_settings

LINE = json.dumps({"user_id": "u", "candidates": [1, 2, 3], "card": [1], "clicked_item": 1}).encode() + b"\n"
ASKED = json.dumps(
    {"user_id": 1, "candidates": [{"item_id": 7, "price": 2.5}, {"item_id": 8}], "k": 1}
).encode()
SCORED = json.dumps({"request_id": "a", "items": [{"item_id": 1, "score": 2.0}], "k": 1}).encode() + b"\n"
RULES = b'[[rule]]\ntype = "count"\nwhere = {all = [{field = "a"}, {not = {field = "b"}}]}\nat_least = 1\n'
COLUMNS = b'k = 2\nrolling = ["clicks_so_far"]\n[roles]\nitem_id = "id"\n[candidate]\nnumbers = ["price"]\n'
CONFIG = b'model = "policy"\n[policy]\nwidth = 8\n[training]\nepochs = 2\n'
MODEL = (Path(__file__).parent / "fixtures" / "model-1-policy" / "config.json").read_bytes()


def _read_requests(path: Path) -> list[str]:
    """What was wrong with its rows."""
    reader = PartReader(AskedColumns(Columns(), 2))
    reasons = [
        reason
        for part in parts_of(files_of(path), 1000)
        for read in reader.read(part)
        for reason in read.reasons.values()
    ]
    assert all(reasons)
    return reasons


# name of the file -> (something sound of its kind, what reads it)
READERS: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "rules.toml": (RULES, load_rules),
    "rules.json": (b'{"rule": [{"type": "distinct", "field": "brand"}]}', load_rules),
    "columns.toml": (COLUMNS, Columns.load),
    "settings.toml": (CONFIG, read_settings),
    "keys.txt": (b"web:" + b"a" * 64 + b"\n# a comment\n", read_key_hashes),
    "scores.jsonl": (SCORED, lambda path: list(solve_file(path, 1))),
    "scores.csv": (b"request_id,item_id,score\na,1,0.5\na,2,1\n", lambda path: list(solve_file(path, 1))),
    "asked.jsonl": (ASKED + b"\n", _read_requests),
    "rows.jsonl": (b'{"request_id": "a", "item_id": 7}\n' * 2, _read_requests),
    "asked.csv": (b"request_id,user_id,item_id\na,1,7\na,1,8\n", _read_requests),
    "log.jsonl": (LINE * 3, lambda path: build_frame(path.parent / "out", path)),
    "log.csv": (
        b"request_id,user_id,item_id,clicked\n1,u,7,1\n1,u,8,0\n",
        lambda path: build_frame(path.parent / "out", path),
    ),
    "config.json": (MODEL, lambda path: checked_description(path.parent)),
}
PIECES = st.sampled_from(
    [b"\0", b"\xff\xfe", b"\xc3", b"\n", b"\r", b",", b'"', b"'", b"{", b"}", b"[", b"]", b"[" * 3000, b"9" * 400, b"-",
     b"1e999", b"NaN", b"null", b"true", b"=", b"#", b"\\ud800", b"PAR1", b"\x1f\x8b"]
)  # fmt: skip


@st.composite
def torn(draw: st.DrawFn, sound: bytes) -> bytes:
    """A sound file with a few bytes put in, taken out or changed; now and then bytes alone."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=60))
    raw = sound
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        raw = (
            raw[:at]
            + draw(st.just(b"") | PIECES | st.binary(max_size=3))
            + raw[at + draw(st.integers(0, 5)) :]
        )
    return raw


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(data=st.data())
def test_torn_files_are_read_or_refused_in_words(name: str, data: st.DataObject) -> None:
    sound, read = READERS[name]
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data.draw(torn(sound)))
        said = "read"
        try:
            read(path)
        except ExactKError as error:
            said = str(error)
        assert said


@pytest.mark.parametrize("name", READERS)
def test_what_is_torn_was_sound(name: str, tmp_path: Path) -> None:
    sound, read = READERS[name]
    (tmp_path / name).write_bytes(sound)
    if name == "config.json":  # the folder lacks the files that it names
        with pytest.raises(ExactKError, match="fits none of the weights"):
            read(tmp_path / name)
    else:
        read(tmp_path / name)


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("keys.txt", "config.json")])
@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (gzip.compress, "this is compressed by gzip: unpack it first"),
        (lambda sound: sound.decode().encode("utf-16"), "this is UTF-16 text: save it as UTF-8"),
        (lambda sound: sound.replace(b"e", b"\xe9"), "this is not UTF-8 text; save it as UTF-8"),
    ],
)
def test_every_reader_says_what_a_file_is_instead(
    name: str, spoiled: Callable[[bytes], bytes], said: str, tmp_path: Path
) -> None:
    """Only `solve` did: other doors passed on what the reader beneath them said."""
    sound, read = READERS[name]
    (tmp_path / name).write_bytes(spoiled(sound))
    if "UTF-16" in said and name in ("log.jsonl", "log.csv", "asked.csv"):  # as Excel saves them
        read(tmp_path / name)
        return
    try:
        found = read(tmp_path / name)
    except ExactKError as error:
        found = str(error)
    assert said in str(found)


ODD: tuple[Any, ...] = (None, "x", -1, 10**9, 1e308, float("nan"), [], [[]], {}, {"a": {}}, True)


def places(described: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside, however deep."""
    inside = described.items() if isinstance(described, dict) else enumerate(described)
    for name, inner in inside:
        yield (*way, name)
        if isinstance(inner, dict | list):
            yield from places(inner, (*way, name))


def test_a_model_folder_may_say_anything_anywhere(tmp_path: Path) -> None:
    """A split without its parts, and a number among the names of weights, once ended in a TypeError."""
    folder = shutil.copytree(Path(__file__).parent / "fixtures" / "model-1-policy", tmp_path / "model")
    sound = json.loads(MODEL)
    split = SplitRecord("abc", None, 0, 0.1, 0.1)
    sound["split"] = split._asdict()
    (folder / "config.json").write_text(json.dumps(sound))
    assert load(folder).split == split
    refused = 0
    for *way, last in places({**sound, "constraints": {}, "calibration": {}}):  # tested elsewhere
        for odd in ODD if way[:1] in ([], ["split"], ["models"]) else ODD[:2]:
            described = copy.deepcopy(sound)
            inner = described
            for step in way:
                inner = inner[step]
            inner[last] = odd
            (folder / "config.json").write_text(json.dumps(described))
            with suppress(ExactKError):
                load(folder)
                continue
            refused += 1
    assert refused > 100
