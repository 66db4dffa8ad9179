"""What a dataset is, gives away and cannot teach, and what to do about it, before anything is trained.

Knows no model; its probes are counts. Of an audit, history is train and valid together, what is measured is test; stats
know no split, and stand beside the paper's table where the data is the paper's.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, UInt64

from exactk.data.assemble import entries, padded
from exactk.data.audit.probes import (
    HistoryCounts,
    at_most,
    candidates_of,
    card_recovery,
    expected_hits,
    list_probes,
)
from exactk.data.audit.verdict import findings
from exactk.data.dataset import Dataset, expect_dataset
from exactk.data.logs.coding import NO_TIMESTAMP
from exactk.data.split import Method, default_method
from exactk.data.table import SPLITS
from exactk.problem.exact import cliques
from exactk.problem.graph import is_valid_card
from exactk.problem.ties import finish

FINGERPRINTED, PROBED = 1 << 16, 4096  # impressions at a time


def stats(dataset: Dataset) -> dict[str, Any]:
    """Counts of the view, as plain values: what `exactk data stats` prints.

    `users` and `items` are those that occur in impressions, `cards` distinct (user, card) pairs, `samples`
    impressions: the columns of the paper's dataset table. Lists shown whole have no cards; K is what they ask for.
    """
    index, rows = dataset.folder.index, dataset.rows
    candidates = np.diff(index.candidate_start)[rows]
    carded = index.card_start[rows + 1] > index.card_start[rows]
    moments = index.timestamp[rows]
    dated = moments != NO_TIMESTAMP
    vocabulary = dataset.vocabulary(columns=False)
    columns = {f"{carrier} {kind}": len(names) for carrier, kind, names in dataset.folder.columns.groups()}
    if rolling := dataset.folder.names.rolling:
        columns["rolling numbers"] = len(rolling)
    described: dict[str, Any] = {
        "path": str(dataset.path),
        "source": dataset.meta.provenance.get("source"),
        "samples": len(dataset),
        "requests": len(np.unique(index.request[rows])),
        "users": vocabulary.num_users - 1,
        "items": vocabulary.num_items - 1,
        "cards": len(np.unique(card_fingerprints(dataset)[carded])),
        "catalogue": {"users": len(index.user_features), "items": len(index.item_features)},
        "K": _spread(dataset.folder.card_sizes(rows)),
        "N": _spread(candidates),
        "clicked": int(dataset.clicked.sum()),
        "click_rate": float(dataset.clicked.mean()) if len(dataset) else None,
        "user_features": index.user_features.shape[1],
        "item_features": index.item_features.shape[1],
        "columns": columns,
        "signal": list(dataset.signal.names),
        "with_propensity": int(np.isfinite(index.propensity[rows]).sum()),
        "with_timestamp": int(dated.sum()),
        "recorded_split": {name: int((index.split[rows] == s).sum()) for s, name in enumerate(SPLITS)},
        "constraint": list(dataset.constraints.names) if dataset.constraints else [],
        "recorded_graphs": dataset.folder.has_graphs,
    }
    if paper := dataset.meta.provenance.get("paper"):
        described["paper"] = {
            name: {"paper": said, "here": described[name], "equal": described[name] == said}
            for name, said in paper.items()
        }
    return described


def _spread(counts: np.ndarray) -> dict[str, Any]:
    if not len(counts):
        return {"least": None, "mean": None, "most": None}
    return {"least": int(counts.min()), "mean": float(counts.mean()), "most": int(counts.max())}


def card_fingerprints(dataset: Dataset) -> np.ndarray:
    """A number for each impression's (user, card), the same for the same set of items in any order.

    Of 64 bits: one collision is expected at 6 billion.
    """
    index, prints = dataset.folder.index, []
    for first in range(0, len(dataset), FINGERPRINTED):
        rows = dataset.rows[first : first + FINGERPRINTED]
        owner, cards = entries(index.card_start, rows)
        item = index.candidates[index.candidate_start[rows][owner] + index.card[cards]]
        total = np.zeros(len(rows), np.uint64)
        np.add.at(total, owner, _mixed(item.astype(np.uint64)))  # a sum: the order of a card carries nothing
        prints.append(_mixed(total ^ _mixed(index.user[rows].astype(np.uint64) + np.uint64(1 << 40))))
    return np.concatenate(prints) if prints else np.empty(0, np.uint64)


def _mixed(value: UInt64[np.ndarray, "R"]) -> UInt64[np.ndarray, "R"]:
    """Every input bit reaches every output bit."""
    out = np.empty_like(value)
    finish(value, out)
    return out


def audit(dataset: Dataset, by: Method | None = None, seed: int = 0, limit: int = 20_000) -> dict[str, Any]:
    """Measure leakage, popularity, labels, validity and propensities; at most `limit` test requests are probed.

    The kind of log decides the measure: the clicked item for lists, the whole card where all cards were chosen.

    Plain values only: what `exactk data audit --json` prints. `verdict` is a list of sentences, `clean` is False
    where a leak was found.
    """
    parts = dict(zip(SPLITS, expect_dataset(dataset, "dataset").split(by, seed), strict=True))
    train, valid, test = parts.values()
    history = Dataset(dataset.folder, np.sort(np.concatenate([train.rows, valid.rows])))
    clicked = test.demonstrations()
    probed = _first_of_requests(clicked.take(clicked.folder.index.clicked_position[clicked.rows] >= 0))
    probed = at_most(probed, limit, seed)
    signal = dataset.signal
    measured: dict[str, Any] = {
        "signal": {"names": list(signal.names), **asdict(signal)},
        "lists": list_probes(history, test, limit, seed) if signal.lists or signal.rewards else None,
        "recovery": card_recovery(history, test, limit, seed) if signal.positives_only else None,
        "split": {
            "by": by or default_method(dataset.folder.index, dataset.rows),
            **{name: len(view) for name, view in parts.items()},
        },
        "probed_requests": len(probed),
        "overlap": _overlap(history, test),
        **_probes(history, probed),
        "labels": {
            name: {"impressions": len(view), "clicked": float(view.clicked.mean()) if len(view) else None}
            for name, view in parts.items()
        },
        "validity": _validity(dataset, seed),
        "propensity": _propensity(dataset),
    }
    said = findings(measured)
    measured["verdict"] = [f"{grave}: {text}" for grave, text in said]
    measured["clean"] = not any(grave == "LEAK" for grave, _ in said)
    return measured


def _first_of_requests(view: Dataset) -> Dataset:
    """One impression a request: two cards over the same candidates would count them twice."""
    _, first = np.unique(view.folder.index.request[view.rows], return_index=True)
    return view.take(np.sort(first))


def _overlap(history: Dataset, test: Dataset) -> dict[str, float | None]:
    """Shares of test's users and cards met before."""
    index = history.folder.index
    users = np.unique(index.user[test.rows])
    carded = index.card_start[1:] > index.card_start[:-1]  # a list shown whole has none
    cards = card_fingerprints(test.take(carded[test.rows]))
    before = card_fingerprints(history.take(carded[history.rows]))
    return {
        "users": float(np.isin(users, index.user[history.rows]).mean()) if len(users) else None,
        "cards": float(np.isin(cards, before).mean()) if len(cards) else None,
    }


