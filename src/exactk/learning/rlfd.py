"""Reinforcement learning from demonstrations (section 4.2): what one batch teaches the policy.

Knows no loop and no files. Every row of the paper's ablation table, and every variant beyond it, is a `TrainingConfig`:
among them targets of a group, and the paper's future work: a reward that learns to tell clicked cards from its own.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional

from exactk.learning import losses
from exactk.learning.fit import Step
from exactk.models.pairvalue import Ensemble, PairValue
from exactk.models.policy import Policy
from exactk.search import Feasible, sample
from exactk.search.decoding import Distributions, Steps, log_prob_of, log_probabilities
from exactk.search.maximise import best_few
from exactk.settings.config import TrainingConfig
from exactk.tensors import TensorBatch, rows_of

Baseline = Literal["none", "leave_one_out"]


def rescaled(click_probability: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """R = 2 (p - 0.5), between -1 and 1 (eq. 20)."""
    return 2.0 * (click_probability - 0.5)


def best_of(rewards: Float[Tensor, "B S"], *held: Tensor) -> tuple[Tensor, ...]:
    """Hill climbing: of what is held for S samples of a request, [B, S, ...], that of the best one, [B, 1, ...]."""
    best = rewards.argmax(dim=1, keepdim=True)
    return tuple(rows_of(tensor, best) for tensor in held)


def advantages(rewards: Float[Tensor, "B S"], baseline: Baseline) -> Float[Tensor, "B S"]:
    """Rewards less what was to be expected anyway: the mean of the other samples.

    That leaves the expected gradient as it is, since it does not depend on the sample it is taken from.
    """
    if baseline == "none":
        return rewards
    if rewards.shape[1] < 2:
        raise ValueError("leaving one out needs at least two samples per request")
    others = (rewards.sum(dim=1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
    return rewards - others


class Paths(NamedTuple):
    """Cards to walk along with gradient: the first carries the supervised loss, those with an advantage REINFORCE,
    those with a target the loss of a group.
    """

    cards: Int[Tensor, "B P K"]
    allowed: Bool[Tensor, "B P K N"]
    advantage: Float[Tensor, "B A"] | None  # of the last A rows
    reward: Float[Tensor, "B S"] | None  # of all cards judged, for the report
    target: Float[Tensor, "B C"] | None = None  # of the last C rows
    drawn: Int[Tensor, "B S K"] | None = None  # the policy's own samples


def policy_step(
    policy: Policy,
    reward: Ensemble | None,
    config: TrainingConfig,
    batch: TensorBatch,
    progress: float,
    generator: Generator,
) -> Step:
    """L = alpha L_S + (1 - alpha) L_R (eq. 21) on one batch; the encoder runs once, the decoder once with gradient."""
    warm = progress * config.epochs < config.warm_start_epochs
    learns_from_reward = reward is not None and config.alpha < 1 and not warm
    if config.shuffle_card and batch.card is not None:
        batch = replace(batch, card=shuffled(batch.card, generator))
    feasible, steps = Feasible.of(batch), policy.steps(batch)
    if reward is not None and learns_from_reward:
        paths = explored_paths(steps, reward, config, batch, feasible, generator)
    else:
        paths = supervised_path(steps, config, batch, feasible, generator)
    scores = steps.replay(paths.cards)  # B P K N
    figures: dict[str, Tensor] = {}
    rows = batch.clicked if batch.clicked is not None else torch.ones_like(batch.user, dtype=torch.bool)
    loss = scores.new_zeros(())
    if config.alpha > 0 or not learns_from_reward:
        along = Distributions(log_probabilities(scores[:, :1], paths.allowed[:, :1]), paths.allowed[:, :1])
        supervised = losses.mean_over(demonstration_loss(along, paths.cards[:, 0], config, batch), rows)
        figures["supervised_loss"] = supervised.detach()
        loss = supervised * (config.alpha if learns_from_reward else 1.0)
    if paths.reward is not None:
        taught = losses.reinforce_loss if paths.target is None else group_loss
        by = paths.advantage if paths.target is None else paths.target
        assert by is not None
        last = slice(-by.shape[1], None)
        allowed = paths.allowed[:, last]
        tempered = log_probabilities(scores[:, last], allowed, config.temperature)
        log_prob = log_prob_of(paths.cards[:, last], Distributions(tempered, allowed))
        loss = loss + (1.0 - config.alpha) * taught(log_prob, by).mean()
        figures["reward"] = paths.reward.mean()
    if config.adversarial and reward is not None and paths.drawn is not None:
        paid = adversarial_loss(reward, batch, paths.drawn)
        loss, figures["discriminator_loss"] = loss + paid, paid.detach()
    return Step(loss, figures)


def demonstration_loss(
    along: Distributions, path: Int[Tensor, "B K"], config: TrainingConfig, batch: TensorBatch
) -> Float[Tensor, "B"]:
    """L_S along a path: the path is the demonstration itself (eq. 15) or the policy's own card (eq. 16)."""
    assert batch.card is not None
    log_probs, allowed = along.log_probs[:, 0], along.allowed[:, 0]  # B K N
    N = log_probs.shape[2]
    card = fitted(batch.card, path.shape[1])
    if config.target in ("clicked", "card"):
        targets = card
        if config.target == "clicked":
            assert batch.clicked_position is not None
            targets = losses.clicked_targets(path, batch.clicked_position)
        loss = losses.target_loss(log_probs, allowed, targets)
        if not config.smoothing:
            return loss
        spread = losses.spread_loss(log_probs, allowed, targets)
        return (1.0 - config.smoothing) * loss + config.smoothing * spread
    wanted = losses.remaining(path, card, N)
    return (losses.set_loss if config.target == "set" else losses.uniform_loss)(log_probs, allowed, wanted)


