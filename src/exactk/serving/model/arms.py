"""Arm: one model that serves, the folder it came from, and how a better one takes its place without anyone waiting.

Knows the Recommender's parts, no route. What is loaded is one frozen value: a batch sees one model from start to end.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exactk.data.requests import request_batch
from exactk.engine.decide import decider_of
from exactk.errors import ExactKError
from exactk.model_folder import TrainedModel
from exactk.recommender import Recommender
from exactk.serving.model.decoding import RUNGS, Decoder
from exactk.serving.model.express import Express
from exactk.serving.model.quick import QuickBatches
from exactk.serving.model.trials import stranger_request, trial_requests

log = logging.getLogger("exactk.serving")

Signature = tuple[int, int, int]


@dataclass(frozen=True)
class Loaded:
    """A model ready to serve; `version` is the hash of its config.json, which names the hash of every other file."""

    recommender: Recommender
    decoder: Decoder
    quick: QuickBatches | None
    express: Express | None
    version: str
    since: float


class Arm:
    """A name in the split, a folder that is watched, and the model loaded from it last."""

    def __init__(
        self, name: str, folder: Path, explore: float, on_reload: Callable[[str, str], None]
    ) -> None:
        self.name, self.folder, self._explore, self._on_reload = name, folder, explore, on_reload
        self._seen: Signature | None = _signature(folder)
        self.loaded = load(folder, explore)

    def refresh(self) -> bool:
        """Load the folder again if it changed; True where a new model took over. A broken one changes nothing.

        Called from a thread; swapping is one assignment.
        """
        now = _signature(self.folder)
        if now is None or now == self._seen:
            return False  # deleted, being replaced, or the same as before
        self._seen = now
        try:
            fresh = load(self.folder, self._explore)
        except (ExactKError, OSError, ValueError, KeyError, TypeError) as error:
            log.error("arm %s keeps version %s: %s", self.name, self.loaded.version, error)
            self._on_reload(self.name, "refused")
            return False
        if fresh.version == self.loaded.version:
            return False
        log.info("arm %s: version %s takes over from %s", self.name, fresh.version, self.loaded.version)
        self.loaded = fresh
        self._on_reload(self.name, "swapped")
        return True

    def state(self) -> dict[str, Any]:
        """What /v1/model says of this arm."""
        loaded = self.loaded
        fitted = loaded.recommender.fitted
        return {
            "arm": self.name,
            "version": loaded.version,
            "kind": fitted.config.model,
            "card_size": fitted.card_size,
            "constraints": fitted.constraints.to_dict()["rule"],
            "items": fitted.sizes.num_items - 1,
            "users": fitted.sizes.num_users - 1,
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(loaded.since)),
        }


def load(folder: Path, explore: float) -> Loaded:
    """Read a model folder and try it once by every rung: what cannot answer must not serve."""
    described = (folder / "config.json").read_bytes() if (folder / "config.json").is_file() else b""
    recommender = Recommender.load(folder)
    fitted = recommender.fitted
    quick = QuickBatches.of(fitted)
    decider = decider_of(fitted.config, fitted.weights, fitted.sizes, fitted.card_size, threads=1)
    decoder = _tried_out(fitted, Decoder(decider, explore))
    express = None if explore > 0 else Express.of(fitted, decider, quick)
    version = hashlib.sha256(described).hexdigest()[:12]
    return Loaded(recommender, decoder, quick, express, version, time.time())


def _tried_out(fitted: TrainedModel, decoder: Decoder) -> Decoder:
    """By every rung, with items the model knows and some it does not; without rules, so that there is a card."""
    for requests in ([stranger_request(fitted)], trial_requests(fitted) or [stranger_request(fitted)]):
        batch = request_batch(requests, fitted.vocabulary, None, fitted.catalogue)
        for rung in RUNGS:
            decoder.decode(batch, rung, np.random.default_rng(0), 1.0)
    return decoder


def _signature(folder: Path) -> Signature | None:
    """Changes whenever config.json does, which is written last; None where there is none."""
    try:
        written = (folder / "config.json").stat()
    except OSError:
        return None
    return written.st_mtime_ns, written.st_ino, written.st_size
