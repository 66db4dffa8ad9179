"""Whether a training taught anything, by what it reported: what a careful caller would want to know at its end.

Knows figures only, no model and no log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from exactk.learning.progress import Figures

SAME = 1e-6  # share of the loss by which it must move at all
SURE = 2.0  # standard errors


def training_faults(history: Sequence[Figures], num_valid: int, share_clicked: float) -> list[str]:
    """Why what was trained knows nothing, the surest last; empty where all is well.

    `num_valid` cards judged the value in validation, `share_clicked` of them clicked; 0 where lists did.
    """
    judged = [figures["auc"] for figures in history if figures["event"] == "calibrated"]
    faults = [
        f"on validation, cards that were clicked are told from others no better than by chance (AUC {auc:.3f} "
        f"on {num_valid:,} cards)"
        for auc in judged
        if not _better_than_chance(auc, num_valid, share_clicked)
    ]
    for task in dict.fromkeys(figures["task"] for figures in history):
        told = [f["loss"] for f in history if f["task"] == task and f["event"] == "train"]
        if told and _never_moved(told):
            faults.append(
                f"the loss of the {task} stood at {told[0]:.4f} from the first step to the last: the log does not "
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
