"""The weights a model must have, by name and shape: what a saved one is held against, and what warms the compiler.

Knows no numbers in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from exactk.settings.config import (
    CardValueConfig,
    Config,
    Inputs,
    InputSizes,
    PairValueConfig,
    PolicyConfig,
    RewardConfig,
    decided,
)

Shapes = dict[str, tuple[int, ...]]

SHARING_PACE = 5.0  # Adam takes small steps, and the weights of what three items share must go far
MOST_NUMBERS = 24  # item features beyond these are a vector, read as they are
MOST_GAPS = 16  # columns of numbers of which every two candidates are compared
MOST_PAIRS = 16_777_213  # a prime: where a log has more pairs, those that share a number are not neighbours


def shapes_of(config: Config, sizes: InputSizes, card_size: int) -> dict[str, Shapes]:
    """Of the policy and of the value that the settings describe."""
    if config.model == "card_value" and sizes.columns:
        return {"value": card_value(config.card_value, config.pair_value, sizes)}
    if config.model != "policy":
        return {"value": pair_value(config.pair_value, sizes)}
    own = config.pair_value if config.reward.kind == "pair" else config.reward
    value = pair_value(own, sizes) if isinstance(own, PairValueConfig) else reward(own, sizes, card_size)
    guide = value if config.policy.guided else {}
    return {"policy": policy(config.policy, sizes, guide), "value": value}


def blank(shapes: Shapes) -> dict[str, np.ndarray]:
    """Zeros of these shapes."""
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def pair_value(config: PairValueConfig, sizes: InputSizes) -> Shapes:
    """A learned value of items and pairs."""
    found: Shapes = {}
    E, H, C, Z = config.embedding_size, config.hidden_size, config.kinds, config.place_size
    for m in range(config.members):
        tables, user, item = _vectors(config.inputs, sizes, E)
        member = {
            **_below("vectors", tables),
            "table": (C, C),
            "closeness": (),
            "choice_scale": (),
            **_linear("map_user", user, E),
            **_linear("map_item", item, E),
            "node_linear.weight": (1, item),
            **_linear("node_item", item, H),
            "node_user.weight": (H, user),
            "node_both.weight": (H, E),
            "node_out.weight": (1, H),
            **_linear("kinds", item, C),
            **_linear("places", item, Z),
            **_linear("minding", user, 1),
            **_linear("user_bias", user, 1),
        }
        if config.triples:
            member |= {f"sharing.{name}": (item,) for name in ("weight", "level", "sharpness")}
        found |= _below(f"members.{m}", member)
    return found


class CardReads(NamedTuple):
    """How much of each kind a card value reads, by what the log offers and what users saw of it."""

    attends: bool  # candidates see each other
    scores_pairs: bool
    context_of_pairs: bool  # of each candidate, its pairs with the others
    places: bool
    features_are_numbers: bool
    numbers: int
    vectors: int  # numbers read as they are
    context_numbers: int  # how many candidates there are among them
    gaps: int  # numbers of which every two candidates are compared
    pair_size: int
    candidate_size: int  # but for embeddings, and what the pair value makes of ids and features
    context_size: int
    categories: tuple[int, ...]
    context_categories: tuple[int, ...]
    base: bool  # ids, or features of users and items, are worth a pair value's terms

    @classmethod
    def of(cls, config: CardValueConfig, pairs: PairValueConfig, sizes: InputSizes) -> CardReads:
        """Only what a user saw can have swayed a click: by default candidates attend to each other where all were.

        The place of an item is what came from upstream where the list was seen whole; on a card alone it is a
        consequence of the decision to be made.
        """
        attends = config.attention == "always" or (config.attention == "auto" and sizes.shown != "card")
        scores_pairs = sizes.shown != "list"
        F, P = sizes.item_feature_size, sizes.pair_features
        as_numbers, places = F <= MOST_NUMBERS, sizes.placed and sizes.shown == "list"
        numbers = sizes.candidate_numbers + F * as_numbers + sizes.scored + places
        vectors, context_numbers = F * (not as_numbers) + sizes.item_vector_size, 1 + sizes.context_numbers
        categories, gaps = sizes.item_categories + sizes.candidate_categories, min(numbers, MOST_GAPS)
        of_pairs = 3 * P * (attends and scores_pairs)
        return cls(
            attends=attends,
            scores_pairs=scores_pairs,
            context_of_pairs=attends and scores_pairs,
            places=places,
            features_are_numbers=as_numbers,
            numbers=numbers,
            vectors=vectors,
            context_numbers=context_numbers,
            gaps=gaps,
            pair_size=3 * P + 2 * gaps + len(categories),
            candidate_size=numbers * (config.bins + 3) + vectors + of_pairs,
            context_size=context_numbers * (config.bins + 1) + sizes.user_feature_size,
            categories=categories,
            context_categories=sizes.context_categories + sizes.user_categories,
            base=decided(pairs.inputs, sizes) == "features" or sizes.items_recur,
        )


def widths_of(categories: Sequence[int], embedding_size: int) -> list[int]:
    """Numbers of each category's embedding: few where it has few values."""
    return [min(embedding_size, 2 + count // 4) for count in categories]


def card_value(config: CardValueConfig, pairs: PairValueConfig, sizes: InputSizes) -> Shapes:
    """What reads every column of a log."""
    D, L, P, reads = config.width, config.layers, sizes.pair_features, CardReads.of(config, pairs, sizes)
    found: Shapes = {"inputs.pair_mean": (P,), "inputs.pair_deviation": (P,)}
    found |= {"inputs.score_mean": (), "inputs.score_deviation": ()}
    for name, count in (("numbers", reads.numbers), ("context_numbers", reads.context_numbers)):
        found |= {f"inputs.{name}.knots": (count, config.bins + 1), f"inputs.{name}.used": (count,)}
    item_size, context_size = reads.candidate_size, reads.context_size
    member: Shapes = {}
    if reads.base:
        base = pair_value(replace(pairs, members=1), sizes)
        member |= {name.replace("members.0.", "base.", 1): shape for name, shape in base.items()}
        item_size += _vectors(pairs.inputs, sizes, pairs.embedding_size)[2] + pairs.embedding_size
    for name, codes in (("categories", reads.categories), ("context_categories", reads.context_categories)):
        tables = zip(codes, widths_of(codes, config.embedding_size), strict=True)
        member |= {f"{name}.tables.{c}.weight": shape for c, shape in enumerate(tables)}
    member |= _linear("item", item_size + sum(widths_of(reads.categories, config.embedding_size)), D)
    context_size += sum(widths_of(reads.context_categories, config.embedding_size))
    member |= _linear("context", context_size, D)
    for layer in range(L):
        member |= _below(f"layers.{layer}", _card_layer(config, reads.attends))
    if reads.attends and reads.pair_size and L:
        member |= _linear("bias_hidden", reads.pair_size, config.bias_hidden)
        member |= _linear("bias_out", config.bias_hidden, config.heads * L)
    member |= {**_norm("norm", D), **_linear("node_hidden", D, D)}
    member |= {"node_out.weight": (1, D), "node_linear.weight": (1, D)}
    member |= {"offset": (), "user_bias": (), "choice_scale": ()}
    if reads.scores_pairs and reads.pair_size:
        member |= {"pair_linear.weight": (1, reads.pair_size)}
        member |= _linear("pair_hidden", reads.pair_size, config.pair_hidden)
        member |= _linear("pair_out", config.pair_hidden, 1)
    if reads.scores_pairs and config.low_rank:
        member |= {"low.weight": (config.low_rank, D), "low_weight": (config.low_rank,)}
    for m in range(config.members):
        found |= _below(f"members.{m}", member)
    return found


def _card_layer(config: CardValueConfig, attending: bool) -> Shapes:
    D, F = config.width, config.feed_forward_size
    own = {**_norm("feed_forward_norm", D), **_linear("widen", D, F), **_linear("narrow", F, D)}
    if attending:
        own |= {**_norm("attention_norm", D), **_linear("project", D, 3 * D), **_linear("join", D, D)}
    return own


def _norm(name: str, size: int) -> Shapes:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def policy(config: PolicyConfig, sizes: InputSizes, guide: Shapes) -> Shapes:
    """GAttN; with the value that guides it, if any."""
    D, F = config.width, config.feed_forward_size
    tables, user, item = _vectors(config.inputs, sizes, config.embedding_size)
    found = {
        **_below("inputs.vectors", tables),
        **_linear("inputs.item_weight", item, D),
        "inputs.user_weight.weight": (D, user),
        **_linear("encoder.embed", D, D),
        "pointer.keys.weight": (2 * D, D),
        "pointer.glimpse_query.weight": (D, D),
        "pointer.glimpse_vector.weight": (1, D),
        "pointer.pointer_query.weight": (D, 2 * D),
        "pointer.pointer_vector.weight": (1, D),
    }
    for layer in range(config.encoder_layers):
        found |= _below(f"encoder.layers.{layer}", _encoder_layer(D, F, config.attention == "shared"))
    for layer in range(config.decoder_layers):
        found |= {f"pointer.recurrent.weight_{kind}_l{layer}": (4 * D, D) for kind in ("ih", "hh")}
        found |= {f"pointer.recurrent.bias_{kind}_l{layer}": (4 * D,) for kind in ("ih", "hh")}
    if config.affinity or config.memory:
        found |= _below("affinity", dict(_affinity(config, sizes)))
    if guide:
        found |= {"guide.scale": (), **_below("guide.value", guide)}
    return found


def reward(config: RewardConfig, sizes: InputSizes, card_size: int) -> Shapes:
    """The paper's estimator, or the one that reads sets."""
    E, D, H = config.embedding_size, config.width, config.hidden_size
    found: Shapes = {}
    tables, user, item = _vectors(config.inputs, sizes, E)
    member = _below("vectors.vectors", tables)
    for side, size in (("user", user), ("item", item)):
        member |= {} if size == E else _linear(f"vectors.map_{side}", size, E)
    if config.kind == "pnn":
        member |= _linear("hidden", card_size + card_size * E + E, H)
    else:
        member |= _linear("from_item", E, D) | {f"from_{name}.weight": (D, E) for name in ("user", "both")}
        member |= _linear("hidden", D + 1, H)
        for layer in range(config.layers):
            member |= _below(f"layers.{layer}", _encoder_layer(D, 2 * D, shared=False))
    for m in range(config.members):
        found |= _below(f"members.{m}", member | _linear("out", H, 1))
    return found


def _affinity(config: PolicyConfig, sizes: InputSizes) -> Iterator[tuple[str, tuple[int, ...]]]:
    inputs, rank = decided(config.inputs, sizes), config.affinity
    with_ids, with_features = inputs != "features", inputs != "ids"
    if with_ids:
        yield "items.weight", (sizes.num_items, rank + 1)
    if with_ids and rank:
        yield "users.weight", (sizes.num_users, rank)
    if with_features and sizes.user_feature_size and rank:
        yield from _linear("from_user", sizes.user_feature_size, rank).items()
    if with_features and sizes.item_feature_size:
        yield from _linear("from_item", sizes.item_feature_size, rank + 1).items()
    if config.memory:
        yield "pairs", (min(sizes.num_users * sizes.num_items, MOST_PAIRS),)


def _vectors(inputs: Inputs, sizes: InputSizes, embedding_size: int) -> tuple[Shapes, int, int]:
    """Tables of ids, and the numbers of x_u and x_s."""
    inputs = decided(inputs, sizes)
    user, item = (0, 0) if inputs == "ids" else (sizes.user_feature_size, sizes.item_feature_size)
    if inputs == "features":
        return {}, user, item
    E = embedding_size
    return {"users.weight": (sizes.num_users, E), "items.weight": (sizes.num_items, E)}, user + E, item + E


def _encoder_layer(width: int, feed_forward_size: int, shared: bool) -> Shapes:
    D, F = width, feed_forward_size
    return {
        "attention.project.weight": (D if shared else 3 * D, D),
        "attention.join.weight": (D, D),
        **_linear("widen", D, F),
        **_linear("narrow", F, D),
        **_norm("attention_norm", D),
        **_norm("feed_forward_norm", D),
    }


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _below(name: str, shapes: Shapes) -> Shapes:
    return {f"{name}.{key}": shape for key, shape in shapes.items()}
