"""Whether a folder is a whole model: its description, format number and checksums.

Knows files, not what is in them: no torch, so that a process that only starts others may look before they do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from exactk.atomic import sha256
from exactk.errors import DataError, why_unreadable

FORMAT = 1
HELD = {
    "config": dict, "constraints": dict, "sizes": dict, "card_size": int, "calibration": dict, "models": list,
    "sha256": dict,
}  # fmt: skip
MODELS = ("policy", "value")  # what a folder may hold the weights of
NO_SIZES = ("epochs", "batch_size", "patience", "seed")  # settings of training: they size no weight


def checked_description(path: Path) -> dict[str, Any]:
    """What config.json says; a folder that is no model, or not the one that was saved, is refused by name."""
    file = path / "config.json"
    if not file.is_file():
        raise DataError(f"{path} is not a model folder: it has no config.json")
    try:
        described: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known = described["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{file} is damaged: {why_unreadable(file, error)}") from error
    if known != FORMAT:
        raise DataError(f"{file}: model format {known!r}; this exactk reads format {FORMAT}")
    _refuse_absurd(file, described)
    for name, digest in described["sha256"].items():
        if not (path / name).is_file() or sha256(path / name) != digest:
            raise DataError(
                f"{path / name} is missing or damaged: it is not the file that was saved with this model"
            )
    return described


def _refuse_absurd(file: Path, described: dict[str, Any]) -> None:
    """Refuse what no saved model says: parts of another kind, and sizes beyond all weights that there are.

    Checked before anything of such a size is made: a network of 10^9 layers would never be.
    """
    for name, kind in HELD.items():
        if not isinstance(described.get(name), kind) or isinstance(described[name], bool):
            raise DataError(f"{file} is damaged: {name} is {described.get(name)!r:.80}")
    if unknown := [name for name in described["models"] if name not in MODELS]:
        raise DataError(f"{file} is damaged: models holds {unknown[0]!r:.80}")
    for name, value in described["calibration"].items():
        if name not in ("scale", "shift") or isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{file} is damaged: calibration.{name} is {value!r:.80}")
    weights = sum(one.stat().st_size for one in file.parent.glob("*.safetensors"))
    sections = {"sizes": described["sizes"], "card_size": {"": described["card_size"]}, **described["config"]}
    for section, settings in sections.items():
        for name, value in settings.items() if isinstance(settings, dict) else ():
            sizes_weights = section != "training" and name not in NO_SIZES
            large = isinstance(value, int) and value > (weights if sizes_weights else 2**62)
            if large or (section == "card_size" and value < 1):
                setting = f"{section}.{name}".rstrip(".")
                raise DataError(
                    f"{file} is damaged: {setting} is {value:,}, which fits none of the weights beside it"
                )
