"""A trained recommender on disk: safetensors, Parquet and JSON, with a format number and checksums; never pickle.

Knows how to keep and find again, not how to train or recommend. Old formats load for ever.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from exactk.atomic import atomic_folder, check_replaceable, failed, sha256
from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import SplitRecord
from exactk.data.requests.builder import RequestBuilder
from exactk.data.requests.catalogue import Catalogue
from exactk.data.rolling import FILE as COUNTS
from exactk.data.rolling import RollingCounts
from exactk.engine.decide import Calibration, ModelWeights
from exactk.engine.shapes import shapes_of
from exactk.errors import DataError
from exactk.model_files import FORMAT, checked_description
from exactk.problem.rules.constraints import Constraints
from exactk.settings.config import Config, InputSizes

Figures = dict[str, Any]  # figures of training at one moment


@dataclass(frozen=True)
class TrainedModel:
    """Everything a recommender needs after training, and the figures of its training."""

    config: Config
    constraints: Constraints
    vocabulary: Vocabulary
    catalogue: Catalogue
    sizes: InputSizes
    card_size: int
    weights: ModelWeights
    calibration: Calibration
    history: tuple[Figures, ...]
    split: SplitRecord | None = None  # of the log it was trained on, so that judging it uses the same
    counts: RollingCounts | None = None  # as training and validation left them, where the model reads any

    @cached_property
    def builder(self) -> RequestBuilder:
        """What makes batches of requests; the same one for every door, as its tables are made once."""
        return RequestBuilder(self.vocabulary, self.catalogue, self.counts)


def save(fitted: TrainedModel, path: Path) -> None:
    """Write the whole folder beside its place and swap it in."""
    check_free(path)
    try:
        with atomic_folder(path) as folder:
            _write(fitted, folder)
    except SafetensorError as error:
        raise failed(path, error) from error


def check_free(path: Path) -> None:
    """Refuse a place that holds anything but a model: saving would take it away."""
    check_replaceable(path, "model", ("config.json", "vocabulary.json"))


def _write(fitted: TrainedModel, folder: Path) -> None:
    """All files; config.json, written last, names every other one."""
    fitted.vocabulary.save(folder)
    fitted.catalogue.save(folder)
    if fitted.counts is not None:
        fitted.counts.save(folder)
    kept = {name: part for name, part in fitted.weights._asdict().items() if part is not None}
    for name, weights in kept.items():
        arrays = {key: np.asarray(array, order="C") for key, array in weights.items()}
        save_file(arrays, folder / f"{name}.safetensors")
    lines = "".join(json.dumps(figures) + "\n" for figures in fitted.history)
    (folder / "history.jsonl").write_text(lines, encoding="utf-8")
    described = {
        "format": FORMAT,
        "config": fitted.config.to_dict(),
        "constraints": fitted.constraints.to_dict(),
        "sizes": asdict(fitted.sizes),
        "card_size": fitted.card_size,
        "calibration": asdict(fitted.calibration),
        "split": None if fitted.split is None else fitted.split._asdict(),
        "models": sorted(kept),
        "sha256": {file.name: sha256(file) for file in sorted(folder.iterdir())},
    }
    (folder / "config.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> TrainedModel:
    """Read what `save` wrote, now or by an older exactk; anything missing or damaged is refused by name."""
    described = checked_description(path)
    config = Config.from_dict(described["config"])
    weights = {}
    for name in described["models"]:
        try:
            weights[name] = load_file(path / f"{name}.safetensors")
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path / name}.safetensors cannot be read: {error}") from error
    sizes, card_size = InputSizes.from_dict(described["sizes"]), described["card_size"]
    for name, shapes in shapes_of(config, sizes, card_size).items():
        held = {key: array.shape for key, array in weights.get(name, {}).items()}
        if held != shapes and (held or name == "policy" or config.model != "policy"):
            odd = min(key for key, _ in held.items() ^ shapes.items())
            raise DataError(
                f"{path / name}.safetensors does not fit this model: {odd} is {held.get(odd, 'missing')}, "
                f"its settings ask for {shapes.get(odd, 'none')}"
            )
    history = (path / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return TrainedModel(
        config=config,
        constraints=Constraints.from_dict(described["constraints"]),
        vocabulary=Vocabulary.load(path),
        catalogue=Catalogue.load(path),
        sizes=sizes,
        card_size=card_size,
        weights=ModelWeights(**weights),
        calibration=Calibration(**described["calibration"]),
        history=tuple(json.loads(line) for line in history),
        split=SplitRecord.from_dict(described.get("split"), path / "config.json"),
        counts=RollingCounts.load(path) if COUNTS in described["sha256"] else None,
    )
