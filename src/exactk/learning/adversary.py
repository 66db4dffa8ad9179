"""Adversarial RLfD, the paper's future work: the reward learns to tell logged clicked cards from the policy's own.

The policy is the generator and learns by REINFORCE what the discriminator takes for a click; both in one step. What
answers with the model keeps the reward of phase 1: the discriminator is a copy that is thrown away.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from exactk.learning.losses import mean_over
from exactk.models.ensemble import Ensemble
from exactk.models.policy import Policy
from exactk.tensors import TensorBatch


class Adversaries(nn.Module):
    """A policy and its discriminator, learned together; the discriminator begins as the reward of phase 1.

    It never drops anything out: while it learns it is the judge, too.
    """

    def __init__(self, policy: Policy, reward: Ensemble) -> None:
        super().__init__()
        self.policy = policy
        self.discriminator = deepcopy(reward)

    def train(self, mode: bool = True) -> Adversaries:
        """Only the policy is ever in training mode."""
        super().train(mode)
        self.discriminator.eval()
        return self


def discriminator_loss(
    logged: Float[Tensor, "M B"], own: Float[Tensor, "M B S"], clicked: Bool[Tensor, "B"]
) -> Float[Tensor, ""]:
    """-log D(logged clicked card) - mean over samples of log(1 - D(own card)), D = sigmoid; summed over members.

    Logits 0 and (0, log 3): log 2 + (log 2 + log 4) / 2 = 2.5 log 2. A request without a click teaches nothing.
    """
    real = functional.softplus(-logged)
    fake = functional.softplus(own).mean(2)
    return mean_over((real + fake).sum(0), clicked)


def told_apart(
    discriminator: Ensemble,
    batch: TensorBatch,
    own: Int[Tensor, "B S K"],
) -> Float[Tensor, ""]:
    """What the discriminator pays for one batch: the demonstration of each request against the policy's samples."""
    assert batch.card is not None
    clicked = torch.ones_like(batch.user, dtype=torch.bool) if batch.clicked is None else batch.clicked
    K = own.shape[2]
    card = functional.pad(batch.card, (0, K - batch.card.shape[1]), value=-1)
    logits = discriminator.member_logits(batch, torch.cat([card.unsqueeze(1), own], 1)).float()
    return discriminator_loss(logits[:, :, 0], logits[:, :, 1:], clicked)
