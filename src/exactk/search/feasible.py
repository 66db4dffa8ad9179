"""Which positions may be chosen next: clique rule, no repeat, caps, pins, and never a dead end.

Knows neither models nor scores. The same mask serves sampling, likelihood, greedy and beam. Cheap bounds
answer for most cards begun, the exact engine for the rest: without numba everything but that works.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.errors import InfeasibleError
from exactk.problem.graph import Requests
from exactk.tensors import Facts, TensorBatch, off_diagonal, rows_of


def cheap_bounds(
    open: Bool[Tensor, "B S N"], graph: Float[Tensor, "B N N"], needed: Int[Tensor, "B 1 1"]
) -> tuple[Bool[Tensor, "B S N"], Bool[Tensor, "B S N"]]:
    """(possible, sure): after choosing j, may there be, is there certainly, a clique of `needed` more?

    possible: j has at least `needed` open neighbours. sure: by Caro and Wei, a graph holds a clique of at least
    the sum over its nodes v of 1 / (1 + strangers of v); strangers counted among all open positions are no
    fewer than among j's open neighbours, so two matrix products serve every j. Exact for `needed` <= 1.
    """
    nodes = open.to(graph.dtype)
    neighbours = nodes @ graph  # B S N
    strangers = nodes.sum(-1, keepdim=True) - 1 - neighbours
    bound = (nodes / (1 + strangers.clamp(min=0))) @ graph
    possible = neighbours >= needed
    # A whole number above needed - 1; the margin is rounding's.
    sure = (bound > needed - 1 + 1e-3) | (needed <= 0)
    return possible, sure


def ask_engine(
    requests: Requests, chosen: Bool[Tensor, "B S N"], rows: Bool[Tensor, "B S"]
) -> Bool[Tensor, "B S N"]:
    """`cliques.completable` for the marked rows (else False); rows that chose the same set are asked once."""
    from exactk.problem.exact import cliques  # numba is needed only where doubt remains

    request, row = (index.cpu().numpy() for index in rows.nonzero(as_tuple=True))
    sets = chosen[rows].cpu().numpy()
    keys = np.column_stack([request, np.packbits(sets, axis=1)])
    _, first, copies = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    answers = cliques.completable(requests.rows(request[first]), sets[first])[copies.reshape(-1)]
    result = np.zeros(chosen.shape, bool)
    result[request, row] = answers
    return torch.from_numpy(result).to(chosen.device)


def kept_sets(
    requests: Requests, sets: Bool[Tensor, "B S N"], asked: Bool[Tensor, "B S"]
) -> Bool[Tensor, "B S"]:
    """Which of the full cards asked about are valid under a brief: they can be completed, as they are complete."""
    from exactk.problem.exact import cliques

    wanted = asked.cpu().numpy()
    kept = np.zeros_like(wanted)
    for b in range(len(wanted)):
        tried = np.flatnonzero(wanted[b])
        held = sets[b].cpu().numpy()[tried]
        kept[b, tried] = cliques.can_complete(requests.rows(np.full(len(tried), b)), held)
    return torch.from_numpy(kept).to(asked.device)


class Prefix(NamedTuple):
    """Cards begun: what was chosen so far, in order, and what the rules so far leave open."""

    open: Bool[Tensor, "B S N"]
    cards: Int[Tensor, "B S t"]


@dataclass(frozen=True)
class Feasible:
    """The rules of B requests, ready to be asked step by step.

    Pinned positions are chosen before all others (in the order the model likes), so that the model sees them
    when it chooses their companions. In a `safe` request no order of choosing can end early; only in the others
    does a step look ahead, and only where a cheap bound leaves doubt does it ask the exact engine.
    """

    batch: TensorBatch
    graph: Bool[Tensor, "B N N"]  # diagonal cleared
    open: Bool[Tensor, "B N"]
    safe: Bool[Tensor, "B"]
    facts: Facts

    @classmethod
    def of(cls, batch: TensorBatch) -> Feasible:
        """Read the rules of a batch once."""
        others = off_diagonal(batch.present.shape[1], batch.present.device)
        graph = batch.graph & others
        open_ = batch.present
        strangers = (open_.unsqueeze(1) & others & ~graph).sum(-1) * open_  # B N
        missing = strangers.amax(-1)
        # A choice shuts out itself and at most `missing` strangers: if more are open than K - 1 choices can
        # shut out, there is always another. N=50, K=4, at most 9 strangers: 50 > 3 * 10, safe.
        shut = (batch.card_size - 1) * (missing + 1)
        if batch.cap.shape[1]:
            # A cap m is full after every m choices and then shuts at most its largest group.
            times = (batch.card_size - 1).unsqueeze(1) // batch.cap.clamp(min=1)  # B C
            shut = shut + (times * same_group(batch).sum(-1).amax(-1)).sum(-1)
            open_ = open_ & ((batch.cap.unsqueeze(-1) > 0) | (batch.group < 0)).all(1)
        pinned = batch.pinned.any(-1)
        safe = (open_.sum(-1) > shut) & ~pinned
        # Sums, variety and places: only the exact engine knows what they leave open.
        if batch.brief is not None:
            safe = torch.zeros_like(safe)
        facts = batch.facts
        if facts is None:  # one look at the device for everything that steers Python
            sizes = batch.card_size
            steering = [safe.all(), missing.max() == 0, pinned.any(), sizes.max() != sizes.min()]
            steering += [batch.present.all(), sizes.max()]
            read = torch.stack([s.long() for s in steering]).tolist()
            facts = Facts._make([*map(bool, read[:-1]), read[-1]])
        if facts.has_pins:
            beside = (graph | ~batch.pinned.unsqueeze(1) | ~others).all(-1)  # every other pin
            open_ = open_ & beside
        return cls(batch, graph, open_, safe, facts)

    def start(self, num_rows: int) -> Prefix:
        """Nothing chosen yet, in `num_rows` rows per request."""
        B, N = self.open.shape
        nothing = torch.empty(B, num_rows, 0, dtype=torch.long, device=self.open.device)
        return Prefix(self.open.unsqueeze(1).expand(B, num_rows, N), nothing)

    def allowed(self, prefix: Prefix) -> Bool[Tensor, "B S N"]:
        """The positions that may be chosen next; after a card's last choice the answer has no meaning."""
        if self.facts.all_safe:
            return prefix.open
        # Before the first choice all rows are one.
        if prefix.cards.shape[2] == 0 and prefix.cards.shape[1] > 1:
            return self.allowed(self.start(1)).expand_as(prefix.open)
        allowed = self._completable(prefix)
        if prefix.cards.shape[2] == 0:
            self._refuse_infeasible(allowed)
        return allowed

    def extend(self, prefix: Prefix, position: Int[Tensor, "B S"]) -> Prefix:
        """The prefix after choosing `position` in every row (-1: card finished, nothing changes)."""
        cards = torch.cat([prefix.cards, position.unsqueeze(-1)], -1)
        at = position.clamp(min=0) if self.facts.ragged else position
        if self.facts.complete:
            open_ = prefix.open.scatter(-1, at.unsqueeze(-1), False)
        else:
            open_ = prefix.open & rows_of(self.graph, at)
        if self.batch.cap.shape[1]:
            open_ = open_ & self._below_caps(cards)
        if self.facts.ragged:
            open_ = torch.where((position < 0).unsqueeze(-1), prefix.open, open_)
        return Prefix(open_, cards)

    def along(self, cards: Int[Tensor, "B S K"]) -> Bool[Tensor, "B S K N"]:
        """What was allowed before each choice of these cards."""
        prefix = self.start(cards.shape[1])
        allowed = [self.allowed(prefix)]
        for t in range(cards.shape[2] - 1):
            prefix = self.extend(prefix, cards[:, :, t])
            allowed.append(self.allowed(prefix))
        return torch.stack(allowed, 2)

    def placed(self, cards: Int[Tensor, "B S K"]) -> Int[Tensor, "B S K"]:
        """Finished cards in an order of place, where cards have places; as they were written, where they have none."""
        if self.batch.brief is None or not self.batch.brief.has_slots:
            return cards
        from exactk.problem.exact import cliques

        each = [cliques.arranged(self._requests, cards[:, s].cpu().numpy()) for s in range(cards.shape[1])]
        return torch.from_numpy(np.stack(each, 1)).to(cards.device)

    def live(self, step: int) -> Bool[Tensor, "B 1"]:
        """Requests whose card is unfinished before choice number `step` (0 is the first)."""
        return (self.batch.card_size > step).unsqueeze(1)

    def _completable(self, prefix: Prefix) -> Bool[Tensor, "B S N"]:
        """Open positions after which a valid card can still be completed."""
        candidates = prefix.open
        after_this = self.batch.card_size - prefix.cards.shape[2] - 1  # more choices
        needed = after_this[:, None, None]
        possible, sure = cheap_bounds(prefix.open, self._graph_as_numbers, needed)
        if self.batch.cap.shape[1]:
            sure = needed <= 0  # the bound counts cliques, not caps
        if self.facts.has_pins:
            waiting = self.batch.pinned.unsqueeze(1) & ~mark(prefix.cards, prefix.open.shape[2])
            num_waiting = waiting.sum(-1, keepdim=True)
            candidates = torch.where(num_waiting > 0, candidates & waiting, candidates)
            possible = possible & (num_waiting <= needed + 1)
            sure = sure & (num_waiting == 0) | (needed <= 0)
        if self.batch.brief is not None:
            sure = torch.zeros_like(sure)
        candidates = candidates & possible
        doubtful = (candidates & ~(sure | self.safe[:, None, None])).any(-1)  # B S
        if not doubtful.any():
            return candidates
        chosen = mark(prefix.cards, prefix.open.shape[2])
        exact = ask_engine(self._requests, chosen, doubtful)
        return candidates & (exact | ~doubtful.unsqueeze(-1))

    def _below_caps(self, cards: Int[Tensor, "B S t"]) -> Bool[Tensor, "B S N"]:
        """Positions none of whose groups is full."""
        chosen = mark(cards, self.open.shape[1]).unsqueeze(1).to(torch.float32)  # B 1 S N
        counts = chosen @ self._groups_as_numbers  # B C S N
        counted = (self.batch.group >= 0).unsqueeze(2)
        return ((counts < self.batch.cap[:, :, None, None]) | ~counted).all(1)

    def _refuse_infeasible(self, allowed: Bool[Tensor, "B 1 N"]) -> None:
        stuck = ~allowed.any(-1).squeeze(1)
        if stuck.any():
            b = int(stuck.nonzero()[0])
            size, num = int(self.batch.card_size[b]), int(self.batch.present[b].sum())
            raise InfeasibleError(
                f"request {b} of the batch has no valid card: no {size} of its {num} candidates may share a card"
            )

    @cached_property
    def _graph_as_numbers(self) -> Float[Tensor, "B N N"]:
        return self.graph.to(torch.float32)

    @cached_property
    def _groups_as_numbers(self) -> Float[Tensor, "B C N N"]:
        return same_group(self.batch).to(torch.float32)

    @cached_property
    def _requests(self) -> Requests:
        return self.batch.requests()


def same_group(batch: TensorBatch) -> Bool[Tensor, "B C N N"]:
    """Pairs that a cap counts together (a counted position with itself, too)."""
    group = batch.group.masked_fill(~batch.present.unsqueeze(1), -1)
    return (group.unsqueeze(-1) == group.unsqueeze(-2)) & (group >= 0).unsqueeze(-1)


def mark(cards: Int[Tensor, "B S t"], num_positions: int) -> Bool[Tensor, "B S N"]:
    """Cards as sets: True at each chosen position (-1 marks nothing)."""
    marks = torch.zeros(*cards.shape[:2], num_positions + 1, dtype=torch.bool, device=cards.device)
    return marks.scatter_(-1, cards.remainder(num_positions + 1), True)[..., :num_positions]
