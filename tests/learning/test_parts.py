"""Long lists are read in parts: the same gradients, in less memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Generator

from column_batches import CONFIG, N, all_terms, batch_with_columns
from exactk.learning import card_task
from exactk.learning.card_task import in_parts, losses_of, mean_losses, shortened, some_candidates
from exactk.tensors import TensorBatch


def lists_of(*lengths: int) -> TensorBatch:
    batch = batch_with_columns(len(lengths))
    present = torch.arange(N) < torch.tensor(lengths).unsqueeze(1)
    return replace(batch, present=present)


def test_lists_of_like_length_go_together_and_nothing_is_read_beyond_the_longest() -> None:
    batch = lists_of(2, N, 3, 2, N)
    found = in_parts(batch, most=27)
    assert [part.item.shape for part in found] == [(3, 3), (1, N), (1, N)]
    users = torch.cat([part.user for part in found])
    assert users.equal(batch.user[[0, 3, 2, 1, 4]])
    for part, rows in zip(found, ([0, 3, 2], [1], [4]), strict=True):
        size = part.item.shape[1]
        assert part.item.equal(batch.item[rows][:, :size])
        assert part.graph.equal(batch.graph[rows][:, :size, :size])
        assert part.pair_features is not None
        assert part.pair_features.shape[1:3] == (size, size)


def test_a_batch_that_fits_is_left_alone() -> None:
    batch = lists_of(2, N, 3)
    assert in_parts(batch, most=3 * N * N) == [batch]


def test_a_list_that_is_too_long_by_itself_is_a_part_by_itself() -> None:
    assert [len(part) for part in in_parts(lists_of(N, N), most=1)] == [1, 1]


def test_padding_that_is_cut_away_changes_no_value() -> None:
    model, batch = all_terms("list"), lists_of(3, 4, 2)
    with torch.no_grad():
        whole, cut = model.values(batch), model.values(shortened(batch, 4))
    torch.testing.assert_close(cut.node, whole.node[:, :4])


def test_gradients_of_the_parts_add_up_to_those_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, gradients = all_terms("list"), []
    batch = replace(lists_of(3, N, 2, 4, N), clicks=torch.eye(5, N))
    for most in (10**6, N * N):
        monkeypatch.setitem(card_task.MOST_PAIRS, "cpu", most)
        model.zero_grad()
        for part in in_parts(batch):
            own = losses_of(model, part, 1.0, Generator()).sum() / len(batch)
            own.backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(in_parts(batch)) > 1
    for whole, summed in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, summed, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_validation_in_parts_is_validation() -> None:
    model, batch = all_terms("list"), lists_of(3, N, 2, 4)
    whole = mean_losses(model, batch, 1.0, Generator())
    split = [mean_losses(model, part, 1.0, Generator()) for part in in_parts(batch, most=N * N)]
    torch.testing.assert_close(torch.cat(split).sort().values, whole.sort().values)


def test_what_was_clicked_is_read_first_then_others_of_the_list_and_padding_last() -> None:
    batch = replace(lists_of(3, N, 4), clicks=torch.eye(N)[[1, 5, 0]] + torch.eye(N)[[2, 5, 0]])
    drawn = [some_candidates(batch, 4, Generator().manual_seed(seed)) for seed in range(40)]
    assert {frozenset(at[0, :2].tolist()) for at in drawn} == {frozenset({1, 2})}
    assert {int(at[0, 2]) for at in drawn} == {0}
    assert {int(at[1, 0]) for at in drawn} == {5}
    assert {place for at in drawn for place in at[1, 1:].tolist()} == set(range(N)) - {5}
    assert all(set(at[2].tolist()) == {0, 1, 2, 3} for at in drawn)


def test_of_a_long_list_a_step_reads_some_and_validation_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = replace(CONFIG, dropout=0.0, hidden_share=0.0)
    model = all_terms("list", calm).train()
    batch = replace(lists_of(N, N), clicks=torch.eye(2, N))
    whole = losses_of(model, batch, 1.0, Generator())
    monkeypatch.setattr(card_task, "MOST_READ", 2)
    losses = losses_of(model, batch, 1.0, Generator().manual_seed(3))
    at = some_candidates(batch, 2, Generator().manual_seed(3))
    nodes = torch.stack([values.node for values in model.raw_values(batch, at)])
    torch.testing.assert_close(losses, -(nodes[..., 0] - nodes[..., 1]).sigmoid().log())
    assert (losses < whole).all()
    torch.testing.assert_close(losses_of(model.eval(), batch, 1.0, Generator()), whole)
