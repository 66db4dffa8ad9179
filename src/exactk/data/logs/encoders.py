"""Vectors of texts by an encoder that is installed on this machine: a function of yours, or a local model folder.

Knows one column of texts at a time. Nothing is downloaded, and no model keeps the encoder: what it says of the items is
written into their table when the log is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32

from exactk.data.columns.roles import encoded_name
from exactk.data.table import combine
from exactk.errors import ConfigError, DataError, MissingExtraError

Encoder = Callable[[list[str]], Any]  # texts to a matrix, a row each
AT_ONCE = 1024


def encoder_named(said: str) -> Encoder:
    """`package.module:function`, or the folder of a sentence-transformers model on this disk."""
    if Path(said).is_dir():
        return _local_model(said)
    module, colon, function = said.partition(":")
    if not (colon and module and function):
        raise ConfigError(
            f"encoders: {said!r} is neither package.module:function nor the folder of a model on this disk; "
            "nothing is downloaded"
        )
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"encoders: {said!r} cannot be imported here: {error}") from error
    if not callable(found):
        raise ConfigError(f"encoders: {said!r} is no function")
    return found  # type: ignore[no-any-return]


def _local_model(folder: str) -> Encoder:
    if find_spec("sentence_transformers") is None:
        raise MissingExtraError(f"{folder} is read by sentence-transformers, which is not installed")
    model = import_module("sentence_transformers").SentenceTransformer(folder, local_files_only=True)
    return lambda texts: model.encode(texts, show_progress_bar=False)


class TextEncoders:
    """Adds a column of vectors for each column of texts that has an encoder; a missing text has none."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._encoders = {name: encoder_named(said) for name, said in named.items()}
        self._sizes: dict[str, int] = {}

    def __call__(self, table: pa.Table) -> pa.Table:
        """The same table of items, with vectors."""
        for name, encode in self._encoders.items():
            if name not in table.column_names:
                raise DataError(f"items: there is no column '{name}' to encode")
            spelled = [_spelled(value) for value in combine(table[name]).to_pylist()]
            known = [n for n, text in enumerate(spelled) if text is not None]
            vectors: list[Any] = [None] * len(spelled)
            for first in range(0, len(known), AT_ONCE):
                some = known[first : first + AT_ONCE]
                matrix = self._matrix(name, encode, [spelled[n] or "" for n in some])
                for n, vector in zip(some, matrix, strict=True):
                    vectors[n] = vector.tolist()
            table = table.append_column(encoded_name(name), pa.array(vectors, pa.list_(pa.float32())))
        return table

    def _matrix(self, name: str, encode: Encoder, texts: list[str]) -> Float32[np.ndarray, "R V"]:
        matrix = np.asarray(encode(texts), np.float32)
        size = self._sizes.setdefault(name, matrix.shape[-1] if matrix.ndim == 2 else 0)
        if matrix.shape != (len(texts), size) or not np.isfinite(matrix).all():
            raise DataError(
                f"the encoder of '{name}' gave {matrix.shape} for {len(texts)} texts; wanted is a row of {size or 'V'} "
                "finite numbers for each"
            )
        return matrix


def _spelled(value: str | Sequence[str] | None) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return " ".join(part for part in value if part) or None
