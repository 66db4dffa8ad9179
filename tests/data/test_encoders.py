"""Vectors of texts by an encoder of one's own: written with the items, kept by no model, never downloaded."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exactk.data.columns import Columns
from exactk.data.logs.frame import from_frame
from exactk.data.requests import Request
from exactk.data.requests.builder import RequestBuilder
from exactk.data.requests.catalogue import Catalogue
from exactk.data.sample import sample_log
from exactk.errors import ConfigError, DataError, MissingExtraError

SAMPLE = sample_log(requests=30, items=40, seed=3)


def lengths(texts: list[str]) -> list[list[float]]:
    """An encoder of three numbers."""
    return [[len(text), text.count(" "), float(text.startswith("old"))] for text in texts]


def ragged(texts: list[str]) -> list[list[float]]:
    return [[1.0]] * (len(texts) - 1)


def columns(encoder: str) -> dict[str, Any]:
    return {
        "candidate": {"numbers": ["price"]},
        "item": {"texts": ["title"]},
        "encoders": {"title": encoder},
    }


def test_what_an_encoder_says_of_the_items_is_read_like_any_vector(tmp_path: Path) -> None:
    described = columns("test_encoders:lengths") | {"pair_features": ["cosine:title", "cosine:title_vector"]}
    items = SAMPLE.items.set_column(1, "title", pa.array([None, *SAMPLE.items["title"].to_pylist()[1:]]))
    dataset = from_frame(SAMPLE.rows, described, items=items, path=tmp_path / "log")
    held = {row["item_id"]: row["title_vector"] for row in dataset.items.to_pylist()}
    assert held[0] is None
    assert held[1] == lengths(SAMPLE.items["title"].to_pylist()[1:2])[0]
    assert Columns.from_dict(dataset.meta.columns or {}).encoders == {}  # the folder needs it no more
    vocabulary = dataset.vocabulary()
    assert vocabulary.columns.vectors == {"title_vector": 3}
    batch = RequestBuilder(vocabulary, Catalogue.of(dataset)).batch([Request(None, (1, 2), 1)])
    assert batch.item_vectors is not None
    np.testing.assert_array_equal(batch.item_vectors[0, 0, -3:], held[1])
    assert [str(pair) for pair in vocabulary.columns.pair_features] == described["pair_features"]
    reads = dataset.meta.provenance["report"]["used"]
    assert reads["item vectors, by test_encoders:lengths"] == ["title_vector"]


@pytest.mark.parametrize(
    ("encoder", "error", "message"),
    [
        (
            "sentence-transformers/all-MiniLM-L6-v2",
            ConfigError,
            "neither package.module:function nor the folder",
        ),
        ("no.such.module:encode", ConfigError, "cannot be imported here"),
        ("test_encoders:nothing", ConfigError, "cannot be imported here"),
        ("test_encoders:SAMPLE", ConfigError, "is not a function"),
        ("test_encoders:ragged", DataError, r"the encoder of 'title' gave \(\d+, 1\) for \d+ texts"),
    ],
)
def test_what_cannot_encode_is_refused_by_name(
    tmp_path: Path, encoder: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        from_frame(SAMPLE.rows, columns(encoder), items=SAMPLE.items, path=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_texts_to_encode_are_texts_of_items() -> None:
    with pytest.raises(ConfigError, match="encoders: 'titel' is not one of the items' texts.*title"):
        Columns.from_dict({"item": {"texts": ["title"]}, "encoders": {"titel": "a:b"}})
    written = Columns.from_dict({"item": {"texts": ["title"]}, "encoders": {"title": "a.b:c"}})
    assert 'title = "a.b:c"' in written.to_toml()


def test_a_local_model_needs_its_package(tmp_path: Path) -> None:
    if find_spec("sentence_transformers") is not None:
        pytest.skip("sentence-transformers is installed, but no model of it is on this machine")
    with pytest.raises(MissingExtraError, match="read by sentence-transformers, which is not installed"):
        from_frame(SAMPLE.rows, columns(str(tmp_path)), items=SAMPLE.items, path=tmp_path / "log")


PACKAGE = """
from pathlib import Path


class SentenceTransformer:
    def __init__(self, folder, local_files_only):
        assert local_files_only
        self.scale = float(Path(folder, "scale").read_text())

    def encode(self, texts, show_progress_bar):
        return [[self.scale * len(text), 1.0] for text in texts]
"""


def test_the_folder_of_a_local_model_encodes_and_nothing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sentence_transformers").mkdir()
    (tmp_path / "sentence_transformers" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "scale").write_text("0.5")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)
    described = columns(str(tmp_path / "model"))
    dataset = from_frame(SAMPLE.rows, described, items=SAMPLE.items, path=tmp_path / "log")
    monkeypatch.delitem(sys.modules, "sentence_transformers")
    for row in dataset.items.to_pylist():
        assert row["title_vector"] == [0.5 * len(row["title"]), 1.0]
