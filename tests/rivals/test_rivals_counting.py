"""Counting methods against hand counts, and the leak probe on a log that leaks and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from card_logs import write_log
from exactk.data import Dataset
from exactk.rivals.contract import Budget, Logs, tuned
from exactk.rivals.counting import (
    Familiarity,
    ItemCounts,
    fit_least_seen,
    fit_popularity,
    fit_random,
    merged,
)
from exactk.rivals.selection import Judge, scatter
from rival_logs import TINY, planted_logs


def row(request: int, user: str, candidates: str, card: str, clicked: str | None = None) -> dict[str, Any]:
    return {
        "request_id": request,
        "user_id": user,
        "candidates": list(candidates),
        "card": list(card),
        "clicked": clicked is not None,
        "clicked_item": clicked,
    }


def test_counts_by_hand(tmp_path: Path) -> None:
    log = Dataset.open(
        write_log(
            tmp_path / "log",
            [row(0, "u", "abcd", "ab", "a"), row(1, "u", "abc", "bc"), row(2, "v", "abd", "ab", "a")],
        )
    )
    (logs,) = Logs.of(log)
    counts = ItemCounts.of(logs)
    at = logs.vocabulary.item_index(list("abcd"))
    assert counts.clicked[0, at].tolist() == [2, 0, 0, 0]
    assert counts.shown[0, at].tolist() == [2, 3, 1, 0]
    assert counts.offered[0, at].tolist() == [3, 3, 2, 2]
    # Two clicks in six showings: mean 1/3. Smoothed by 3: a (2 + 1) / (2 + 3), b (0 + 1) / (3 + 3), d 1 / 3.
    rate = counts.rate(3.0, "shown")[at]
    assert rate.tolist() == pytest.approx([3 / 5, 1 / 6, 1 / 4, 1 / 3])


def test_an_item_never_met_has_the_mean_rate() -> None:
    counts = ItemCounts(np.array([[0.0, 3.0, 1.0]]), np.array([[0.0, 5.0, 3.0]]), np.array([[0.0, 9.0, 9.0]]))
    assert counts.rate(10.0, "shown")[0] == pytest.approx(0.5)


def test_popularity_finds_the_universal_favourite(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for r in range(600):
        offered = rng.permutation(list("abcdefghij"))[:6]
        card = offered[:2].tolist()
        clicked = next((i for i in card if i in "abc" and rng.random() < 0.9), None)
        rows.append(row(r, f"u{rng.integers(5)}", "".join(offered), "".join(card), clicked))
    log = Dataset.open(write_log(tmp_path / "log", rows))
    train, valid, test = Logs.of(*log.split(by="random", valid=0.2, test=0.2))
    fitted = fit_popularity(train, valid, TINY)
    judge = Judge.of(test, TINY)
    assert judge(fitted.ways["popularity greedy"]) > 0.85
    assert judge(fitted.ways["popularity exact"]) == judge(fitted.ways["popularity greedy"])
    assert judge(fit_random(train, valid, TINY).ways["random"]) == pytest.approx(2 / 6, abs=0.15)


def leaking_rows(num: int, leaks: bool) -> list[dict[str, Any]]:
    """Per user a small pool of disliked items that recur; each positive item is new to its user (or not, if honest)."""
    rng = np.random.default_rng(1)
    rows = []
    for r in range(num):
        user = int(rng.integers(6))
        pool = [f"n{user}-{i}" for i in range(9)]
        positive = f"p{r}" if leaks else pool[0]
        others = rng.permutation(pool[1:])[:5].tolist()
        offered = rng.permutation([positive, *others]).tolist()
        rows.append(
            {
                "request_id": r, "user_id": user, "candidates": offered, "card": [positive, others[0]],
                "clicked": True, "clicked_item": positive,
            }
        )  # fmt: skip
    return rows


def test_least_seen_exposes_a_leak_and_only_a_leak(tmp_path: Path) -> None:
    found = {}
    for leaks in (True, False):
        log = Dataset.open(write_log(tmp_path / str(leaks), leaking_rows(400, leaks)))
        train, valid, test = Logs.of(*log.split(by="random", valid=0.1, test=0.3))
        found[leaks] = Judge.of(test, TINY)(fit_least_seen(train, valid, TINY).ways["least seen"])
    assert found[True] > 0.99
    assert found[False] < 0.35


def test_familiarity_counts_meetings_of_user_and_item() -> None:
    keys, times = merged(np.array([12]), np.array([2]), [np.array([12, 35]), np.array([35])])
    assert keys.tolist() == [12, 35]
    assert times.tolist() == [3, 2]
    from test_rivals_selection import plain_batch

    batch = plain_batch(2, 6, 2)
    batch.user.copy_(torch.tensor([1, 3]))
    met = Familiarity(keys, times, 10)(batch)
    assert met[0].tolist() == [0, 0, -3, 0, 0, 0]  # user 1, item 2 is key 12
    assert met[1].tolist() == [0, 0, 0, 0, 0, -2]  # user 3, item 5 is key 35


def test_chance_is_even_and_depends_on_user_item_and_seed() -> None:
    items = torch.arange(20_000).view(1, -1)
    drawn = scatter(items, torch.tensor([5]))
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.01)
    assert torch.histc(drawn, 10, 0, 1).tolist() == pytest.approx([2000] * 10, abs=200)
    for other in (scatter(items, torch.tensor([6])), scatter(items, torch.tensor([5]), 1), scatter(items)):
        assert torch.corrcoef(torch.cat([drawn, other]))[0, 1].abs() < 0.03


def test_tuning_keeps_to_its_budget_and_takes_the_best() -> None:
    tried = []

    def attempt(setting: Any) -> tuple[str, float]:
        tried.append(setting["x"])
        return f"model {setting['x']}", {1: 0.2, 2: float("nan"), 3: 0.7, 4: 0.9}[setting["x"]]

    settings = [{"x": x} for x in (1, 2, 3, 4)]
    assert tuned(settings, Budget(trials=3), attempt) == ("model 3", {"x": 3}, 0.7)
    assert tried == [1, 2, 3]


def test_without_recorded_items_the_judge_falls_back_to_the_hit_ratio(tmp_path: Path) -> None:
    rows = [{**row(0, "u", "abcd", "ab", "a"), "clicked_item": None}]
    (logs,) = Logs.of(Dataset.open(write_log(tmp_path / "log", rows)))

    class First:
        def recommend(self, batch: Any) -> np.ndarray:
            return np.array([[0, 2]])

    assert Judge.of(logs, TINY)(First()) == pytest.approx(0.5)


def test_views_share_the_vocabulary_of_train(tmp_path: Path) -> None:
    train, valid, test = planted_logs(tmp_path / "log", num=100)
    assert train.vocabulary is valid.vocabulary is test.vocabulary
    assert train.card_size == 3
    assert train.num_candidates == 8
    assert len(train.clicked_only()) == int(train.view.clicked.sum())
