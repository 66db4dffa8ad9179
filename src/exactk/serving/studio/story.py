"""What the page tells of a model: facts, training curves, its comparison table.

Knows models through the Recommender's parts, no route.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from exactk.serving.model.arms import Arm

SKIPPED = {"step", "steps", "epoch", "seconds", "samples_per_second", "learning_rate"}
MAX_CURVES = 6


def story(arm: Arm) -> dict[str, Any]:
    """Facts, curves and table of the model that serves now."""
    state = arm.state()
    rules = arm.loaded.recommender.fitted.constraints.names
    facts = {
        "model": state["kind"].replace("_", " "),
        "version": state["version"],
        "items on a card": state["card_size"],
        "users known": state["users"],
        "items known": state["items"],
        "rules": "; ".join(rules) or "none",
        "serving since": state["since"],
    }
    history = list(arm.loaded.recommender.history)
    return {"facts": facts, "curves": curves(history), "comparison": comparison(arm.folder)}


def curves(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per task, event and figure that was reported at least twice."""
    lines: dict[str, list[float]] = {}
    for row in history:
        for name, value in row.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name in SKIPPED or not number or not math.isfinite(value):
                continue
            when = {"train": "in training", "valid": "on validation"}.get(str(row.get("event")), "")
            title = f"{row.get('task', 'model')}: {name.replace('_', ' ')} {when}".strip()
            lines.setdefault(title, []).append(float(value))
    long = [{"name": name, "values": values[-200:]} for name, values in lines.items() if len(values) > 1]
    return sorted(long, key=lambda line: "validation" not in line["name"])[:MAX_CURVES]


def comparison(folder: Path) -> dict[str, Any] | None:
    """The table of `comparison.json` beside the model, in the shape of every report: rows of named figures."""
    try:
        rows = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["rows"]
        columns = list(dict.fromkeys(name for row in rows for name in row))[:10]
        cells = [[_cell(row.get(name)) for name in columns] for row in rows[:40]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # there is none, or it is of another make: the model serves all the same
    ours = next((i for i, row in enumerate(cells) if row and "exactk" in str(row[0]).lower()), -1)
    return {"columns": columns, "rows": cells, "ours": ours}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value)
