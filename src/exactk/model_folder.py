"""A trained recommender on disk: safetensors, Parquet and JSON, with a format number and checksums; never pickle.

Knows how to keep and find again, not how to train or recommend. Old formats load for ever.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from exactk.atomic import atomic_folder
from exactk.data.catalogue import Catalogue
from exactk.data.dataset import SplitRecord
from exactk.data.vocabulary import Vocabulary
from exactk.engine.calibration import Calibration
from exactk.errors import DataError
from exactk.learning.phases import Models
from exactk.learning.progress import Figures
from exactk.model_files import FORMAT, checked_description, sha256
from exactk.problem.rules.constraints import Constraints
from exactk.settings.config import Config, InputSizes


@dataclass(frozen=True)
class Fitted:
    """Everything a recommender needs after training, and what it was told while training."""

    config: Config
    constraints: Constraints
    vocabulary: Vocabulary
    catalogue: Catalogue
    sizes: InputSizes
    card_size: int
    models: Models
    calibration: Calibration
    history: tuple[Figures, ...]
    split: SplitRecord | None = None  # of the log it was trained on, so that judging it uses the same


def save(fitted: Fitted, path: Path) -> None:
    """Write the whole folder beside its place and swap it in; config.json, written last, names every other file."""
    with atomic_folder(path) as folder:
        fitted.vocabulary.save(folder)
        fitted.catalogue.save(folder)
        for name, module in _modules(fitted.models).items():
            weights = {key: t.detach().cpu().contiguous().clone() for key, t in module.state_dict().items()}
            save_file(weights, folder / f"{name}.safetensors")
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
            "models": sorted(_modules(fitted.models)),
            "sha256": {file.name: sha256(file) for file in sorted(folder.iterdir())},
        }
        (folder / "config.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def load(path: Path, device: torch.device) -> Fitted:
    """Read what `save` wrote, now or by an older exactk; anything missing or damaged is refused by name."""
    described = checked_description(path)
    config = Config.from_dict(described["config"])
    sizes = InputSizes.from_dict(described["sizes"])
    models = Models.untrained(config, sizes, described["card_size"], "value" in described["models"]).to(
        device
    )
    for name, module in _modules(models).items():
        try:
            module.load_state_dict(load_file(path / f"{name}.safetensors"))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise DataError(f"{path / name}.safetensors does not fit this model: {error}") from error
        module.eval()
    history = (path / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return Fitted(
        config=config,
        constraints=Constraints.from_dict(described["constraints"]),
        vocabulary=Vocabulary.load(path),
        catalogue=Catalogue.load(path),
        sizes=sizes,
        card_size=described["card_size"],
        models=models,
        calibration=Calibration(**described["calibration"]),
        history=tuple(json.loads(line) for line in history),
        split=None if described.get("split") is None else SplitRecord(**described["split"]),
    )


def _modules(models: Models) -> dict[str, nn.Module]:
    return {name: m for name, m in (("policy", models.policy), ("value", models.value)) if m is not None}
