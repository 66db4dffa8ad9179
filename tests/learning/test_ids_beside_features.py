"""Features alone, or ids beside them: a short training of each says which, on validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from card_logs import write_log
from exactk.data import Dataset, Meta
from exactk.recommender import Recommender
from exactk.settings.presets import preset

TASTES = 4


def log_of_tastes(path: Path, users: int, items: int, telling: bool) -> Dataset:
    """A card is clicked on the one item of the user's taste; features tell tastes (`telling`), or nothing at all."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for r in range(900):
        user, candidates = int(rng.integers(users)), rng.choice(items, 6, replace=False)
        card = candidates[:2]
        own = [f"i{i}" for i in card if i % TASTES == user % TASTES]
        rows.append(
            {"request_id": r, "user_id": f"u{user}", "candidates": [f"i{c}" for c in candidates],
             "card": [f"i{c}" for c in card], "clicked": bool(own), "clicked_item": own[0] if own else None}
        )  # fmt: skip

    def features(n: int) -> list[float]:
        taste = np.eye(TASTES)[n % TASTES] if telling else rng.normal(size=TASTES)
        return [float(x) for x in taste + rng.normal(0, 0.1, TASTES)]

    known = {
        kind: [{f"{kind}_id": f"{kind[0]}{n}", "features": features(n)} for n in range(count)]
        for kind, count in (("item", items), ("user", users))
    }
    return Dataset.open(write_log(path, rows, known["item"], known["user"], Meta()))


@pytest.mark.parametrize(
    ("users", "items", "telling"),
    [pytest.param(4, 12, False, id="ids"), pytest.param(150, 300, True, id="features")],
)
def test_the_default_reads_ids_where_they_tell_more_than_features(
    users: int, items: int, telling: bool, tmp_path: Path
) -> None:
    train, valid, _ = log_of_tastes(tmp_path / "log", users, items, telling).split(
        by="random", seed=1, valid=0.2
    )
    config = preset("best").with_overrides(["pair_value.members=1", "pair_value.batch_size=64"])
    rec = Recommender(config).fit(train, valid, show=False)
    assert rec.fitted.sizes.ids_tell_more is not telling
    assert rec.config.pair_value.inputs == "auto"
