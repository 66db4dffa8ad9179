"""Phase 2 on a machine that has a GPU, torch and nothing else: pack here, train there, unpack here.

    python -m exactk_lab.bare pack DATA MODEL requests.npz   # MODEL: a trained pair value
    python -m exactk_lab.bare train requests.npz policy.npz  # needs torch, numpy and jaxtyping alone
    python -m exactk_lab.bare unpack MODEL policy.npz OUT    # OUT: a model folder like any other

Knows where the pieces of training go, not what they do: the step is `learning.rlfd`'s, the loop `learning.fit`'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from exactk.errors import ConfigError, InputError
from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import fit_settings
from exactk.learning.progress import Figures, Listener
from exactk.learning.rlfd import estimated_rewards, policy_step
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.settings.config import Config, InputSizes
from exactk.settings.presets import preset
from exactk.tensors import TensorBatch, arrays_of

VALID_REQUESTS = 4000
AT_ONCE = 2048


def policy_config(value: Config, overrides: list[str]) -> Config:
    """The preset `large`, its reward the pair value that is already trained, with settings changed by name."""
    return replace(preset("large"), pair_value=value.pair_value).with_overrides(overrides)


def pack(data: Path, model: Path, out: Path, overrides: list[str]) -> None:
    """Requests, the best card of each under the model's pair value, and the model itself, as plain arrays."""
    from exactk.data.dataset import Dataset
    from exactk.learning.phases import Models
    from exactk.recommender import Recommender

    fitted = Recommender.load(model).fitted
    value = Models.of(fitted).value
    if not isinstance(value, PairValue):
        raise InputError(f"{model} holds no pair value: train it with --set model=pair_value")
    train, valid, _ = (view.solvable(fitted.vocabulary) for view in Dataset.open(data).split())
    arrays: dict[str, np.ndarray] = {}
    sizes = fitted.sizes
    tables = {
        "user": torch.zeros(sizes.num_users, sizes.user_feature_size),
        "item": torch.zeros(sizes.num_items, sizes.item_feature_size),
    }
    for name, view in (("train", train), ("valid", valid.take(slice(0, VALID_REQUESTS)))):
        parts: dict[str, list[np.ndarray]] = {}
        for batch in map(TensorBatch.of, view.batches(fitted.vocabulary, AT_ONCE)):
            for key, array in packed(value, batch, tables).items():
                parts.setdefault(key, []).append(array)
        arrays |= {f"{name}.{key}": np.concatenate(found) for key, found in parts.items()}
    facts = {
        "config": policy_config(fitted.config, overrides).to_dict(),
        "sizes": asdict(sizes),
        "card_size": fitted.card_size,
    }
    arrays |= {f"features.{name}": table.numpy() for name, table in tables.items()}
    arrays |= {f"value.{name}": tensor.numpy() for name, tensor in value.state_dict().items()}
    np.savez_compressed(out, facts=np.array(json.dumps(facts)), **arrays)  # type: ignore[arg-type]


