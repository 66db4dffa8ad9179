"""Recorded training on a GPU learns what the loop learns; what is known of a batch is not read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Generator

from column_batches import BASE, all_terms, batch_with_columns
from exactk.learning import card_task
from exactk.learning.card_task import losses_of
from exactk.learning.fit import Step, Task, fit
from exactk.learning.optimiser import FitSettings
from exactk.learning.recorded import RULES_ASIDE, safe_facts
from exactk.learning.rlfd import policy_step
from exactk.models.card_value import CardValue
from exactk.models.pairvalue import PairValue
from exactk.models.policy import Policy
from exactk.models.reward import Reward
from exactk.search import Feasible
from exactk.settings.config import InputSizes, PolicyConfig, RewardConfig, ShownAs, TrainingConfig
from exactk.tensors import TensorBatch
from small_batches import complete_batch

SIZES = InputSizes(num_users=6, num_items=31)


def demonstrated(seed: int) -> TensorBatch:
    batch = complete_batch(16, 9, 3)
    card = torch.rand(16, 9, generator=Generator().manual_seed(seed)).argsort(1)[:, :3]
    return replace(batch, card=card, clicked=torch.ones(16, dtype=torch.bool), clicked_position=card[:, 0])


def test_known_facts_are_taken_for_granted() -> None:
    batch = demonstrated(0)
    facts = Feasible.of(batch).facts
    assert facts.complete
    assert Feasible.of(replace(batch, facts=facts._replace(complete=False))).facts.complete is False
    assert replace(batch, facts=facts).rows(torch.tensor([0])).facts is None


@pytest.mark.gpu
@pytest.mark.parametrize("recordable", [True, False])
def test_a_recorded_step_learns_as_the_loop_does(recordable: bool) -> None:
    def learned(recorded: bool) -> list[float]:
        policy = Policy(PolicyConfig(width=16, heads=2), SIZES, Generator().manual_seed(1)).cuda()
        reward = Reward(RewardConfig(), SIZES, 3, Generator().manual_seed(2)).cuda().eval()
        batches = [demonstrated(seed) for seed in range(8)]

        def source(_: int, start: int) -> Iterator[TensorBatch]:
            yield from batches[start:]

        def loss(batch: TensorBatch, progress: float, generator: Generator) -> Step:
            return policy_step(policy, reward, TrainingConfig(), batch, progress, generator)

        fit(
            Task("policy", policy, source, 8, loss, recordable=safe_facts if recorded else None),
            FitSettings(epochs=2, device="cuda"),
        )
        return [float(p.detach().double().sum()) for p in policy.parameters()]

    assert learned(recordable) == pytest.approx(learned(False), rel=1e-4, abs=1e-4)


def shown_and_clicked(seed: int) -> TensorBatch:
    """Cards of three, one item of each clicked, with every kind of column."""
    generator = Generator().manual_seed(seed)
    batch = batch_with_columns(16, seed=seed)
    card = torch.rand(16, 5, generator=generator).argsort(1)[:, :3]
    clicks = torch.zeros(batch.present.shape).scatter_(1, card[:, :1], 1.0)
    clicked = torch.rand(16, generator=generator) < 0.5
    return replace(batch, card=card, clicked=clicked, clicked_position=card[:, 0], clicks=clicks)


def taught(model: CardValue | PairValue, recorded: bool) -> list[float]:
    """What its weights are after sixteen steps on a GPU."""
    batches = [shown_and_clicked(seed) for seed in range(8)]

    def source(_: int, start: int) -> Iterator[TensorBatch]:
        yield from batches[start:]

    def loss(batch: TensorBatch, _: float, generator: Generator) -> Step:
        if isinstance(model, CardValue):
            summed = losses_of(model, batch, 1.0, generator).mean()
        else:
            assert batch.card is not None
            summed = model.member_logits(batch, batch.card.unsqueeze(1)).square().mean()
        return Step(summed, {"loss": summed.detach()})

    task = Task("value", model, source, 8, loss, recordable=(lambda _: RULES_ASIDE) if recorded else None)
    fit(task, FitSettings(epochs=2, device="cuda"))
    return [float(p.detach().double().sum()) for p in model.parameters()]


@pytest.mark.gpu
@pytest.mark.parametrize(("shown", "most_read"), [("list", 64), ("list", 4), ("card", 64)])
def test_a_recorded_step_teaches_a_card_value_what_the_usual_one_does(
    shown: ShownAs, most_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_task, "MOST_READ", most_read)
    assert taught(all_terms(shown).cuda(), True) == pytest.approx(
        taught(all_terms(shown).cuda(), False), rel=1e-3, abs=1e-3
    )


@pytest.mark.gpu
def test_a_recorded_step_teaches_a_pair_value_what_the_usual_one_does() -> None:
    found = [
        taught(PairValue(BASE, SIZES, Generator().manual_seed(3)).cuda(), recorded)
        for recorded in (True, False)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-3)


@pytest.mark.gpu
def test_cards_that_were_all_chosen_teach_a_card_value_on_a_gpu() -> None:
    assert all(torch.tensor(taught(all_terms("session").cuda(), False)).isfinite())
