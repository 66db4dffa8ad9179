"""From the logit of a card's value to a click probability one can trust (Platt).

Knows no model; `learning.calibrate` fits it on validation data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Calibration:
    """p = sigmoid(scale x logit + shift); it never changes which card is best."""

    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, logits: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The trustworthy probability."""
        return np.asarray(0.5 + 0.5 * np.tanh((self.scale * logits + self.shift) / 2))

    def one(self, logit: float) -> float:
        """The same of a single number, sooner."""
        return 0.5 + 0.5 * math.tanh((self.scale * logit + self.shift) / 2)
