"""CardInputs: a batch's columns as what the members of a card value read, made once for all of them.

Knows the scales of train, and of what is learned only embeddings; NaN is a missing number, 0 an unknown category.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from exactk.engine.shapes import CardReads, widths_of
from exactk.errors import InputError
from exactk.models.inputs import hidden
from exactk.settings.config import InputSizes
from exactk.tensors import TensorBatch, off_diagonal, rows_of


class EncodedNumbers(NamedTuple):
    """Numbers as inputs, and where each stands: its level among train's values (0 to 1) and its rank in the list."""

    inputs: Float[Tensor, "... E"]
    level: Float[Tensor, "... F"]
    rank: Float[Tensor, "... F"]


class Numbers(nn.Module):
    """F columns of numbers, each by pieces of its own scale and by a flag where it is missing.

    With knots 0, 1, 3 the value 2 reads (1, 1/2), -1 reads (0, 0) and 9 reads (1, 1): a straight line over such pieces
    is any line with bends at the knots. `within` a list come the level less the list's mean, and the rank.
    """

    knots: Tensor
    used: Tensor

    def __init__(self, num_columns: int, bins: int, within: bool) -> None:
        super().__init__()
        self.within = within
        self.register_buffer("knots", torch.arange(bins + 1.0).repeat(num_columns, 1))
        self.register_buffer("used", torch.full((num_columns,), float(bins)))  # pieces that train reaches

    @torch.no_grad()
    def fit(self, values: Float[Tensor, "R F"]) -> None:
        """Place the knots by values of train."""
        for f, column in enumerate(values.T):
            knots, used = placed_knots(column[~column.isnan()], self.knots.shape[1] - 1)
            self.knots[f], self.used[f] = knots, float(used)

    def forward(
        self, values: Float[Tensor, "B *N F"], present: Bool[Tensor, "B N"] | None = None
    ) -> EncodedNumbers:
        """Inputs of every row; `present` says which rows of a list are real."""
        known = ~values.isnan()
        low, high = self.knots[:, :-1], self.knots[:, 1:]
        pieces = ((values.nan_to_num().unsqueeze(-1) - low) / (high - low)).clamp(0, 1) * known.unsqueeze(-1)
        level = pieces.sum(-1) / self.used
        parts = [pieces.flatten(-2), (~known).to(level.dtype)]
        if not self.within:
            return EncodedNumbers(torch.cat(parts, -1), level, torch.zeros_like(level))
        assert present is not None
        known = known & present.unsqueeze(-1)
        centred = (level - _mean(level, known, (1,))) * known
        rank = ranks_within(values, known)
        return EncodedNumbers(torch.cat([*parts, 2 * centred, rank], -1), level, rank)


def placed_knots(known: Float[Tensor, "R"], bins: int) -> tuple[Float[Tensor, "E"], int]:
    """bins + 1 ascending knots: half by quantiles of the values, half by those of the distinct values, so that a
    column that is 0 nearly always still has a scale; and how many pieces lie within the values.
    """
    if not len(known):
        return torch.arange(bins + 1.0), bins
    known = known.double().sort().values
    both = [_quantiles(known, bins + 1), _quantiles(torch.unique_consecutive(known), bins + 1)]
    found = torch.unique_consecutive(torch.cat(both).float().sort().values)
    if len(found) > bins + 1:
        found = found[torch.linspace(0, len(found) - 1, bins + 1).round().long()]
    used = max(len(found) - 1, 1)
    beyond = found[-1] + (1 + found[-1].abs()) * torch.arange(1, bins + 2 - len(found), device=found.device)
    return torch.cat([found, beyond]), used


def _quantiles(ascending: Tensor, number: int) -> Tensor:
    return ascending[torch.linspace(0, len(ascending) - 1, number).round().long()]


def ranks_within(values: Float[Tensor, "B N F"], known: Bool[Tensor, "B N F"]) -> Float[Tensor, "B N F"]:
    """From -1, the least of its list, to 1; equals share the middle of their ranks, and a missing value has 0.

    Of 5, 7, 7, 9 the ranks are -1, 0, 0, 1.
    """
    held = values.masked_fill(~known, torch.inf).transpose(1, 2).contiguous()  # B F N
    if torch.compiler.is_exporting():  # ONNX has no searchsorted
        below = (held.unsqueeze(-2) < held.unsqueeze(-1)).sum(-1)
        not_above = (held.unsqueeze(-2) <= held.unsqueeze(-1)).sum(-1)
    else:
        ordered = held.sort(-1).values
        below = torch.searchsorted(ordered, held)
        not_above = torch.searchsorted(ordered, held, right=True)
    count = known.sum(1).unsqueeze(-1)  # B F 1
    rank = (below + not_above - count) / (count - 1).clamp(min=1)
    return rank.to(values.dtype).transpose(1, 2) * known


