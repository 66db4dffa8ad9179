"""The comparison for people: a Markdown table, and a few sentences on which method, by how much, how sure.

Knows figures only; where a rival wins it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exactk.evaluation.significance import Interval
from exactk.evaluation.table import HEADLINES, Comparison, Row

SURE = 0.01


def verdict(found: Comparison) -> list[str]:
    """Sentences, the answer first; before it only that a run was quick."""
    if not found.rows:
        return ["No method finished, so there is nothing to compare."]
    if all(row.kind == "probe" for row in found.rows):
        return ["Only a probe was judged, which nobody could serve: there is nothing to compare."]
    said = [_caution(found.facts)] if found.facts.get("quick") else []
    said.append(_winner(found))
    said += _ours(found)
    said += _simple(found)
    said += _leak(found)
    said += _second_judge(found)
    said += _logs(found)
    if found.facts.get("split_unknown"):
        named = ", ".join(found.facts["split_unknown"])
        said.append(
            f"How the log was split for {named} is not known: rows it was trained on may be among those judged."
        )
    if found.skipped:
        said.append(f"Not in the table: {'; '.join(f'{way} ({why})' for way, why in found.skipped.items())}.")
    if found.facts.get("made_earlier"):
        named = ", ".join(found.facts["made_earlier"])
        said.append(f"Kept from earlier runs, by other code or settings than now: {named}.")
    if found.facts.get("without_valid_card"):
        said.append(
            f"{found.facts['without_valid_card']} test requests have no valid card and were left out."
        )
    return said


def _caution(facts: Mapping[str, Any]) -> str:
    trials, epochs = facts["budget"]["trials"], facts["budget"]["epochs"]
    return (
        f"A quick run ({facts['train']:,} cards to learn from, {trials} trial of at most {epochs} epochs, "
        f"{facts['test']:,} test requests): it shows what a comparison looks like, not which method to run. "
        "Leave --quick out for that."
    )


def _winner(found: Comparison) -> str:
    served = [row for row in found.rows if row.kind != "probe"]
    best, name = served[0], HEADLINES[found.headline]
    text = f"Highest {name}: {best.way}, {_shown(found.headline_of(best))}"
    if best.share_of_optimum is not None:
        text += f", {best.share_of_optimum.estimate:.1%} of the optimum"
    if best.way == found.strongest_rival:
        return text + ". A rival wins this table."
    if best.difference is None or best.p_value is None or found.strongest_rival is None:
        return text + "."
    base = found.headline_of(found.row(found.strongest_rival)).estimate
    gain = f"{best.difference.estimate:+.4f} ({best.difference.estimate / base:+.1%})" if base else "better"
    return f"{text}. Against the strongest rival, {found.strongest_rival}: {gain}, {_sure(best.p_value)}."


def _ours(found: Comparison) -> list[str]:
    """Each of our methods that does not win, and how it stands to the strongest rival."""
    said = []
    served = [row for row in found.rows if row.kind != "probe"]
    for row in served[1:]:
        if row.kind not in ("ours", "yours") or row.difference is None or row.p_value is None:
            continue
        side = "above" if row.difference.estimate > 0 else "below"
        said.append(
            f"{row.way} is {abs(row.difference.estimate):.4f} {side} {found.strongest_rival}, {_sure(row.p_value)}."
        )
    return said


def _simple(found: Comparison) -> list[str]:
    """Where counting does as well as learning, nobody should train anything."""
    best = next(row for row in found.rows if row.kind != "probe")
    counted = next((row for row in found.rows if row.way.startswith("popularity")), None)
    if counted is None or counted is best:
        return []
    # Tests are against the strongest rival: if neither stands clear of it, neither does one of the other.
    if any(row.p_value is not None and row.p_value < 0.05 for row in (best, counted)):
        return []
    reached = _shown(found.headline_of(counted))
    return [f"Popularity alone reaches {reached}: what is learned beyond it is within the noise."]


def _leak(found: Comparison) -> list[str]:
    probe = next((row for row in found.rows if row.kind == "probe" and row.precision is not None), None)
    chance = next((row for row in found.rows if row.way == "random" and row.precision is not None), None)
    if probe is None or chance is None or probe.precision is None or chance.precision is None:
        return []
    if probe.precision.low > chance.precision.high * 1.25:
        return [
            f"Beware: the candidates least often seen with a user in train reach P@K {probe.precision.estimate:.3f} "
            f"(chance {chance.precision.estimate:.3f}), so this split leaks and P@K rewards memory."
        ]
    return []


def _second_judge(found: Comparison) -> list[str]:
    """What a click model makes of the order of places, where lists were shown with positions."""
    model = found.facts.get("click_model")
    judged = [row for row in found.rows if row.weighed is not None and row.kind != "probe"]
    if not model or not judged:
        return []
    last = model["examination"][-1]
    said = [
        f"Clicks were made where the logging policy put items: by a {model['kind']} click model the last place was "
        f"looked at {last:.0%} as often as the first, so counting clicks favours the logged order."
    ]
    best = max(judged, key=lambda row: row.weighed or 0.0)
    if best is judged[0]:
        said.append(f"With each click weighed by how rarely its place is looked at, {best.way} still leads.")
    else:
        said.append(
            f"With each click weighed by how rarely its place is looked at, {best.way} leads "
            f"({best.weighed:.4f}; {judged[0].way} {judged[0].weighed:.4f}): trust neither order without a test."
        )
    return said


def _logs(found: Comparison) -> list[str]:
    """What the logs alone could say."""
    estimated = [row for row in found.rows if any(e.interval is not None for e in row.estimates.values())]
    if estimated:
        return [f"The logs support an off-policy estimate for {len(estimated)} of {len(found.rows)} methods."]
    reasons = {e.support.reason for row in found.rows[:1] for e in row.estimates.values()}
    return [f"No off-policy estimate: {reasons.pop()}."] if reasons else []


def markdown(found: Comparison) -> str:
    """The table, best first, and the verdict below it."""
    columns = [column for column in COLUMNS if any(_cell(found, row, column) for row in found.rows)]
    lines = [
        "| " + " | ".join(COLUMNS[column].format(K=found.facts.get("K", "K")) for column in columns) + " |",
        "|" + "|".join("---" if column == "way" else "---:" for column in columns) + "|",
    ]
    lines += ["| " + " | ".join(_cell(found, row, column) for column in columns) + " |" for row in found.rows]
    sentences = "\n".join(f"- {sentence}" for sentence in verdict(found))
    return "\n".join(lines) + f"\n\n{sentences}\n"


COLUMNS = {
    "way": "method", "value": "true value", "share_of_optimum": "of optimum", "precision": "clicked item",
    "hit_ratio": "HR@{K}", "whole_card": "whole card", "weighed": "weighed clicks",
    "estimates": "estimated from logs", "p_value": "p against strongest rival", "valid_rate": "valid",
    "diversity": "diversity", "coverage": "coverage", "ms_per_card": "ms a card",
    "ms_alone": "ms alone", "train_seconds": "training s",
}  # fmt: skip


def studio_table(found: Comparison) -> dict[str, Any]:
    """The table as the studio shows it: one figure to a cell, no intervals; what nobody knows is left out."""
    rows = []
    for row in found.rows:
        cells: dict[str, Any] = {}
        for column, title in COLUMNS.items():
            value = getattr(row, column)
            value = value.estimate if isinstance(value, Interval) else value
            if isinstance(value, str | float) and value == value:
                cells[title.format(K=found.facts.get("K", "K"))] = value
        rows.append(cells)
    return {"rows": rows, "verdict": verdict(found)}


def _cell(found: Comparison, row: Row, column: str) -> str:
    value = getattr(row, column)
    if column == "way":
        mark = {"ours": "**{}**", "yours": "**{}**", "probe": "_{}_"}.get(row.kind, "{}")
        return mark.format(value)
    if column == "estimates":
        best = next((e for kind in ("dr", "snips") if (e := value.get(kind)) and e.interval), None)
        return f"{_shown(best.interval)} {best.estimator}" if best is not None and best.interval else ""
    if column == "p_value":
        return "strongest" if row.way == found.strongest_rival else "" if value is None else f"{value:.4f}"
    if isinstance(value, Interval):
        return f"{value.estimate:.1%}" if column == "share_of_optimum" else _shown(value)
    if value is None or np.isnan(value):
        return ""
    if column in ("valid_rate", "coverage"):
        return f"{value:.1%}" if column == "coverage" else f"{value:.2%}"
    return f"{value:.0f}" if column == "train_seconds" else f"{value:.3f}"


def _shown(interval: Interval | None) -> str:
    if interval is None or np.isnan(interval.estimate):
        return ""
    return f"{interval.estimate:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def _sure(p_value: float) -> str:
    if p_value < SURE:
        return f"and that is sure (p = {p_value:.4f})"
    if p_value < 0.05:
        return f"and that is likely (p = {p_value:.3f})"
    return f"which may be chance (p = {p_value:.2f})"
