"""The audit finds planted leaks, measures by hand numbers, and reports on the authors' files what was found there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from card_logs import random_impressions, random_log, write_log
from exactk.data import Dataset, Meta
from exactk.data.audit import audit
from exactk.data.movielens import build_movielens
from exactk.data.probes import expected_hits
from exactk.data.published import build_published
from exactk.data.stats import stats
from exactk.problem.constraints import AtMost, Constraints, Distinct

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


def graves(report: dict[str, Any]) -> list[str]:
    return [line.split(":")[0] for line in report["verdict"]]


def test_ties_share_the_places_that_are_left() -> None:
    score = np.array([[3.0, 1.0, 1.0, 1.0, 0.0]])
    present = np.ones((1, 5), bool)
    # Card of 2: the 3.0 is in, one place is left for the three 1.0s, none for the 0.0.
    hits = expected_hits(score, present, np.array([[0, 1, 2, 4, -1]]), np.array([2]))
    assert hits.tolist() == [[1.0, pytest.approx(1 / 3), pytest.approx(1 / 3), 0.0, 0.0]]


@given(seed=st.integers(0, 500), N=st.integers(2, 12), levels=st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_expected_hits_agree_with_drawing_ties_at_random(seed: int, N: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    score = rng.integers(levels, size=(1, N)).astype(float)
    present = rng.random((1, N)) < 0.8
    present[0, 0] = True
    K = int(rng.integers(1, present.sum() + 1))
    expected = expected_hits(score, present, np.arange(N)[None], np.array([K]))[0] * present[0]
    drawn = np.zeros(N)
    for _ in range(2000):
        order = np.lexsort((rng.random(N), -score[0], ~present[0]))
        drawn[order[:K]] += 1 / 2000
    np.testing.assert_allclose(drawn, expected, atol=0.06)
    assert expected.sum() == pytest.approx(K)


def leaky(seed: int = 0) -> list[dict[str, Any]]:
    """Each user has ten stale items that come back again and again, and clicks only what is new."""
    rng = np.random.default_rng(seed)
    rows = []
    for r in range(400):
        user = int(rng.integers(8))
        stale = 1000 * user + rng.permutation(10)[:5]
        new = 100_000 + r
        rows.append(
            {
                "request_id": r,
                "user_id": user,
                "candidates": rng.permutation([new, *stale]).tolist(),
                "card": [new, int(stale[0])],
                "clicked": True,
                "clicked_item": new,
            }
        )
    return rows


def test_a_planted_leak_is_found_and_the_split_by_user_is_clean(tmp_path: Path) -> None:
    dataset = Dataset.open(write_log(tmp_path / "log", leaky()))
    report = audit(dataset)
    assert report["least_seen"]["precision"] == 1.0
    assert report["chance"]["precision"] == pytest.approx(2 / 6)
    assert report["pairs"] == {"unclicked_seen_before": 1.0, "clicked_seen_before": 0.0}
    assert not report["clean"]
    assert graves(report)[0] == "LEAK"
    assert "100.0% of test requests (chance 33.3%)" in report["verdict"][0]
    by_user = audit(dataset, by="user")
    assert by_user["clean"]
    assert by_user["overlap"]["users"] == 0.0
    assert by_user["least_seen"]["precision"] == pytest.approx(2 / 6)


def test_random_logs_have_no_leak(tmp_path: Path) -> None:
    report = audit(random_log(tmp_path / "log", num=600))
    assert report["clean"]
    assert report["least_seen"]["precision"] == pytest.approx(report["chance"]["precision"], abs=0.15)


def test_popularity_is_clicks_per_showing(tmp_path: Path) -> None:
    def shown(request: int, click: str, split: str) -> dict[str, Any]:
        return {
            "request_id": request, "user_id": request, "candidates": ["a", "b", "c"], "card": [click],
            "clicked": True, "clicked_item": click, "split": split,
        }  # fmt: skip

    train = [shown(r, "a", "train") for r in range(6)] + [shown(r, "b", "train") for r in range(6, 9)]
    test = [shown(10, "a", "test"), shown(11, "a", "test"), shown(12, "c", "test"), shown(13, "a", "test")]
    report = audit(Dataset.open(write_log(tmp_path / "log", train + test)))
    # "a" is clicked most per showing: picked for the card of one in all four, right in three.
    assert report["popularity"]["precision"] == 0.75
    assert report["popularity"]["hit_ratio"] == 0.75
    assert report["chance"]["precision"] == pytest.approx(1 / 3)


def test_two_cards_over_the_same_candidates_are_one_showing(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"request_id": r, "user_id": u, "candidates": list(c), "card": [c[at]], "clicked": at == 0, "split": split}
        for r, u, c, at, split in [
            (0, 0, "ax", 0, "train"), (0, 0, "ax", 1, "train"), (1, 0, "by", 0, "train"), (2, 1, "ba", 0, "test"),
        ]
    ]  # fmt: skip
    for row in rows:
        row["clicked_item"] = row["card"][0] if row["clicked"] else None
    # "a" and "b" were each offered once and clicked once: a tie, though "a" stood in two rows.
    report = audit(Dataset.open(write_log(tmp_path / "log", rows)), seed=1)
    assert report["labels"]["valid"]["impressions"] == 0
    assert report["popularity"]["precision"] == 0.5


def test_cards_that_break_rules_and_requests_without_any_are_counted(tmp_path: Path) -> None:
    items = [{"item_id": i, "brand": b} for i, b in zip("abcd", "xxyx", strict=True)]
    rows = [
        {"request_id": 0, "user_id": 0, "candidates": list("abc"), "card": ["a", "c"]},
        {"request_id": 1, "user_id": 0, "candidates": list("abc"), "card": ["a", "b"]},
        {"request_id": 2, "user_id": 0, "candidates": list("abd"), "card": ["a", "b"]},
    ]
    meta = Meta(constraint=Constraints.of([Distinct("brand")]).to_dict())
    validity = audit(Dataset.open(write_log(tmp_path / "log", rows, items, meta=meta)))["validity"]
    assert validity["cards_breaking_rules"] == 2
    assert validity["example_rows"] == [1, 2]
    assert validity["feasible_requests"] == pytest.approx(2 / 3)


def test_caps_count_as_rules(tmp_path: Path) -> None:
    rules = Constraints.of([AtMost("category", 1)])
    dataset = random_log(tmp_path / "log", num=100, constraint=rules.to_dict())
    validity = audit(dataset)["validity"]
    category = {f"i{i}": i % 5 for i in range(40)}
    cards = dataset.impressions()["card"].to_pylist()
    broken = sum(len({category[i] for i in card}) < len(card) for card in cards)
    assert 0 < validity["cards_breaking_rules"] == broken


def test_propensities_tell_what_the_log_can_support(tmp_path: Path) -> None:
    rows = random_impressions(100)
    assert audit(Dataset.open(write_log(tmp_path / "a", rows)))["propensity"]["share"] == 1.0
    certain = [row | {"propensity": 1.0} for row in rows]
    report = audit(Dataset.open(write_log(tmp_path / "b", certain)))
    assert any("with certainty" in line for line in report["verdict"])
    lopsided = [row | {"propensity": 1e-6 if r == 0 else 0.5} for r, row in enumerate(rows)]
    report = audit(Dataset.open(write_log(tmp_path / "c", lopsided)))
    assert report["propensity"]["effective_share"] == pytest.approx(
        0.01, rel=0.01
    )  # one row outweighs the rest
    without = [{name: row[name] for name in row if name != "propensity"} for row in rows]
    assert audit(Dataset.open(write_log(tmp_path / "d", without)))["propensity"] == {
        "recorded": 0,
        "share": 0.0,
    }


@pytest.mark.parametrize(
    ("clicked", "words"), [(False, "nothing to learn from"), (True, "every card of train was clicked")]
)
def test_one_sided_labels_are_warned_of(tmp_path: Path, clicked: bool, words: str) -> None:
    names = ("request_id", "user_id", "candidates", "card")
    rows = [{name: row[name] for name in names} | {"clicked": clicked} for row in random_impressions(60)]
    report = audit(Dataset.open(write_log(tmp_path / "log", rows)))
    assert any(words in line for line in report["verdict"])
    assert "cannot be probed" in " ".join(report["verdict"])  # no clicked item is named anywhere


def test_repeated_cards_are_seen_as_overlap_whatever_their_order(tmp_path: Path) -> None:
    rows = [
        {"request_id": r, "user_id": 1, "candidates": list("abcd"), "card": card, "split": split}
        for r, (card, split) in enumerate([(["a", "b"], "train"), (["b", "a"], "test"), (["a", "c"], "test")])
    ] + [{"request_id": 9, "user_id": 2, "candidates": list("abcd"), "card": ["a", "b"], "split": "test"}]
    dataset = Dataset.open(write_log(tmp_path / "log", rows))
    assert audit(dataset)["overlap"]["cards"] == pytest.approx(1 / 3)
    assert stats(dataset)["cards"] == 3


def test_an_audit_is_plain_json_and_the_same_each_time(tmp_path: Path) -> None:
    dataset = random_log(tmp_path / "log", num=200)
    first, second = (json.dumps(audit(dataset, limit=10), allow_nan=False) for _ in range(2))
    assert first == second
    assert json.loads(first)["probed_requests"] <= 10


def test_stats_count_what_occurs(tmp_path: Path) -> None:
    rows = [
        {"request_id": 0, "user_id": 1, "candidates": ["a", "b", "c"], "card": ["a"], "clicked": True},
        {"request_id": 0, "user_id": 1, "candidates": ["a", "b", "c"], "card": ["b"], "clicked": False},
        {"request_id": 1, "user_id": 2, "candidates": ["a", "b"], "card": ["a", "b"], "clicked": False},
    ]
    items = [{"item_id": i} for i in "abcdef"]
    counted = stats(Dataset.open(write_log(tmp_path / "log", rows, items)))
    assert (counted["samples"], counted["requests"], counted["users"], counted["items"]) == (3, 2, 2, 3)
    assert counted["catalogue"] == {"users": 2, "items": 6}
    assert counted["K"] == {"least": 1, "mean": pytest.approx(4 / 3), "most": 2}
    assert counted["N"]["least"] == 2
    assert counted["click_rate"] == pytest.approx(1 / 3)
    json.dumps(counted)


@pytest.mark.parametrize(
    ("release", "popular", "hit", "least_seen", "seen"),
    [("k4-n20", 0.468, 0.259, 0.973, 0.96), ("k10-n50", 0.498, 0.224, 0.997, 0.99)],
)
def test_the_authors_files_show_what_was_found_in_them(
    tmp_path: Path, release: str, popular: float, hit: float, least_seen: float, seen: float
) -> None:
    if not (SHARED / "exactk-published").is_dir():
        pytest.skip("the authors' files are not on this machine")
    report = audit(build_published(tmp_path / "log", SHARED / "exactk-published", release))
    assert report["popularity"]["precision"] == pytest.approx(popular, abs=0.001)
    assert report["popularity"]["hit_ratio"] == pytest.approx(hit, abs=0.001)
    # Ties are averaged here; the first measurement drew them once.
    assert report["least_seen"]["precision"] == pytest.approx(least_seen, abs=0.005)
    assert report["pairs"]["unclicked_seen_before"] == pytest.approx(seen, abs=0.005)
    assert report["pairs"]["clicked_seen_before"] == 0.0
    assert not report["clean"]
    assert any("look drawn at random" in line for line in report["verdict"])


def test_the_leak_free_protocol_is_clean_and_popularity_is_strong(tmp_path: Path) -> None:
    if not (SHARED / "ml-100k").is_dir():
        pytest.skip("MovieLens-100K is not on this machine")
    report = audit(build_movielens(tmp_path / "log", SHARED / "ml-100k", 4, 20))
    assert report["clean"]
    assert report["least_seen"]["precision"] == pytest.approx(0.2, abs=0.005)
    assert report["popularity"]["precision"] == pytest.approx(0.488, abs=0.03)