class Categories(nn.Module):
    """Embeddings of columns of categories; in training a share of them is hidden, so that unknown is learned, too."""

    def __init__(self, sizes: Sequence[int], embedding_size: int, hidden_share: float) -> None:
        super().__init__()
        widths = widths_of(sizes, embedding_size)
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n, width in zip(sizes, widths, strict=True))
        self.hidden_share = hidden_share
        self.size = sum(widths)

    def forward(self, codes: Int[Tensor, "*N C"]) -> Float[Tensor, "*N E"]:
        """The embeddings of a row's categories side by side."""
        codes = hidden(codes, self.hidden_share) if self.training else codes
        parts = [table(codes[..., c].long()) for c, table in enumerate(self.tables)]
        return torch.cat([torch.zeros(*codes.shape[:-1], 0, device=codes.device), *parts], -1)


LARGEST = 4.0  # deviations, of a pair feature
# The setting that says how many there are, where it has another name than the columns.
SIZE_OF = {
    "item_features": "item_feature_size", "user_features": "user_feature_size", "item_vectors": "item_vector_size",
}  # fmt: skip


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

    def __init__(self, reads: CardReads, sizes: InputSizes, bins: int) -> None:
        super().__init__()
        self.reads, self.sizes = reads, sizes
        self.numbers = Numbers(reads.numbers, bins, within=True)
        self.context_numbers = Numbers(reads.context_numbers, bins, within=False)
        P = sizes.pair_features
        self.register_buffer("pair_mean", torch.zeros(P))
        self.register_buffer("pair_deviation", torch.ones(P))
        self.register_buffer("score_mean", torch.zeros(()))
        self.register_buffer("score_deviation", torch.ones(()))

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
            held = [self._held(b, "pair_features")[0][two_of(b.present)] for b in batches]
            pairs, known = torch.cat(held).nan_to_num(), ~torch.cat(held).isnan()
            count = known.sum(0).clamp(min=1)
            mean = pairs.sum(0) / count
            square = ((pairs - mean) * known).square().sum(0) / count
            self.pair_mean.copy_(mean)
            self.pair_deviation.copy_(square.sqrt() + 1e-6)

    def forward(self, batch: TensorBatch, at: Int[Tensor, "B R"] | None = None) -> ListInputs:
        """What there is to read of all candidates, or of the positions `at`; what is relative is so to the list."""
        numbers: EncodedNumbers = self.numbers(self._numbers(batch), batch.present)
        none = batch.item.new_zeros(*batch.item.shape, 0)
        codes = torch.cat([none, *self._held(batch, "item_categories", "candidate_categories")], -1).long()
        features = [] if self.reads.features_are_numbers else self._held(batch, "item_features")
        parts = [numbers.inputs, *features, *self._held(batch, "item_vectors")]
        pairs, of_pairs = self._pairs(batch, numbers, codes, at)
        candidates = torch.cat([*parts, of_pairs], -1)
        score = numbers.level.new_zeros(batch.item.shape)
        if self.sizes.scored:
            assert batch.score is not None
            score = ((batch.score - self.score_mean) / self.score_deviation).nan_to_num()
        present = batch.present
        if at is not None:
            candidates, codes, score, present = (rows_of(x, at) for x in (candidates, codes, score, present))
        return ListInputs(candidates, codes, *self._context(batch), pairs, score, present)

    def _held(self, batch: TensorBatch, *names: str) -> list[Tensor]:
        """The columns of the batch that train had, too."""
        sizes = {name: getattr(self.sizes, SIZE_OF.get(name, name)) for name in names}
        counts = {name: size if isinstance(size, int) else len(size) for name, size in sizes.items()}
        return [_given(getattr(batch, n), n.replace("_", " "), count) for n, count in counts.items() if count]

    def _numbers(self, batch: TensorBatch) -> Float[Tensor, "B N F"]:
        parts = [torch.zeros(*batch.item.shape, 0, device=batch.item.device)]
        parts += self._held(batch, "candidate_numbers")
        if self.sizes.scored:
            parts.append(_given(batch.score, "scores").unsqueeze(-1))
        if self.reads.places:
            parts.append(_given(batch.position, "positions").unsqueeze(-1))
        if self.reads.features_are_numbers:
            parts += self._held(batch, "item_features")
        return torch.cat(parts, -1)

    def _context_numbers(self, batch: TensorBatch) -> Float[Tensor, "B X"]:
        """How many candidates there are, then the log's own."""
        count = batch.present.sum(1, keepdim=True).float()
        return torch.cat([count, *self._held(batch, "context_numbers")], -1)

    def _context(self, batch: TensorBatch) -> tuple[Float[Tensor, "B Q"], Int[Tensor, "B G"]]:
        numbers = self.context_numbers(self._context_numbers(batch)).inputs
        none = batch.user.new_zeros(*batch.user.shape, 0)
        codes = torch.cat([none, *self._held(batch, "context_categories", "user_categories")], -1).long()
        return torch.cat([numbers, *self._held(batch, "user_features")], -1), codes

    def _pairs(
        self, batch: TensorBatch, numbers: EncodedNumbers, codes: Tensor, at: Tensor | None
    ) -> tuple[Float[Tensor, "B T P"], Float[Tensor, "B N A"]]:
        """Pairs i < j, and for each candidate the mean and the best of its pairs where these are context, too."""
        N, present = batch.item.shape[1], batch.present
        level, rank = (values[..., : self.reads.gaps] for values in (numbers.level, numbers.rank))
        own, of_pairs = [], level.new_zeros(*batch.item.shape, 0)
        for given in self._held(batch, "pair_features"):
            known = ~given.isnan() & two_of(present).unsqueeze(-1)
            z = (given.nan_to_num() - self.pair_mean) / self.pair_deviation
            z = z.clamp(-LARGEST, LARGEST) * known
            if self.reads.context_of_pairs:
                of_pairs = _of_pairs(z, known)
            mean = _mean(z, known, (1, 2))
            if at is not None:
                z, known = (_among(x, at) for x in (z, known))
            own = [z, z - mean * known, (~known).to(z.dtype)]
        full = torch.cat(own, -1) if own else None
        if at is not None:
            level, rank, codes, present = (rows_of(x, at) for x in (level, rank, codes, present))
            N = at.shape[1]
        i, j = torch.triu_indices(N, N, 1, device=batch.item.device)
        parts = [] if full is None else [full[:, i, j]]
        parts += [2 * (level[:, i] - level[:, j]).abs(), (rank[:, i] - rank[:, j]).abs()]
        parts.append(((codes[:, i] == codes[:, j]) & (codes[:, i] > 0)).to(level.dtype))
        return torch.cat(parts, -1) * (present[:, i] & present[:, j]).unsqueeze(-1), of_pairs


