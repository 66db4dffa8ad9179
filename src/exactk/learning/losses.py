"""The losses of the paper and their relatives, as functions of tensors; one value per request.

Knows no network and no data: log-probabilities, targets and rewards come in, losses go out. Beside log-probabilities
comes what was `allowed`: a term that would need a forbidden position contributes nothing, neither value nor gradient.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from exactk.search.decoding import picked

NOTHING = -1  # a target, or a position of a card, that is not there
FAR = -1e9  # the score of what is not there: no share of a softmax


def target_loss(
    log_probs: Float[Tensor, "B K N"], allowed: Bool[Tensor, "B K N"], targets: Int[Tensor, "B K"]
) -> Float[Tensor, "B"]:
    """Minus the log-likelihood of one target per step, summed over steps (eq. 15 and, on own paths, eq. 16).

    A target that is absent or forbidden at its step (already chosen, say: policy sampling does that) is left out.
    Kept in, it would cost a constant that teaches nothing but to push all scores down.
    """
    at = targets.clamp(min=0).unsqueeze(2)  # B K 1
    possible = allowed.gather(2, at).squeeze(2) & (targets != NOTHING)
    found = picked(log_probs, targets.clamp(min=0))  # B K
    return -torch.where(possible, found, 0.0).sum(dim=1)


def spread_loss(
    log_probs: Float[Tensor, "B K N"], allowed: Bool[Tensor, "B K N"], targets: Int[Tensor, "B K"]
) -> Float[Tensor, "B"]:
    """Cross entropy against the uniform distribution over all allowed positions, of the steps that have a target.

    What label smoothing mixes into `target_loss`: it keeps a policy from pushing any candidate down without end.
    """
    at = targets.clamp(min=0).unsqueeze(2)
    possible = allowed.gather(2, at) & (targets != NOTHING).unsqueeze(2)  # B K 1
    return uniform_loss(log_probs, allowed, possible.expand_as(allowed))


def set_loss(
    log_probs: Float[Tensor, "B K N"], allowed: Bool[Tensor, "B K N"], wanted: Bool[Tensor, "B K N"]
) -> Float[Tensor, "B"]:
    """Minus the log of the probability that the step takes *any* wanted position: a card is a set, not a list.

    Two wanted positions with probabilities 0.3 and 0.2 cost -log 0.5, whichever of them the log happens to name first.
    """
    possible = wanted & allowed  # B K N
    some = possible.any(dim=2)
    # A step with nothing possible takes all positions at log-probability 0, so that its gradient is finite, then 0.
    held = torch.where(possible, log_probs, torch.where(some[..., None], -torch.inf, 0.0))
    return -held.logsumexp(dim=2).masked_fill(~some, 0.0).sum(dim=1)


def uniform_loss(
    log_probs: Float[Tensor, "B K N"], allowed: Bool[Tensor, "B K N"], wanted: Bool[Tensor, "B K N"]
) -> Float[Tensor, "B"]:
    """Cross entropy against the uniform distribution over the wanted positions of each step, summed over steps."""
    possible = wanted & allowed  # B K N
    share = possible / possible.sum(dim=2, keepdim=True).clamp(min=1)
    return -(share * log_probs.masked_fill(~possible, 0.0)).sum(dim=(1, 2))


def remaining(
    path: Int[Tensor, "B K"], demonstration: Int[Tensor, "B L"], num_candidates: int
) -> Bool[Tensor, "B K N"]:
    """For each step of a path, the demonstrated positions that the path has not taken before that step."""
    wanted = _members(demonstration, num_candidates).any(dim=1)  # B N
    taken = _members(path, num_candidates)  # B K N
    before = taken.cumsum(dim=1) - taken.long() > 0
    return wanted[:, None] & ~before


def clicked_targets(path: Int[Tensor, "B K"], clicked_position: Int[Tensor, "B"]) -> Int[Tensor, "B K"]:
    """The clicked position as the target of every step until the path takes it, nothing afterwards.

    Path (7, 2, 5, 1) with position 5 clicked: targets (5, 5, 5, -1).
    """
    taken = path == clicked_position[:, None]  # B K
    before = taken.cumsum(dim=1) - taken.long() > 0
    return torch.where(before | (path == NOTHING), NOTHING, clicked_position[:, None])


def reinforce_loss(log_prob: Float[Tensor, "B S"], advantage: Float[Tensor, "B S"]) -> Float[Tensor, "B"]:
    """Mean over samples of -advantage x log P(card), whose gradient is minus that of the expected reward (eq. 19)."""
    return -(advantage.detach() * log_prob).mean(dim=1)


def reward_loss(logits: Float[Tensor, "B"], clicked: Bool[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Log loss of a predicted click (eq. 17)."""
    return functional.binary_cross_entropy_with_logits(logits, clicked.to(logits.dtype), reduction="none")


def list_loss(
    node: Float[Tensor, "B N"], present: Bool[Tensor, "B N"], weights: Float[Tensor, "B N"]
) -> Float[Tensor, "B"]:
    """Cross entropy of the softmax over a whole shown list against each item's share of the weights; 0 without any.

    Scores log 1, log 2, log 5 and one click on the second: -log(2/8).
    """
    log_share = node.masked_fill(~present, FAR).log_softmax(-1)
    total = weights.sum(-1, keepdim=True)
    return -(weights / total.clamp(min=1e-9) * log_share).sum(-1)


def mean_over(values: Float[Tensor, "B"], counted: Bool[Tensor, "B"]) -> Float[Tensor, ""]:
    """Mean over the rows that count; zero, with a zero gradient, where none does."""
    return values.masked_fill(~counted, 0.0).sum() / counted.sum().clamp(min=1)


def _members(positions: Int[Tensor, "B K"], num_candidates: int) -> Bool[Tensor, "B K N"]:
    every = torch.arange(num_candidates, device=positions.device)
    return positions[..., None] == every