def supervised_path(
    steps: Steps[Any], config: TrainingConfig, batch: TensorBatch, feasible: Feasible, generator: Generator
) -> Paths:
    """The one path of pure supervision: the policy's own card under policy sampling, else the demonstration."""
    if config.policy_sampling:
        with torch.no_grad():
            drawn = sample(steps, feasible, 1, config.temperature, generator)
        return Paths(drawn.cards, drawn.allowed, None, None)
    assert batch.card is not None
    card = fitted(batch.card, feasible.facts.longest).unsqueeze(1)  # B 1 K
    return Paths(card, feasible.along(card), None, None)


@torch.no_grad()
def explored_paths(
    steps: Steps[Any],
    reward: Ensemble,
    config: TrainingConfig,
    batch: TensorBatch,
    feasible: Feasible,
    generator: Generator,
) -> Paths:
    """Samples of the whole batch in one roll-out, judged; those to learn from, after the path that is supervised."""
    drawn = sample(steps, feasible, config.samples, config.temperature, generator)
    cards, allowed = drawn.cards, drawn.allowed
    if config.group:
        assert isinstance(reward, PairValue)  # the settings saw to it
        best = best_cards_of(reward, batch, config.group, generator)
        cards, allowed = torch.cat([cards, best], dim=1), torch.cat([allowed, feasible.along(best)], dim=1)
    rewards = estimated_rewards(reward, batch, cards)  # B S
    advantage, target = None, None
    if config.group:
        target = group_targets(rewards, first_of_each(cards))
    else:
        advantage = advantages(rewards, config.baseline)
    if config.hill_climbing and advantage is not None:
        best_cards, best_allowed, advantage = best_of(rewards, cards, allowed, advantage)
        # The first sample stays for the supervised path: a best one is no sample of the policy.
        first = slice(0, 1 if config.alpha > 0 and config.policy_sampling else 0)
        cards = torch.cat([cards[:, first], best_cards], dim=1)
        allowed = torch.cat([allowed[:, first], best_allowed], dim=1)
    if config.alpha > 0 and not config.policy_sampling:
        shown = supervised_path(steps, config, batch, feasible, generator)
        cards, allowed = torch.cat([shown.cards, cards], dim=1), torch.cat([shown.allowed, allowed], dim=1)
    return Paths(cards, allowed, advantage, rewards, target, drawn.cards)


