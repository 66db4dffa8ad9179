"""CardInputs: a batch's columns as what the members of a card value read, made once for all of them.

Knows the scales of train and no weights that are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from exactk.engine.shapes import MOST_GAPS, MOST_NUMBERS
from exactk.errors import InputError
from exactk.models.columns import EncodedNumbers, Numbers
from exactk.settings.config import InputSizes
from exactk.tensors import TensorBatch

LARGEST = 4.0  # deviations, of a pair feature


class ListInputs(NamedTuple):
    """R candidates of each request (all N, or those asked for), and the T = R (R - 1) / 2 pairs i < j of them."""

    candidates: Float[Tensor, "B R D"]
    categories: Int[Tensor, "B R C"]
    context: Float[Tensor, "B Q"]
    context_categories: Int[Tensor, "B G"]
    pairs: Float[Tensor, "B T P"]
    score: Float[Tensor, "B R"]
    present: Bool[Tensor, "B R"]


class CardInputs(nn.Module):
    """Reads every column there is: numbers by pieces of train's quantiles and within the list, vectors as they are.

    Of pairs it reads the log's pair features (in deviations, less the list's mean, missing or not), how far the two are
    apart in every number and in its ranks, and which categories they share.
    """

    pair_mean: Tensor
    pair_deviation: Tensor
    score_mean: Tensor
    score_deviation: Tensor

    def __init__(self, sizes: InputSizes, bins: int, context_of_pairs: bool) -> None:
        super().__init__()
        self.sizes, self.context_of_pairs = sizes, context_of_pairs
        features = sizes.item_feature_size
        self.features_are_numbers = features <= MOST_NUMBERS
        self.num_numbers = (
            sizes.candidate_numbers + features * self.features_are_numbers + sizes.scored + self.reads_places
        )
        self.numbers = Numbers(self.num_numbers, bins, within=True)
        self.context_numbers = Numbers(1 + sizes.context_numbers, bins, within=False)
        P = sizes.pair_features
        self.register_buffer("pair_mean", torch.zeros(P))
        self.register_buffer("pair_deviation", torch.ones(P))
        self.register_buffer("score_mean", torch.zeros(()))
        self.register_buffer("score_deviation", torch.ones(()))
        self.category_sizes = sizes.item_categories + sizes.candidate_categories
        self.context_category_sizes = sizes.context_categories + sizes.user_categories
        self.gaps = min(self.num_numbers, MOST_GAPS)
        self.pair_size = 3 * P + 2 * self.gaps + len(self.category_sizes)
        self.candidate_size = (
            self.numbers.size
            + features * (not self.features_are_numbers)
            + sizes.item_vector_size
            + 3 * P * context_of_pairs
        )
        self.context_size = self.context_numbers.size + sizes.user_feature_size

    @property
    def reads_places(self) -> bool:
        """The place of an item is what came from upstream where the list was seen whole; on a card alone it is a
        consequence of the decision to be made.
        """
        return self.sizes.placed and self.sizes.shown == "list"

    @torch.no_grad()
    def fit(self, batches: Sequence[TensorBatch]) -> None:
        """Take the scales from batches of train."""
        self.numbers.fit(torch.cat([self._numbers(b)[b.present] for b in batches]))
        self.context_numbers.fit(torch.cat([self._context_numbers(b) for b in batches]))
        if self.sizes.scored:
            scores = torch.cat([b.score[b.present] for b in batches if b.score is not None])
            known = scores[~scores.isnan()]
            if len(known) > 1:
                self.score_mean.copy_(known.mean())
                self.score_deviation.copy_(known.std() + 1e-6)
        if self.sizes.pair_features:
            pairs = torch.cat(
                [
                    _given(b.pair_features, "pair features", self.sizes.pair_features)[_two(b.present)]
                    for b in batches
                ]
            )
            known, count = ~pairs.isnan(), (~pairs.isnan()).sum(0).clamp(min=1)
            mean = pairs.nan_to_num().sum(0) / count
            square = ((pairs.nan_to_num() - mean) * known).square().sum(0) / count
            self.pair_mean.copy_(mean)
            self.pair_deviation.copy_(square.sqrt() + 1e-6)

    def forward(self, batch: TensorBatch, at: Int[Tensor, "B R"] | None = None) -> ListInputs:
        """What there is to read of all candidates, or of the positions `at`; what is relative is so to the list."""
        numbers: EncodedNumbers = self.numbers(self._numbers(batch), batch.present)
        codes = torch.cat(
            [
                batch.item.new_zeros(*batch.item.shape, 0),
                *_codes(batch.item_categories, self.sizes.item_categories, "item"),
                *_codes(batch.candidate_categories, self.sizes.candidate_categories, "candidate"),
            ],
            -1,
        )
        parts = [numbers.inputs]
        if not self.features_are_numbers:
            parts.append(_given(batch.item_features, "item features", self.sizes.item_feature_size))
        if self.sizes.item_vector_size:
            parts.append(_given(batch.item_vectors, "item vectors", self.sizes.item_vector_size))
        pairs, of_pairs = self._pairs(batch, numbers, codes, at)
        candidates = torch.cat([*parts, of_pairs], -1)
        score = numbers.level.new_zeros(batch.item.shape)
        if self.sizes.scored:
            assert batch.score is not None
            score = ((batch.score - self.score_mean) / self.score_deviation).nan_to_num()
        present = batch.present
        if at is not None:
            candidates, codes, score, present = (_rows(x, at) for x in (candidates, codes, score, present))
        return ListInputs(candidates, codes, *self._context(batch), pairs, score, present)

    def _numbers(self, batch: TensorBatch) -> Float[Tensor, "B N F"]:
        sizes = self.sizes
        parts = [torch.zeros(*batch.item.shape, 0, device=batch.item.device)]
        if sizes.candidate_numbers:
            parts.append(_given(batch.candidate_numbers, "candidate numbers", sizes.candidate_numbers))
        if sizes.scored:
            parts.append(_given(batch.score, "scores").unsqueeze(-1))
        if self.reads_places:
            parts.append(_given(batch.position, "positions").unsqueeze(-1))
        if sizes.item_feature_size and self.features_are_numbers:
            parts.append(_given(batch.item_features, "item features", sizes.item_feature_size))
        return torch.cat(parts, -1)

    def _context_numbers(self, batch: TensorBatch) -> Float[Tensor, "B X"]:
        """How many candidates there are, then the log's own."""
        own = [batch.present.sum(1, keepdim=True).float()]
        if self.sizes.context_numbers:
            own.append(_given(batch.context_numbers, "context numbers", self.sizes.context_numbers))
        return torch.cat(own, -1)

    def _context(self, batch: TensorBatch) -> tuple[Float[Tensor, "B Q"], Int[Tensor, "B G"]]:
        parts = [self.context_numbers(self._context_numbers(batch)).inputs]
        if self.sizes.user_feature_size:
            parts.append(_given(batch.user_features, "user features", self.sizes.user_feature_size))
        codes = [
            batch.user.new_zeros(len(batch), 0),
            *_codes(batch.context_categories, self.sizes.context_categories, "context"),
            *_codes(batch.user_categories, self.sizes.user_categories, "user"),
        ]
        return torch.cat(parts, -1), torch.cat(codes, -1)

    def _pairs(
        self, batch: TensorBatch, numbers: EncodedNumbers, codes: Tensor, at: Tensor | None
    ) -> tuple[Float[Tensor, "B T P"], Float[Tensor, "B N A"]]:
        """Pairs i < j, and for each candidate the mean and the best of its pairs where these are context, too."""
        N, P = batch.item.shape[1], self.sizes.pair_features
        level, rank, present = numbers.level[..., : self.gaps], numbers.rank[..., : self.gaps], batch.present
        own, of_pairs = [], level.new_zeros(*batch.item.shape, 0)
        if P:
            given = _given(batch.pair_features, "pair features", P)
            z, known = self._standardised(given, _two(present))
            if self.context_of_pairs:
                of_pairs = _of_pairs(z, known)
            own = [z, z - _mean(z, known, (1, 2)) * known, (~known).to(z.dtype)]
        full = torch.cat(own, -1) if own else None
        if at is not None:
            level, rank, codes, present = (_rows(x, at) for x in (level, rank, codes, present))
            full = None if full is None else _rows(_rows(full, at).transpose(1, 2), at).transpose(1, 2)
            N = at.shape[1]
        i, j = torch.triu_indices(N, N, 1, device=batch.item.device)
        parts = [] if full is None else [full[:, i, j]]
        parts += [2 * (level[:, i] - level[:, j]).abs(), (rank[:, i] - rank[:, j]).abs()]
        parts.append(((codes[:, i] == codes[:, j]) & (codes[:, i] > 0)).to(level.dtype))
        return torch.cat(parts, -1) * (present[:, i] & present[:, j]).unsqueeze(-1), of_pairs

    def _standardised(self, given: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        known = ~given.isnan() & two.unsqueeze(-1)
        z = ((given.nan_to_num() - self.pair_mean) / self.pair_deviation).clamp(-LARGEST, LARGEST)
        return z * known, known


def _of_pairs(z: Float[Tensor, "B N N P"], known: Bool[Tensor, "B N N P"]) -> Float[Tensor, "B N A"]:
    """Of each candidate: mean and best of its pairs, less the list's mean, and whether it has any."""
    centred = (z - _mean(z, known, (1, 2))) * known
    any_known = known.any(2)
    mean = _mean(centred, known, (2,)).squeeze(2)
    best = centred.masked_fill(~known, -torch.inf).amax(2).masked_fill(~any_known, 0.0)
    return torch.cat([mean, best, any_known.to(z.dtype)], -1)


def _mean(values: Tensor, known: Tensor, over: tuple[int, ...]) -> Tensor:
    return (values * known).sum(over, keepdim=True) / known.sum(over, keepdim=True).clamp(min=1)


def _two(present: Bool[Tensor, "B N"]) -> Bool[Tensor, "B N N"]:
    """Which places hold two candidates."""
    others = ~torch.eye(present.shape[1], dtype=torch.bool, device=present.device)
    return present.unsqueeze(2) & present.unsqueeze(1) & others


def _rows(values: Tensor, at: Int[Tensor, "B R"]) -> Tensor:
    return values[torch.arange(len(at), device=at.device).unsqueeze(1), at]


def _given(values: Tensor | None, name: str, size: int | None = None) -> Tensor:
    """The batch's columns; others than the model was trained with are refused by name."""
    if values is None or (size is not None and values.shape[-1] != size):
        given = "none" if values is None else str(values.shape[-1])
        raise InputError(
            f"this model reads {'' if size is None else f'{size} '}{name}, the batch has {given}"
        )
    return values


def _codes(codes: Tensor | None, sizes: tuple[int, ...], kind: str) -> list[Tensor]:
    return [_given(codes, f"{kind} categories", len(sizes)).long()] if sizes else []
