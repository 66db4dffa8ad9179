"""A card value on the CPU: requests in, the mean values of candidates and pairs out, by one compiled call.

Knows no search, and of the network no more than the names of its weights. A batch is shared by threads.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from exactk.engine import (
    Scratch,
    Weights,
    in_groups,
    laid_out,
    linear,
    packed,
    padded,
    padded_linear,
    padded_norm,
    padded_row,
    part_of,
    plain,
    rounded,
)
from exactk.engine.card_value.columns import ColumnPlaces, ColumnSizes, ModelColumns, Scales, columns_of
from exactk.engine.card_value.network_kernel import STRETCH, NetworkPlaces, NetworkSizes, card_values_each
from exactk.engine.card_values import SummedValue
from exactk.engine.pair_values import CompiledPairValues, PairValues
from exactk.engine.shapes import CardReads, widths_of
from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.problem.compiling import num_cores, shared
from exactk.settings.config import CardValueConfig, Config, InputSizes

GRAIN = 4  # requests that are worth another thread
LOG2_E = math.log2(math.e)  # scores of attention are taken to powers of two


class CompiledCardValue(SummedValue):
    """Members that read the same columns; their mean is a sum over items and pairs again.

    Where whole lists were seen a node is the chance that it is the one clicked.
    """

    def __init__(
        self, weights: Weights, config: Config, sizes: InputSizes, threads: int | None = None
    ) -> None:
        own = config.card_value
        members = [part_of(weights, f"members.{m}") for m in range(own.members)]
        inputs = part_of(weights, "inputs")
        self._input_sizes, self._scales = sizes, Scales.of(inputs)
        self._score_scale = float(inputs["score_mean"]), float(inputs["score_deviation"])
        self._bases = [Base(part_of(m, "base"), config, sizes) for m in members if part_of(m, "base")]
        base_size = self._bases[0].size if self._bases else 0
        self._reads = reads = CardReads.of(own, config.pair_value, sizes)
        self._columns = column_sizes(reads, own, sizes, base_size)
        self._sizes = network_sizes(reads, own, members[0])
        kinds = reads.categories, reads.context_categories
        shapes = [_table_shape(codes, own.embedding_size) for codes in kinds]
        self._shapes = (*(shape for shape, _ in shapes), shapes[0][1])
        self._tables = packed([np.zeros(0), *(table for m in members for table in _tables(m, kinds))])
        true_width = padded_row(np.ones(own.width, np.float32), self._sizes.width)
        of_members = [part for m in members for part in _weights(m, self._sizes, self._columns)]
        self._weights = packed([true_width, *of_members])
        self._threads = num_cores() if threads is None else threads
        self._scratch = Scratch()

    def values(self, batch: Batch) -> PairValues:
        """Of every candidate and pair."""
        B, N = batch.item.shape
        if not self._input_sizes.users_recur:
            batch = replace(batch, user=np.zeros_like(batch.user))
        base = [base.values(batch) for base in self._bases]
        own = [base.inputs(batch) for base in self._bases]
        M = self._sizes.members
        columns = columns_of(batch, self._reads, self._input_sizes, _stacked(own, (M, B, N, 0), np.float32))
        values = PairValues(np.zeros(B), np.zeros((B, N)), np.zeros((B, N, N)))
        if base and not self._sizes.shares:
            values = values._replace(
                bias=np.sum([v.bias for v in base], 0), pair=np.sum([v.pair for v in base], 0)
            )
        nodes = _stacked([v.node for v in base], (M, B, N), np.float64)
        self._compute(columns, self._scores(batch), nodes, values)
        return values

    def _compute(
        self,
        columns: ModelColumns,
        score: Float32[np.ndarray, "B N"],
        nodes: Float[np.ndarray, "M B N"],
        values: PairValues,
    ) -> None:
        B, N = score.shape
        places, network, end = places_of(self._columns, self._sizes, N)
        counter, unknown = np.zeros(1, np.int64), np.full(1, -1, np.int64)
        shared(
            min(self._threads, max(B // GRAIN, 1)),
            lambda _: card_values_each(
                counter, unknown, self._sizes, self._columns, places, network, self._scratch.of(N, end),
                self._weights, self._tables, self._shapes, tuple(self._scales), tuple(columns),
                score, nodes, tuple(values),
            ),
        )  # fmt: skip
        if unknown[0] >= 0:
            raise InputError(
                f"request {unknown[0]} of the batch has a code of a category that the model has no row for"
            )

    def _scores(self, batch: Batch) -> Float32[np.ndarray, "B N"]:
        """Of upstream, in deviations; 0 where there is none."""
        if not self._input_sizes.scored or batch.score is None:
            return np.zeros(batch.item.shape, np.float32)
        mean, deviation = self._score_scale
        return plain(np.nan_to_num((batch.score - mean) / deviation))


class Base:
    """What one member makes of ids and features: a pair value's terms, and inputs of its encoder."""

    def __init__(self, weights: Weights, config: Config, sizes: InputSizes) -> None:
        self._weights = weights
        own = {f"members.0.{name}": array for name, array in weights.items()}
        self.values = CompiledPairValues(own, replace(config.pair_value, members=1), sizes)
        self.size = self.values.vectors[0].item_size + len(weights["map_item.weight"])

    def inputs(self, batch: Batch) -> Float[np.ndarray, "B N S"]:
        """x_i, and how each of its likings meets the user's."""
        vectors = self.values.vectors[0]
        item, user = vectors.item(batch), vectors.user(batch)
        both = linear(self._weights, "map_item", item) * linear(self._weights, "map_user", user)[:, None]
        return np.concatenate([item, both], -1)