def packed(value: PairValue, batch: TensorBatch, tables: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """One batch as small arrays; features go to tables, one row for each user and item."""
    from exactk.learning.tasks import shown_the_best

    if not batch.present.all() or batch.cap.shape[1] or batch.pinned.any():
        raise InputError("only requests of one size without caps and pins can be packed")
    if batch.user_features is not None:
        tables["user"][batch.user] = batch.user_features
    if batch.item_features is not None:
        tables["item"][batch.item] = batch.item_features
    above = np.triu_indices(batch.item.shape[1], 1)
    card = shown_the_best(value, batch).card
    assert card is not None
    return {
        "user": batch.user.numpy().astype(np.int32),
        "item": batch.item.numpy().astype(np.int32),
        "graph": np.packbits(batch.graph.numpy()[:, above[0], above[1]], axis=1),
        "card": card.numpy().astype(np.int16),
    }


class Packed:
    """Requests on the device, made into batches when asked for."""

    def __init__(self, file: Any, name: str, card_size: int, device: torch.device) -> None:
        held = {key: torch.from_numpy(file[f"{name}.{key}"]) for key in ("user", "item", "graph", "card")}
        self.user, self.item, self.graph, self.card = (tensor.to(device) for tensor in held.values())
        self.tables = {
            side: torch.from_numpy(file[f"features.{side}"]).to(device) for side in ("user", "item")
        }
        self.card_size = card_size

    def __len__(self) -> int:
        return len(self.user)

    def batch(self, rows: Tensor) -> TensorBatch:
        """These requests, each with the card demonstrated to it."""
        user, item = self.user[rows].long(), self.item[rows].long()
        B, N = item.shape
        nothing = torch.zeros(B, 0, N, dtype=torch.long, device=user.device)
        return TensorBatch(
            user=user,
            item=item,
            present=torch.ones(B, N, dtype=torch.bool, device=user.device),
            graph=unpacked(self.graph[rows], N),
            card_size=torch.full((B,), self.card_size, device=user.device),
            pinned=torch.zeros(B, N, dtype=torch.bool, device=user.device),
            group=nothing,
            cap=nothing[:, :, 0],
            user_features=self.tables["user"][user] if self.tables["user"].shape[1] else None,
            item_features=self.tables["item"][item] if self.tables["item"].shape[1] else None,
            card=self.card[rows].long(),
            clicked=torch.ones(B, dtype=torch.bool, device=user.device),
        )


def unpacked(bits: Tensor, num_candidates: int) -> Tensor:
    """The symmetric graphs of packed upper triangles: numpy packs the first pair into the highest bit."""
    shifts = torch.arange(7, -1, -1, device=bits.device)
    pairs = ((bits.unsqueeze(-1) >> shifts) & 1).bool().flatten(1)
    above = torch.triu_indices(num_candidates, num_candidates, 1, device=bits.device)
    graph = torch.zeros(len(bits), num_candidates, num_candidates, dtype=torch.bool, device=bits.device)
    graph[:, above[0], above[1]] = pairs[:, : above.shape[1]]
    return graph | graph.transpose(1, 2)


def train(packed_file: Path, out: Path, overrides: list[str]) -> None:
    """RLfD under the packed value, on the GPU where there is one; the weights that validate best are kept."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")  # TF32 on a GPU; the packed cards were found in full precision
    with np.load(packed_file) as file:
        facts = json.loads(str(file["facts"]))
        config = Config.from_dict(facts["config"]).with_overrides(overrides)
        sizes = InputSizes.from_dict(facts["sizes"])
        value = PairValue(config.pair_value, sizes)
        prefix = "value."
        weights = {n[len(prefix) :]: torch.from_numpy(file[n]) for n in file.files if n.startswith(prefix)}
        value.load_state_dict(weights)
        value.to(device).eval()
        parts = [Packed(file, name, facts["card_size"], device) for name in ("train", "valid")]
    policy = Policy(config.policy, sizes, Generator().manual_seed(config.training.seed + 1), value).to(device)
    if policy.guide is not None:
        policy.guide.freeze()
    task = phase_2(policy, value, config, parts[0], parts[1])
    settings = fit_settings(config.training, config.training, device.type)
    history = fit(task, settings, None, False, [_Printed()])
    best = {name: tensor.cpu().numpy() for name, tensor in policy.state_dict().items()}
    note = json.dumps({"config": config.to_dict(), "history": history})
    np.savez_compressed(out, note=np.array(note), **best)


def phase_2(policy: Policy, value: PairValue, config: Config, shown: Packed, held_out: Packed) -> Task:
    """The same lesson as on one machine, its batches from packed arrays."""
    training, size = config.training, config.training.batch_size
    num_batches = len(shown) // size
    if not num_batches:
        raise ConfigError(f"training.batch_size={size} is more than the {len(shown)} packed requests")

    def batches(epoch: int, start: int) -> Iterator[TensorBatch]:
        generator = Generator().manual_seed(training.seed * 1_000_003 + epoch)
        order = torch.randperm(len(shown), generator=generator).to(shown.user.device)
        for number in range(start, num_batches):
            yield shown.batch(order[number * size : (number + 1) * size])

    def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
        return policy_step(policy, value, training, batch, progress, generator)

    def validate() -> dict[str, float]:
        rewards: dict[str, list[Tensor]] = {"reward": [], "best_reward": []}
        for start in range(0, len(held_out), AT_ONCE):
            batch = held_out.batch(torch.arange(start, min(start + AT_ONCE, len(held_out))))
            assert batch.card is not None
            written = policy.cards(batch)
            for name, cards in (("reward", written), ("best_reward", batch.card)):
                rewards[name].append(estimated_rewards(value, batch, cards.unsqueeze(1)).squeeze(1))
        return {name: float(torch.cat(found).mean()) for name, found in rewards.items()}

    return Task("policy", policy, batches, num_batches, loss, validate, "reward", higher_is_better=True)


class _Printed(Listener):
    """Figures on stdout as JSON, validations only."""

    def hear(self, figures: Figures) -> None:
        """One line."""
        if figures.get("event") == "valid":
            sys.stdout.write(json.dumps(figures) + "\n")
            sys.stdout.flush()


def unpack(model: Path, trained: Path, out: Path) -> None:
    """A model folder of the policy that was trained elsewhere, with the vocabulary and value of `model`."""
    from exactk import model_folder
    from exactk.learning.phases import Models

    fitted = model_folder.load(model)
    with np.load(trained) as file:
        note = json.loads(str(file["note"]))
        config = Config.from_dict(note["config"])
        value = Models.of(fitted).value
        policy = Policy(config.policy, fitted.sizes, value=value if isinstance(value, PairValue) else None)
        policy.load_state_dict({n: torch.from_numpy(file[n]) for n in file.files if n != "note"})
    weights = fitted.weights._replace(policy=arrays_of(policy))
    history = (*fitted.history, *note["history"])
    model_folder.save(replace(fitted, config=config, weights=weights, history=history), out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m exactk_lab.bare", description=__doc__.split("\n")[0])
    parser.add_argument("--set", action="append", default=[], help="one setting, as training.epochs=30")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, names in {
        "pack": ("data", "model", "out"),
        "train": ("packed_file", "out"),
        "unpack": ("model", "trained", "out"),
    }.items():
        command = verbs.add_parser(verb)
        for name in names:
            command.add_argument(name, type=Path)
    given = vars(parser.parse_args())
    verb, overrides = given.pop("verb"), given.pop("set")
    if verb == "pack":
        pack(**given, overrides=overrides)
    elif verb == "train":
        train(**given, overrides=overrides)
    else:
        unpack(**given)