def _probes(history: Dataset, probed: Dataset) -> dict[str, Any]:
    """How well two counts that know nothing of taste find the clicked item of test."""
    if not len(probed) or not len(history):
        return {"least_seen": None, "popularity": None, "chance": None, "pairs": None}
    users = np.unique(probed.folder.index.user[probed.rows]).astype(np.int64)
    counts = HistoryCounts.of(_first_of_requests(history), history.demonstrations(), users)
    hits: dict[str, list[np.ndarray]] = {"least_seen": [], "popularity": [], "chance": []}
    shared: dict[str, list[np.ndarray]] = {name: [] for name in hits}
    seen: list[np.ndarray] = []
    clicks: list[np.ndarray] = []
    mechanical: list[np.ndarray] = []
    index = probed.folder.index
    for rows, item in candidates_of(probed, PROBED):
        card = padded(rows, index.card_start, index.card)
        click = index.clicked_position[rows].astype(np.int64)
        times = counts.times_seen(index.user[rows].astype(np.int64), item)
        shown = (card >= 0).sum(axis=1)
        size = np.where(shown > 0, shown, np.minimum(probed.meta.K or 0, (item >= 0).sum(axis=1)))
        scores = (-times.astype(np.float64), counts.positive_rate(item), np.zeros(item.shape))
        for name, score in zip(hits, scores, strict=True):
            hits[name].append(expected_hits(score, item >= 0, click[:, None], size)[:, 0])
            held = expected_hits(score, item >= 0, card, size).sum(axis=1)
            shared[name].append(held[shown > 0] / shown[shown > 0])
        companions = _random_companions(hits["popularity"][-1], size, (item >= 0).sum(axis=1))
        mechanical.append(companions[shown > 0])
        at_click = np.arange(item.shape[1]) == click[:, None]
        seen.append((times > 0)[(item >= 0) & ~at_click])
        clicks.append((times > 0)[at_click])
    measured: dict[str, Any] = {
        name: {"precision": _mean(found), "error": _error(found), "hit_ratio": _mean(shared[name])}
        for name, found in hits.items()
    }
    measured["popularity"]["hit_ratio_of_random_companions"] = _mean(mechanical)
    measured["pairs"] = {"unclicked_seen_before": _mean(seen), "clicked_seen_before": _mean(clicks)}
    return measured