def column_sizes(reads: CardReads, config: CardValueConfig, sizes: InputSizes, own: int) -> ColumnSizes:
    """How much there is to read of each kind; `own` is what ids and features give a member."""
    own += sum(widths_of(reads.categories, config.embedding_size))
    context_own = sum(widths_of(reads.context_categories, config.embedding_size))
    return ColumnSizes(
        numbers=reads.numbers,
        bins=config.bins,
        vectors=reads.vectors,
        pairs=sizes.pair_features,
        gaps=reads.gaps,
        categories=len(reads.categories),
        context_numbers=reads.context_numbers,
        user_features=sizes.user_feature_size,
        context_categories=len(reads.context_categories),
        pairs_are_context=int(reads.context_of_pairs),
        own=own,
        depth=reads.candidate_size - reads.numbers * config.bins + own,
        context_depth=reads.context_size - reads.context_numbers * config.bins + context_own,
        pair_depth=reads.pair_size,
    )


def network_sizes(reads: CardReads, config: CardValueConfig, member: Weights) -> NetworkSizes:
    """The network's sizes, padded to what a register holds."""
    paired = len(member["pair_hidden.weight"]) if "pair_hidden.weight" in member else 0
    return NetworkSizes(
        members=config.members,
        width=rounded(config.width),
        true_width=config.width,
        inner_width=rounded(config.feed_forward_size),
        heads=config.heads,
        head_size=config.width // config.heads,
        layers=config.layers,
        attends=int(reads.attends),
        steered=rounded(config.bias_hidden, 4) if "bias_out.weight" in member else 0,
        paired=rounded(paired, 4),
        low_rank=rounded(len(member["low_weight"])) if "low_weight" in member else 0,
        shares=int(not reads.scores_pairs),
    )


