"""Batches in another order of candidates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from exactk.problem import batch, brief


def written_axes(path: str, name: str) -> Mapping[str, tuple[int, ...]]:
    """Where N stands in the shapes that a class gives its fields."""
    source = Path(path).read_text(encoding="utf-8")
    body = re.split(r"\n(?:def|class|@)", source[source.index(f"class {name}") :])[0]
    found = re.findall(r'^    (\w+): \w+\[np\.ndarray, "([^"]*)"\]', body, re.MULTILINE)
    shapes = {field: shape.split() for field, shape in found}
    axes = {f: tuple(a for a, d in enumerate(dims) if d == "N") for f, dims in shapes.items()}
    return {field: held for field, held in axes.items() if held}


def test_every_array_that_holds_candidates_is_moved_along_all_its_axes() -> None:
    assert written_axes(batch.__file__, "Batch") == batch.CANDIDATE_AXES
    assert written_axes(brief.__file__, "Brief") == batch.BRIEF_AXES