def _among(pairs: Shaped[Tensor, "B N N P"], at: Int[Tensor, "B R"]) -> Shaped[Tensor, "B R R P"]:
    """Pairs of the positions `at`."""
    request = torch.arange(len(at), device=at.device)[:, None, None]
    return pairs[request, at.unsqueeze(2), at.unsqueeze(1)]


def _of_pairs(z: Float[Tensor, "B N N P"], known: Bool[Tensor, "B N N P"]) -> Float[Tensor, "B N A"]:
    """Of each candidate: mean and best of its pairs, less the list's mean, and whether it has any."""
    centred = (z - _mean(z, known, (1, 2))) * known
    any_known = known.any(2)
    mean = _mean(centred, known, (2,)).squeeze(2)
    best = centred.masked_fill(~known, -torch.inf).amax(2).masked_fill(~any_known, 0.0)
    return torch.cat([mean, best, any_known.to(z.dtype)], -1)


def _mean(values: Tensor, known: Tensor, over: tuple[int, ...]) -> Tensor:
    return (values * known).sum(over, keepdim=True) / known.sum(over, keepdim=True).clamp(min=1)


def two_of(present: Bool[Tensor, "B N"]) -> Bool[Tensor, "B N N"]:
    """Which places hold two candidates."""
    return present.unsqueeze(2) & present.unsqueeze(1) & off_diagonal(present.shape[1], present.device)


def _given(values: Tensor | None, name: str, size: int | None = None) -> Tensor:
    """The batch's columns; others than the model was trained with are refused by name."""
    if values is None or (size is not None and values.shape[-1] != size):
        given = "none" if values is None else str(values.shape[-1])
        raise InputError(
            f"this model reads {'' if size is None else f'{size} '}{name}, the batch has {given}"
        )
    return values
