"""How far a predicted click probability can be trusted: AUC, log loss, calibration error, and Platt scaling.

Knows no model: logits and clicks come in.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

LEAST_SCALE = 1e-3  # a value that foretells nothing is flattened, never turned upside down


@dataclass(frozen=True)
class Calibration:
    """p = sigmoid(scale x logit + shift), fitted on validation data (Platt); it never changes which card is best."""

    scale: float = 1.0
    shift: float = 0.0

    def __call__(self, logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The trustworthy probability."""
        return torch.sigmoid(self.scale * logits + self.shift)

    @classmethod
    def fitted(cls, logits: Float[Tensor, "B"], clicked: Bool[Tensor, "B"], steps: int = 50) -> Calibration:
        """Newton's method on the log loss in two unknowns; a whisper of ridge keeps separable data finite."""
        if len(logits) == 0 or bool(clicked.all()) or not bool(clicked.any()):
            return cls()
        x = torch.stack([logits.double(), torch.ones_like(logits, dtype=torch.float64)], dim=1)  # B 2
        y = clicked.double()
        weights = torch.tensor([1.0, 0.0], dtype=torch.float64, device=x.device)
        start, ridge = weights.clone(), 1e-6 * len(x)
        for _ in range(steps):
            p = (x @ weights).sigmoid()
            gradient = x.T @ (p - y) + ridge * (weights - start)
            curvature = (x * (p * (1 - p))[:, None]).T @ x + ridge * torch.eye(
                2, dtype=x.dtype, device=x.device
            )
            move = torch.linalg.solve(curvature, gradient)
            weights = weights - move.clamp(-2.0, 2.0)
            if float(move.abs().max()) < 1e-10:
                break
        return cls(max(float(weights[0]), LEAST_SCALE), float(weights[1]))


def auc(scores: Float[Tensor, "B"], clicked: Bool[Tensor, "B"]) -> float:
    """The chance that a clicked card scores above one that was not; a tie counts one half; NaN without both kinds."""
    num_clicked, num_not = int(clicked.sum()), int((~clicked).sum())
    if num_clicked == 0 or num_not == 0:
        return float("nan")
    values, group = scores.unique(return_inverse=True)  # ascending
    count = torch.bincount(group, minlength=len(values)).double()
    middle = count.cumsum(0) - count / 2 + 0.5  # mean rank of a group of ties, from 1
    rank_sum = float(middle[group[clicked]].sum())
    return (rank_sum - num_clicked * (num_clicked + 1) / 2) / (num_clicked * num_not)


def log_loss(probability: Float[Tensor, "B"], clicked: Bool[Tensor, "B"]) -> float:
    """Mean log loss in nats."""
    return float(F.binary_cross_entropy(probability.double().clamp(1e-7, 1 - 1e-7), clicked.double()))


def calibration_error(
    probability: Float[Tensor, "B"], clicked: Bool[Tensor, "B"], num_bins: int = 15
) -> float:
    """Expected calibration error: mean |predicted - seen| over bins of equally many cards, ordered by prediction.

    Equal counts rather than equal widths: with one card in six clicked, most equal-width bins would stand empty.
    """
    order = probability.argsort()
    bins = [b for b in torch.arange(len(order)).tensor_split(num_bins) if len(b)]
    error = 0.0
    for b in bins:
        at = order[b.to(order.device)]
        error += len(b) * abs(float(probability[at].double().mean()) - float(clicked[at].double().mean()))
    return error / max(len(order), 1)


def reward_figures(
    logits: Float[Tensor, "B"], clicked: Bool[Tensor, "B"], calibration: Calibration | None = None
) -> dict[str, float]:
    """All three, by the names they are reported under."""
    probability = (calibration or Calibration())(logits.double())
    return {
        "auc": auc(logits, clicked),
        "log_loss": log_loss(probability, clicked),
        "calibration_error": calibration_error(probability, clicked),
    }