@lru_cache(maxsize=64)
def places_of(k: ColumnSizes, s: NetworkSizes, N: int) -> tuple[ColumnPlaces, NetworkPlaces, int]:
    """Room for everything the kernels keep; products take four rows at a time, so rows come in fours."""
    span, n, D = rounded(N), rounded(N, 4), s.width
    pair_span = rounded(N * (N - 1) // 2) + 16
    columns = {
        "present": span + 16, "known": span,
        **dict.fromkeys(("values", "level", "rank", "piece", "part"), k.numbers * span + 16),
        "rows": n * k.depth, "context": 4 * k.context_depth + 16, "context_piece": 2 * k.context_numbers,
        "pair_rows": k.pair_depth * pair_span + 16, "standard": N * N if k.pairs else 0,
    }  # fmt: skip
    network = {
        "start": max(4 * D, s.low_rank),
        "nodes": n * D,
        "normed": n * D,
        "wide": n * max(3 * D, s.inner_width, s.low_rank) + 4 * D,
        "query": D * span,
        "square": span * span + 16,
        "mixed": (rounded(s.true_width, 4) + 4) * span,
        "hidden": max(s.steered, s.paired) * STRETCH,
        "steering": rounded(s.heads * s.layers, 4) * pair_span if s.steered else 0,
        "scores": 4 * pair_span if s.paired else 0,
        "node": span,
    }
    places, used = laid_out(columns | network)
    of_columns = ColumnPlaces(span=span, pair_span=pair_span, **{name: places[name] for name in columns})
    return of_columns, NetworkPlaces(**{name: places[name] for name in network}), used + 64


def _stacked(parts: list[Any], shape: tuple[int, ...], kind: type) -> np.ndarray:
    return np.ascontiguousarray(parts, kind) if parts else np.zeros(shape, kind)


def _table_shape(codes: tuple[int, ...], most: int) -> tuple[tuple[np.ndarray, ...], int]:
    """Where each column's table begins, its width and its rows; and where the last one ends."""
    widths = widths_of(codes, most)
    ends = np.cumsum([0, *(n * width for n, width in zip(codes, widths, strict=True))])
    return (ends[:-1].astype(np.int64), np.array(widths, np.int64), np.array(codes, np.int64)), int(ends[-1])


def _tables(member: Weights, kinds: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    names = ("categories", "context_categories")
    return [
        member[f"{name}.tables.{c}.weight"]
        for name, codes in zip(names, kinds, strict=True)
        for c in range(len(codes))
    ]


def _weights(member: Weights, s: NetworkSizes, k: ColumnSizes) -> list[np.ndarray]:
    """One member's weights in the order in which the kernel reads them."""
    parts = [padded_row(member["item.bias"] + member["context.bias"], s.width)]
    for name, numbers, depth in (
        ("context", k.context_numbers, k.context_depth),
        ("item", k.numbers, k.depth),
    ):
        weight = member[f"{name}.weight"]
        parts.append(_of_pieces(weight[:, : numbers * k.bins], numbers, k.bins, s.width))
        parts.append(padded(weight[:, numbers * k.bins :], depth, s.width))
    if s.steered:
        parts += _two_layers(member, "bias", s.steered, rounded(s.heads * s.layers, 4), LOG2_E)
    for number in range(s.layers):
        parts += _layer(part_of(member, f"layers.{number}"), s)
    parts += [*padded_norm(member, "norm", s.width), *padded_linear(member, "node_hidden", s.width, s.width)]
    parts += [padded_row(member[f"{name}.weight"][0], s.width) for name in ("node_out", "node_linear")]
    parts.append(member["offset"])
    if s.paired:
        parts.append(_rows(member["pair_linear.weight"], 4, k.pair_depth))
        parts += _two_layers(member, "pair", s.paired, 4)
    if s.low_rank:
        low = member["low_weight"]
        parts += [
            padded(member["low.weight"], s.width, s.low_rank),
            padded_row(low / math.sqrt(len(low)), s.low_rank),
        ]
    return [*parts, member["user_bias"]]


def _layer(layer: Weights, s: NetworkSizes) -> list[np.ndarray]:
    D, F, parts = s.width, s.inner_width, []
    if s.attends:
        scale = np.repeat(np.array([LOG2_E / math.sqrt(s.head_size), 1, 1], np.float32), s.true_width)
        weight = in_groups((layer["project.weight"] * scale[:, None]).T, 3, D)  # D 3*D
        parts += [*padded_norm(layer, "attention_norm", D), _rows(weight, D, 3 * D)]
        parts.append(in_groups(layer["project.bias"] * scale, 3, D))
        parts += padded_linear(layer, "join", s.true_width, D)
    parts += [
        *padded_norm(layer, "feed_forward_norm", D),
        *padded_linear(layer, "widen", D, F),
        *padded_linear(layer, "narrow", F, D),
    ]
    return parts


def _of_pieces(weight: np.ndarray, numbers: int, bins: int, width: int) -> np.ndarray:
    """What the first 0, 1, 2, ... pieces of each number weigh together."""
    each = weight.T.reshape(numbers, bins, len(weight)).astype(np.float64)
    sums = np.zeros((numbers, bins + 1, width), np.float32)
    sums[:, 1:, : len(weight)] = each.cumsum(1)
    return sums


def _two_layers(member: Weights, name: str, hidden: int, outs: int, scale: float = 1.0) -> list[np.ndarray]:
    first, second = member[f"{name}_hidden.weight"], member[f"{name}_out.weight"] * np.float32(scale)
    return [
        _rows(first, hidden, first.shape[1]), padded_row(member[f"{name}_hidden.bias"], hidden),
        _rows(second, outs, hidden), padded_row(member[f"{name}_out.bias"] * np.float32(scale), outs),
    ]  # fmt: skip


def _rows(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Zeros to the right and below."""
    return np.pad(matrix, [(0, rows - matrix.shape[0]), (0, columns - matrix.shape[1])])