def _random_companions(
    precision: Float64[np.ndarray, "B"], K: Int64[np.ndarray, "B"], N: Int64[np.ndarray, "B"]
) -> Float64[np.ndarray, "B"]:
    """HR@K that follows from P@K alone where the clicked item's companions are drawn at random.

    K=4, N=20, P=0.468: (0.468 + 3.532 * 3/19) / 4 = 0.256.
    """
    return np.asarray((precision + (K - precision) * (K - 1) / np.maximum(N - 1, 1)) / K)


def _mean(blocks: list[np.ndarray]) -> float | None:
    flat = np.concatenate(blocks) if blocks else np.empty(0)
    return float(flat.mean()) if len(flat) else None


def _error(blocks: list[np.ndarray]) -> float | None:
    flat = np.concatenate(blocks) if blocks else np.empty(0)
    return float(flat.std() / np.sqrt(len(flat))) if len(flat) else None


def _validity(dataset: Dataset, seed: int, limit: int = 2000) -> dict[str, Any]:
    """Of a sample: logged cards that break the rules, and requests for which some valid card exists."""
    sample = at_most(dataset, limit, seed)
    broken: list[int] = []
    feasible: list[np.ndarray] = []
    shown = 0
    vocabulary = sample.vocabulary(columns=False)
    for number, batch in enumerate(sample.batches(vocabulary, 256)):
        requests = batch.requests()
        feasible.append(cliques.exists(requests))
        cards = batch.card if batch.card is not None else np.empty((len(batch), 0), np.int64)
        for b, card in enumerate(cards):
            if (card >= 0).any():
                shown += 1
                if not is_valid_card(requests, b, card[card >= 0]):
                    broken.append(int(sample.rows[256 * number + b]))
    return {
        "constrained": dataset.constraints is not None or dataset.folder.has_graphs,
        "cards_checked": shown,
        "cards_breaking_rules": len(broken),
        "example_rows": broken[:5],
        "requests_checked": len(sample),
        "feasible_requests": _mean(feasible),
    }


def _propensity(dataset: Dataset) -> dict[str, Any]:
    """What off-policy estimates can lean on: how many impressions, how small the smallest, how even."""
    values = dataset.folder.index.propensity[dataset.rows]
    known = values[np.isfinite(values)]
    if not len(known):
        return {"recorded": 0, "share": 0.0}
    weights = 1 / known
    return {
        "recorded": len(known),
        "share": len(known) / len(values),
        "least": float(known.min()),
        "median": float(np.median(known)),
        "most": float(known.max()),
        "certain": float((known > 0.999).mean()),
        "effective_share": float(weights.sum() ** 2 / (weights**2).sum() / len(known)),
    }