def estimated_rewards(
    reward: Ensemble, batch: TensorBatch, cards: Int[Tensor, "B S K"]
) -> Float[Tensor, "B S"]:
    """R(A, u) of eq. 20."""
    return rescaled(reward(batch, cards).sigmoid())


def shuffled(card: Int[Tensor, "B *C K"], generator: Generator) -> Int[Tensor, "B *C K"]:
    """The same cards, the items of each in a random order, padding still last."""
    order = torch.rand(card.shape, generator=generator, device=card.device)
    return card.gather(-1, order.masked_fill(card == losses.NOTHING, 2.0).argsort(dim=-1))


def fitted(card: Int[Tensor, "B K"], length: int) -> Int[Tensor, "B L"]:
    """Cards cut or padded to the longest card of the batch."""
    return functional.pad(card, (0, length - card.shape[1]), value=losses.NOTHING)


def first_of_each(cards: Int[Tensor, "B C K"]) -> Bool[Tensor, "B C"]:
    """Which cards of a group are not the same set as one before them."""
    ordered = cards.sort(-1).values
    same = (ordered.unsqueeze(1) == ordered.unsqueeze(2)).all(-1)  # B C C
    return ~same.tril(-1).any(2)


def group_targets(values: Float[Tensor, "B C"], counted: Bool[Tensor, "B C"]) -> Float[Tensor, "B C"]:
    """Softmax of the values less their mean, over their deviation; what is not counted gets nothing.

    Values 1, 2, 3: standardised -1.2247, 0, 1.2247, shares 0.0626, 0.2129, 0.7245.
    """
    count = counted.sum(1, keepdim=True).clamp(min=1)
    mean = (values * counted).sum(1, keepdim=True) / count
    centred = (values - mean) * counted
    deviation = (centred.square().sum(1, keepdim=True) / count).sqrt()
    standard = centred / (deviation + 1e-6)
    return standard.masked_fill(~counted, -torch.inf).softmax(1)


def group_loss(log_prob: Float[Tensor, "B C"], target: Float[Tensor, "B C"]) -> Float[Tensor, "B"]:
    """Cross entropy of the policy's card probabilities, shared out within the group, against the targets."""
    among = log_prob.masked_fill(target == 0, torch.finfo(log_prob.dtype).min).log_softmax(1)
    return -(target * among).sum(1)


@torch.no_grad()
def best_cards_of(
    value: PairValue, batch: TensorBatch, count: int, generator: Generator
) -> Int[Tensor, "B C K"]:
    """The best valid cards under the value, found exactly, the items of each in random order.

    Where a request has fewer, its best card again; `first_of_each` leaves those out.
    """
    values = value.values(batch)
    cards = best_few(batch, values.node, values.pair, count)
    cards = torch.where((cards >= 0).any(2, keepdim=True), cards, cards[:, :1])
    return shuffled(cards, generator)


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
    return losses.mean_over((real + fake).sum(0), clicked)


def adversarial_loss(
    discriminator: Ensemble, batch: TensorBatch, own: Int[Tensor, "B S K"]
) -> Float[Tensor, ""]:
    """What the discriminator pays for one batch: the demonstration of each request against the policy's samples."""
    assert batch.card is not None
    clicked = torch.ones_like(batch.user, dtype=torch.bool) if batch.clicked is None else batch.clicked
    card = fitted(batch.card, own.shape[2])
    logits = discriminator.member_logits(batch, torch.cat([card.unsqueeze(1), own], 1)).float()
    return discriminator_loss(logits[:, :, 0], logits[:, :, 1:], clicked)
