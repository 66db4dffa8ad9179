"""Whether a folder is a whole model: its description, format number and checksums.

Knows files, not what is in them: no torch, so that a process that only starts others may look before they do.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from exactk.errors import DataError

FORMAT = 1


def checked_description(path: Path) -> dict[str, Any]:
    """What config.json says; a folder that is no model, or not the one that was saved, is refused by name."""
    file = path / "config.json"
    if not file.is_file():
        raise DataError(f"{path} is not a model folder: it has no config.json")
    try:
        described: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known = described["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is damaged: {error}") from error
    if known != FORMAT:
        raise DataError(f"{file}: model format {known!r}; this exactk reads format {FORMAT}")
    for name, digest in described["sha256"].items():
        if not (path / name).is_file() or sha256(path / name) != digest:
            raise DataError(
                f"{path / name} is missing or damaged: it is not the file that was saved with this model"
            )
    return described


def sha256(path: Path) -> str:
    """Of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
