"""Numbers by pieces of their scale, ranks within a list, categories; worked out by hand."""

from __future__ import annotations

import itertools
import math

import torch

from exactk.models.card_inputs import Categories, Numbers, placed_knots, ranks_within
from exactk.models.inputs import hidden

NAN = math.nan


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).view(1, -1, 1)


def numbers(knots: list[float], within: bool = False) -> Numbers:
    made = Numbers(1, len(knots) - 1, within)
    made.knots[0] = torch.tensor(knots)
    return made


def test_a_number_fills_the_pieces_of_its_scale_up_to_itself() -> None:
    found = numbers([0.0, 1.0, 3.0])(column(2.0, -1.0, 9.0, 0.5)).inputs[0]
    assert found[:, :2].tolist() == [[1.0, 0.5], [0.0, 0.0], [1.0, 1.0], [0.5, 0.0]]


def test_a_missing_number_has_a_flag_and_no_piece() -> None:
    assert numbers([0.0, 1.0, 3.0])(column(NAN, 1.0)).inputs[0].tolist() == [[0, 0, 1], [1, 0, 0]]


def test_within_a_list_a_number_is_read_beside_the_mean_and_by_its_rank() -> None:
    encode = numbers([0.0, 2.0, 4.0], within=True)
    present = torch.tensor([[True, True, True, True, False]])
    found = encode(column(0.0, 4.0, 2.0, NAN, 3.0), present)
    # levels 0, 1, 1/2 with mean 1/2; the missing one is neither above nor below, the absent one counts for nothing
    assert found.level[0, :3, 0].tolist() == [0.0, 1.0, 0.5]
    assert found.inputs[0, :4, 3].tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert found.inputs[0, :4, 4].tolist() == [-1.0, 1.0, 0.0, 0.0]


def test_equal_values_share_the_middle_of_their_ranks() -> None:
    values = column(5.0, 7.0, 7.0, 9.0)
    assert ranks_within(values, ~values.isnan())[0, :, 0].tolist() == [-1.0, 0.0, 0.0, 1.0]
    alone = column(5.0, NAN)
    assert ranks_within(alone, ~alone.isnan())[0, :, 0].tolist() == [0.0, 0.0]


def test_ranks_count_who_is_below_less_who_is_above() -> None:
    values = torch.randint(0, 4, (20, 7, 2), generator=torch.Generator().manual_seed(0)).float()
    known = torch.rand(20, 7, 2, generator=torch.Generator().manual_seed(1)) < 0.7
    found = ranks_within(values, known)
    for b, n, f in itertools.product(range(20), range(7), range(2)):
        others = [values[b, m, f] for m in range(7) if known[b, m, f]]
        if known[b, n, f] and len(others) > 1:
            own = values[b, n, f]
            wanted = (sum(own > o for o in others) - sum(own < o for o in others)) / (len(others) - 1)
            assert abs(found[b, n, f] - wanted) < 1e-6
        else:
            assert found[b, n, f] == 0


def test_knots_stand_at_quantiles_and_a_column_of_zeros_keeps_a_scale_for_the_rest() -> None:
    knots, used = placed_knots(torch.arange(101.0), 4)
    assert (knots.tolist(), used) == ([0.0, 25.0, 50.0, 75.0, 100.0], 4)
    mostly_zero = torch.cat([torch.zeros(1000), torch.tensor([1.0, 2.0, 3.0])])
    knots, used = placed_knots(mostly_zero, 4)
    assert (knots[:4].tolist(), used) == ([0.0, 1.0, 2.0, 3.0], 3)
    assert (knots.diff() > 0).all()


def test_a_column_that_never_varies_or_is_never_known_has_a_scale_without_holes() -> None:
    for values in (torch.full((9,), 3.0), torch.empty(0), torch.tensor([1e8, 1e8])):
        knots, used = placed_knots(values, 4)
        assert (knots.diff() > 0).all()
        assert used >= 1
        assert knots.isfinite().all()


def test_hidden_categories_read_as_unknown_in_training_alone() -> None:
    torch.manual_seed(0)
    codes = torch.ones(1000, 1, dtype=torch.long)
    assert 0.2 < 1 - hidden(codes, 0.3).float().mean() < 0.4
    embed = Categories([3], 8, 0.9).eval()
    assert embed(codes).equal(embed.tables[0](codes[:, 0]))
    embed.train()
    assert not embed(codes).equal(embed.tables[0](codes[:, 0]))
