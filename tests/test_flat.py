"""Parameters side by side: the same numbers, the same steps, the same checkpoints as parameters apart."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from exactk.learning.checkpoint import Checkpoint
from exactk.learning.flat import Flat
from exactk.learning.optimiser import Optimiser


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3, bias=False))


def turned_about(module: nn.Module) -> Sequence[Tensor]:
    """The parameters in another order than the module's."""
    return list(module.parameters())[::-1]


def descended(module: nn.Module, optimiser: Optimiser, num_steps: int) -> None:
    generator = Generator().manual_seed(1)
    for _ in range(num_steps):
        optimiser.zero_grad()
        module(torch.randn(4, 5, generator=generator)).square().sum().backward()
        optimiser.clip(0.5)
        optimiser.step(0.01)


def test_flat_parameters_are_views_of_one_tensor_and_keep_their_numbers() -> None:
    module = network()
    before = [p.detach().clone() for p in module.parameters()]
    flat = Flat(turned_about(module))
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))
    flat.weights.data.fill_(2.0)
    assert all(bool((p == 2.0).all()) for p in module.parameters())
    assert flat.is_whole()
    flat.release()
    flat.weights.data.fill_(3.0)
    assert all(bool((p == 2.0).all()) and p.grad is None for p in module.parameters())
    assert not flat.is_whole()


def test_an_optimiser_of_flat_parameters_takes_the_same_steps_and_leaves_the_same_memory() -> None:
    apart = network()
    together = copy.deepcopy(apart)
    flat = Flat(turned_about(together))
    one, other = Optimiser(apart, 0.01, 0.1), Optimiser(together, 0.01, 0.1, flat)
    descended(apart, one, 5)
    descended(together, other, 5)
    for mine, theirs in zip(apart.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    wanted, found = one.tensors(), other.tensors()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-8)


def test_memory_taken_back_leads_to_the_same_weights_bit_for_bit() -> None:
    straight, resumed = network(), network()
    optimiser = Optimiser(straight, 0.01, 0.0, Flat(turned_about(straight)))
    descended(straight, optimiser, 3)
    kept = {name: t.clone() for name, t in optimiser.tensors().items()}
    resumed.load_state_dict(straight.state_dict())
    again = Optimiser(resumed, 0.01, 0.0, Flat(turned_about(resumed)))
    again.restore(Checkpoint(kept, {}))
    descended(straight, optimiser, 2)
    descended(resumed, again, 2)
    for mine, theirs in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(mine, theirs)
