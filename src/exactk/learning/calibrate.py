"""How far what was learned can be trusted: AUC, log loss, calibration error, Platt scaling; whether anything was.

Knows no model: logits and clicks come in, or the figures that a training reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from exactk.engine.decide import Calibration
from exactk.learning.progress import Figures

LEAST_SCALE = 1e-3  # a value that foretells nothing is flattened, never turned upside down
RIDGE = 1e-5  # a whisper of it keeps separable data finite
PAIR_SPREAD = 0.5  # how far from 1 the share of pairs is thought to be before any card is seen


def fitted_calibration(logits: Float[Tensor, "B"], clicked: Bool[Tensor, "B"]) -> Calibration:
    """The scale and shift with the least log loss."""
    if not _tells(clicked):
        return Calibration()
    scale, shift = _fitted(torch.stack([logits, torch.ones_like(logits)], 1), clicked, [RIDGE, RIDGE])
    return Calibration(max(scale, LEAST_SCALE), shift)


def fitted_pair_share(
    rest: Float[Tensor, "B"], pairs: Float[Tensor, "B"], clicked: Bool[Tensor, "B"]
) -> float:
    """The share of the pairs, from 0 to 1, with which logits rest + share x pairs have the least log loss.

    What was learned of pairs is partly noise, and the best card is the one whose noise is most flattering. As logits
    are scaled and shifted anyway: a (rest + pairs) + d pairs + c, and the share is 1 + d / a.
    """
    if not _tells(clicked):
        return 1.0
    doubt = 1 / (2 * PAIR_SPREAD**2 * len(clicked))
    columns = torch.stack([rest + pairs, pairs, torch.ones_like(rest)], 1)
    scale, less, _ = _fitted(columns, clicked, [RIDGE, doubt, RIDGE])
    return min(max(1 + less / scale, 0.0), 1.0) if scale > LEAST_SCALE else 1.0


def _tells(clicked: Bool[Tensor, "B"]) -> bool:
    return bool(clicked.any()) and not bool(clicked.all())


def _fitted(columns: Float[Tensor, "B P"], clicked: Bool[Tensor, "B"], ridge: list[float]) -> list[float]:
    """Weights of the columns with the least log loss, each held by its ridge: the first to 1, the others to 0."""
    x, y = columns.double().cpu(), clicked.double().cpu()
    start = torch.zeros(len(ridge), dtype=torch.float64)
    start[0] = 1.0
    weights = start.clone().requires_grad_()
    held = torch.tensor(ridge, dtype=torch.float64)
    optimiser = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        with torch.enable_grad():
            fit = functional.binary_cross_entropy_with_logits(x @ weights, y)
            total = fit + (held * (weights - start).square()).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    found: list[float] = weights.tolist()
    return found


def auc(scores: Float[Tensor, "B"], clicked: Bool[Tensor, "B"]) -> float:
    """The chance that a clicked card scores above one that was not; a tie counts one half; NaN without both kinds."""
    num_clicked, num_not = int(clicked.sum()), int((~clicked).sum())
    if num_clicked == 0 or num_not == 0:
        return float("nan")
    values, group = torch.unique(scores, return_inverse=True)  # ascending
    count = torch.bincount(group, minlength=len(values)).double()
    middle = count.cumsum(0) - count / 2 + 0.5  # mean rank of a group of ties, from 1
    rank_sum = float(middle[group[clicked]].sum())
    return (rank_sum - num_clicked * (num_clicked + 1) / 2) / (num_clicked * num_not)


def log_loss(probability: Float[Tensor, "B"], clicked: Bool[Tensor, "B"]) -> float:
    """Mean log loss in nats."""
    return float(
        functional.binary_cross_entropy(probability.double().clamp(1e-7, 1 - 1e-7), clicked.double())
    )


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
    probability = torch.from_numpy((calibration or Calibration())(logits.double().cpu().numpy()))
    logits, clicked = logits.cpu(), clicked.cpu()
    return {
        "auc": auc(logits, clicked),
        "log_loss": log_loss(probability, clicked),
        "calibration_error": calibration_error(probability, clicked),
    }


SAME = 1e-6  # share of the loss by which it must move at all
SURE = 2.0  # standard errors


def training_faults(history: Sequence[Figures], num_valid: int, share_clicked: float) -> list[str]:
    """Why what was trained knows nothing, the surest last; empty where all is well.

    `num_valid` cards judged the value in validation, `share_clicked` of them clicked; 0 where lists did.
    """
    judged = [figures["auc"] for figures in history if figures["event"] == "calibrated"]
    faults = [
        f"on validation, the model tells clicked cards from others no better than by chance (AUC {auc:.3f} "
        f"on {num_valid:,} cards)"
        for auc in judged
        if not _better_than_chance(auc, num_valid, share_clicked)
    ]
    for task in dict.fromkeys(figures["task"] for figures in history):
        losses = [f["loss"] for f in history if f["task"] == task and f["event"] == "train"]
        if losses and _never_moved(losses):
            faults.append(
                f"the loss of the {task} was {losses[0]:.4f} from the first step to the last: the log does not "
                "hold what it is trained on (clicks that differ, a clicked item where training.target=clicked)"
            )
    return faults


def _never_moved(losses: Sequence[float]) -> bool:
    """Reports that are all alike; a single one is so only at zero, where there was nothing to learn from."""
    largest = max(abs(loss) for loss in losses)
    if len(losses) == 1:
        return largest <= SAME
    return max(losses) - min(losses) <= SAME * max(1.0, largest)


def _better_than_chance(auc: float, count: int, share_clicked: float) -> bool:
    """By the spread that AUC has where scores mean nothing: sqrt((n + 1) / (12 * clicked * others))."""
    clicked = round(count * share_clicked)
    others = count - clicked
    if math.isnan(auc) or not clicked or not others:
        return True  # validation cannot say
    return auc > 0.5 + SURE * math.sqrt((count + 1) / (12 * clicked * others))
