"""The ranking losses of the rivals: pointwise, pairwise (BPR), listwise (softmax).

Know scores and clicks only.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional


def shown_items(card: Int[Tensor, "B K"], num_candidates: int) -> Bool[Tensor, "B N"]:
    """True at the positions of each card."""
    marks = torch.zeros(len(card), num_candidates + 1, dtype=torch.bool, device=card.device)
    return marks.scatter_(1, card.remainder(num_candidates + 1), True)[:, :num_candidates]


def pointwise_loss(
    scores: Float[Tensor, "B N"], counted: Bool[Tensor, "B N"], clicked_position: Int[Tensor, "B"]
) -> Float[Tensor, ""]:
    """Log loss of a click on each counted item, over all counted items."""
    label = torch.zeros_like(scores)
    rows = (clicked_position >= 0).nonzero().squeeze(1)
    label[rows, clicked_position[rows]] = 1.0
    each = functional.binary_cross_entropy_with_logits(scores, label, reduction="none")
    return (each * counted).sum() / counted.sum().clamp(min=1)


def bpr_loss(
    scores: Float[Tensor, "B N"], others: Bool[Tensor, "B N"], clicked_position: Int[Tensor, "B"]
) -> Float[Tensor, ""]:
    """Rendle et al. 2009: -log sigmoid(s_clicked - s_other), mean over the others, then over rows."""
    clicked = clicked_position >= 0
    positive = scores.gather(1, clicked_position.clamp(min=0).unsqueeze(1))
    own = torch.arange(scores.shape[1], device=scores.device) == clicked_position.unsqueeze(1)
    pairs = others & ~own & clicked.unsqueeze(1)
    each = functional.softplus(scores - positive) * pairs
    row = each.sum(1) / pairs.sum(1).clamp(min=1)
    return row.sum() / pairs.any(1).sum().clamp(min=1)


def softmax_loss(
    scores: Float[Tensor, "B N"], among: Bool[Tensor, "B N"], clicked_position: Int[Tensor, "B"]
) -> Float[Tensor, ""]:
    """Cross entropy of the clicked item in a softmax over `among`: the listwise loss for one click."""
    clicked = clicked_position >= 0
    among = among | ~clicked.unsqueeze(1)  # a row without click counts nothing; keep its softmax finite
    log_share = scores.masked_fill(~among, torch.finfo(scores.dtype).min).log_softmax(1)
    each = -log_share.gather(1, clicked_position.clamp(min=0).unsqueeze(1)).squeeze(1)
    return each.masked_fill(~clicked, 0.0).sum() / clicked.sum().clamp(min=1)
