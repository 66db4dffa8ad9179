"""Our own methods under the rivals' contract: what validation decides where there are ids alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from card_logs import write_log
from exactk.data import Dataset, Meta
from exactk.data.logs.frame import from_frame
from exactk.data.sample import sample_log
from exactk.evaluation import metrics
from exactk.evaluation.ours import fit_card_value, fit_gattn
from exactk.rivals.contract import Budget, Logs

CANDIDATES, REQUESTS, USERS, ITEMS = 6, 24, 40, 150


def impressions(clicks_are_new: bool) -> list[dict[str, Any]]:
    """Users who click what is new to them, having passed over the rest again and again; or who click what they passed
    over the time before."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for user in range(USERS):
        order = list(rng.permutation(ITEMS))
        known, last = order[:12], order[12]
        for time in range(REQUESTS):
            fresh = order[13 + 5 * time : 18 + 5 * time]
            if clicks_are_new:
                clicked, others = fresh[0], list(rng.permutation(known)[: CANDIDATES - 1])
            else:
                clicked, others = last, fresh
                last = fresh[0]
            shown = rng.permutation([clicked, *others])
            card = [clicked, others[0]]
            rows.append(
                {
                    "request_id": len(rows),
                    "user_id": user,
                    "candidates": [f"i{i}" for i in shown],
                    "card": [f"i{i}" for i in card],
                    "clicked": True,
                    "clicked_item": f"i{clicked}",
                    "timestamp": 10 * time,
                }
            )
    return rows


@pytest.mark.parametrize(("clicks_are_new", "remembers"), [(True, True), (False, False)])
def test_validation_decides_whether_a_policy_of_ids_remembers(
    tmp_path: Path, clicks_are_new: bool, remembers: bool
) -> None:
    data = Dataset.open(
        write_log(tmp_path / "log", impressions(clicks_are_new), meta=Meta(K=2, N=CANDIDATES))
    )
    train, valid, test = Logs.of(*data.split("time"))
    fitted = fit_gattn(train, valid, Budget(trials=2, epochs=4))
    assert fitted.chosen["preset"] == "best-ids"
    assert (fitted.chosen["memory"] > 0) == remembers
    if remembers:
        batch = next(test.batches(512))
        assert batch.clicked_position is not None
        cards = fitted.ways["GAttN + RLfD"].recommend(batch)
        assert (cards == batch.clicked_position[:, None]).any(1).mean() > 0.9
        assert fitted.valid_score > 0.9


def test_where_all_cards_were_clicked_a_policy_of_features_has_nothing_to_remember(tmp_path: Path) -> None:
    shown = impressions(clicks_are_new=True)[:200]
    items = [{"item_id": f"i{i}", "features": [float(i % 3), float(i % 7)]} for i in range(ITEMS)]
    users = [{"user_id": u, "features": [float(u % 2)]} for u in range(USERS)]
    meta = Meta(K=2, N=CANDIDATES)
    train, valid, _ = Logs.of(
        *Dataset.open(write_log(tmp_path / "log", shown, items, users, meta)).split("random")
    )
    fitted = fit_gattn(train, valid, Budget(trials=2, epochs=1))
    assert fitted.chosen["inputs"] == "features"
    assert fitted.chosen["memory"] == 0


def test_a_card_value_competes_with_all_columns_of_a_log() -> None:
    log = sample_log(requests=250)
    columns = {name: name for name in ("request_id", "user_id", "item_id", "clicked", "on_card", "position")}
    train, valid, test = Logs.of(*from_frame(log.rows.drop_columns(["dwell"]), columns, log.items).split())
    fitted = fit_card_value(train, valid, Budget(trials=1, epochs=1))
    found = []
    for batch in test.batches(256):
        cards = fitted.ways["card value + exact"].recommend(batch)
        assert metrics.valid_cards(batch.requests(), cards).all()
        found.append(cards)
    assert len(np.concatenate(found)) == len(test)
