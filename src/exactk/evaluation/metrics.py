"""What a card scored, request by request: the paper's P@K and HR@K, value, validity, diversity, coverage.

Knows no model and no data file: arrays in, one number per request out, so that two methods can be paired.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from exactk.errors import InputError
from exactk.problem.batch import Batch
from exactk.problem.graph import Requests, is_valid_card


def card_figures(cards: Int[np.ndarray, "B K"], batch: Batch) -> dict[str, np.ndarray]:
    """The rewards and the clicked item on the card, the overlap with the logged card, and the whole of it; NaN where
    unknown.
    """
    if batch.card is None or batch.clicked_position is None or batch.clicked is None:
        return {}
    rewards = {} if batch.reward is None else {"rewards": rewards_on_card(cards, batch.reward)}
    return rewards | {
        "precision": clicked_item_on_card(cards, batch.clicks, batch.clicked_position),
        "hit_ratio": overlap(cards, batch.card, batch.clicked),
        "whole_card": whole_card(cards, batch.card, batch.clicked),
    }


def found_click(
    cards: Int[np.ndarray, "B K"], clicked_position: Int[np.ndarray, "B"]
) -> Float[np.ndarray, "B"]:
    """I(a* in A) of the paper's P@K, its mean: is the clicked item in the card; NaN where nothing was clicked."""
    inside = (cards == clicked_position[:, None]).any(1)
    return np.where(clicked_position >= 0, inside, np.nan)


def clicks_on_card(cards: Int[np.ndarray, "B K"], clicks: Float[np.ndarray, "B N"]) -> Float[np.ndarray, "B"]:
    """The share of a request's clicks that fall on items of the card; NaN where nothing was clicked.

    With one click it is 1 or 0: is the clicked item on the card. Of clicks on a, a and b, a card with a has 2/3.
    """
    clicks = clicks.astype(np.float64)
    total = clicks.sum(1)
    caught = np.where(cards >= 0, np.take_along_axis(clicks, cards.clip(0), 1), 0.0).sum(1)
    return np.where(total > 0, caught / np.maximum(total, 1e-12), np.nan)


def rewards_on_card(
    cards: Int[np.ndarray, "B K"], reward: Float[np.ndarray, "B N"]
) -> Float[np.ndarray, "B"]:
    """The share of a request's rewards that the card holds; a missing one and one below nothing count as nothing."""
    return clicks_on_card(cards, np.nan_to_num(reward, nan=0.0).clip(0))


def clicked_item_on_card(
    cards: Int[np.ndarray, "B K"],
    clicks: Float[np.ndarray, "B N"] | None,
    clicked_position: Int[np.ndarray, "B"] | None,
) -> Float[np.ndarray, "B"]:
    """Over all that was shown: every click of a list counts; the one on the card, where the log tells no other."""
    if clicks is not None and clicks.any():
        return clicks_on_card(cards, clicks)
    if clicked_position is not None:
        return found_click(cards, clicked_position)
    return np.full(len(cards), np.nan)


def whole_card(
    cards: Int[np.ndarray, "B K"], true_cards: Int[np.ndarray, "B L"], relevant: Bool[np.ndarray, "B"]
) -> Float[np.ndarray, "B"]:
    """1 where the card holds exactly the items of the true one; NaN where that is empty or not `relevant`."""
    shared = overlap(cards, true_cards, relevant)
    return np.where(np.isnan(shared), np.nan, shared >= 1.0)


def overlap(
    cards: Int[np.ndarray, "B K"],
    true_cards: Int[np.ndarray, "B L"],
    relevant: Bool[np.ndarray, "B"] | None = None,
) -> Float[np.ndarray, "B"]:
    """|A ∩ A*| / K of the paper's HR@K, its mean, K being the size of A*; NaN where A* is empty or not `relevant`.

    Cards are sets padded with -1: card [3, 0, 2, -1] against [0, 3, 7, -1] shares 2 of 3.
    """
    true_size = (true_cards >= 0).sum(1)
    shared = ((cards[:, :, None] == true_cards[:, None, :]) & (cards[:, :, None] >= 0)).any(1).sum(1)
    known = true_size > 0 if relevant is None else (true_size > 0) & relevant
    return np.where(known, shared / np.maximum(true_size, 1), np.nan)


def valid_cards(requests: Requests, cards: Int[np.ndarray, "B K"]) -> Bool[np.ndarray, "B"]:
    """Which cards keep the promise: `card_size` distinct present positions, every rule kept."""
    if len(cards) != len(requests):
        raise InputError(f"{len(cards)} cards for {len(requests)} requests; one card each is needed")
    return np.array([is_valid_card(requests, b, card[card >= 0]) for b, card in enumerate(cards)], np.bool_)


def diversity(cards: Int[np.ndarray, "B K"], distance: Float[np.ndarray, "B N N"]) -> Float[np.ndarray, "B"]:
    """Mean distance over the unordered pairs of a card; NaN for a card with no pair."""
    used = cards >= 0
    safe = np.where(used, cards, 0)
    between = distance[np.arange(len(cards))[:, None, None], safe[:, :, None], safe[:, None, :]]  # B K K
    pair = np.triu(np.ones((cards.shape[1],) * 2, bool), 1) & used[:, :, None] & used[:, None, :]
    num_pairs = pair.sum((1, 2))
    total = np.where(pair, between, 0.0).sum((1, 2))
    return np.where(num_pairs > 0, total / np.maximum(num_pairs, 1), np.nan)


def cosine_distance(features: Float[np.ndarray, "B N F"]) -> Float[np.ndarray, "B N N"]:
    """1 - cos(angle) between every two candidates: 0 same direction, 2 opposite; a zero vector: 1 to all."""
    norm = np.linalg.norm(features, axis=-1, keepdims=True)
    unit = features / np.where(norm > 0, norm, 1.0)
    return 1.0 - unit @ unit.transpose(0, 2, 1)


def coverage(shown: Int[np.ndarray, "..."], available: Int[np.ndarray, "..."]) -> float:
    """The share of the available items that were shown at least once (item indices, -1 = none)."""
    could = np.unique(available[available >= 0])
    did = np.unique(shown[shown >= 0])
    return float(np.isin(could, did).sum() / len(could)) if len(could) else float("nan")


def mean(per_request: Float[np.ndarray, "B"] | Bool[np.ndarray, "B"]) -> float:
    """The mean over the requests the metric speaks about; NaN when there is none."""
    known = per_request[~np.isnan(per_request)]
    return float(known.mean()) if len(known) else float("nan")
