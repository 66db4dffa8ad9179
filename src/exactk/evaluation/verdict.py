"""The comparison for people: a Markdown table, a few sentences on which method, by how much, how sure; and a picture.

Knows figures only; where a rival wins it says so. matplotlib is asked for when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exactk.errors import MissingExtraError
from exactk.evaluation.significance import Interval
from exactk.evaluation.table import HEADLINES, Comparison, Row

SURE = 0.01


def verdict(found: Comparison) -> list[str]:
    """Sentences, the answer first; before it only that a run was quick."""
    if not found.rows:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.skipped.items())
        return [f"No method finished, so there is nothing to compare ({reasons})."]
    if not found.served:
        return ["Only a probe was judged, and a probe cannot be served: there is nothing to compare."]
    said = [_caution(found.facts)] if found.facts.get("quick") else []
    said.append(_winner(found))
    said += _ours(found)
    said += _simple(found)
    said += _alike(found)
    said += _leak(found)
    said += _second_judge(found)
    said += _logs(found)
    if found.facts.get("split_unknown"):
        named = ", ".join(found.facts["split_unknown"])
        said.append(
            f"How the log was split for {named} is not known: rows it was trained on may be among those judged."
        )
    if found.skipped:
        ways_by_reason: dict[str, list[str]] = {}
        for way, why in found.skipped.items():
            ways_by_reason.setdefault(why.rstrip(". "), []).append(way)
        listed = "; ".join(f"{', '.join(ways)} ({why})" for why, ways in ways_by_reason.items())
        said.append(f"Not in the table: {listed}.")
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
    best, name = found.served[0], HEADLINES[found.headline]
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
    for row in found.served[1:]:
        if row.kind not in ("ours", "yours") or row.difference is None or row.p_value is None:
            continue
        side = "above" if row.difference.estimate > 0 else "below"
        said.append(
            f"{row.way} is {abs(row.difference.estimate):.4f} {side} {found.strongest_rival}, {_sure(row.p_value)}."
        )
    return said


def _simple(found: Comparison) -> list[str]:
    """Where counting does as well as learning, nobody should train anything."""
    best = found.served[0]
    counted = next((row for row in found.rows if row.way.startswith("popularity")), None)
    if counted is None or counted is best:
        return []
    # Tests are against the strongest rival: if neither stands clear of it, neither does one of the other.
    if any(row.p_value is not None and row.p_value < 0.05 for row in (best, counted)):
        return []
    reached = _shown(found.headline_of(counted))
    return [f"Popularity alone reaches {reached}: what is learned beyond it is within the noise."]


def _alike(found: Comparison) -> list[str]:
    """Rows that are one: of methods that know nothing of what was offered, chance has the word."""
    said = []
    for methods in found.facts.get("same_cards", ()):
        others = [name for name in methods if name != "random"]
        blind = len(others) < len(methods)
        named = f"{', '.join(others)} and random" if blind else ", ".join(methods)
        why = "; nothing they read tells these candidates apart" * blind
        said.append(f"The same cards in every request: {named}{why}.")
    if any(row.method == "logged-policy" and row.kind == "probe" for row in found.rows):
        said.append(
            "The logged policy showed what is counted here, so it always holds it: a probe, not a rival."
        )
    return said


def _leak(found: Comparison) -> list[str]:
    reached = {row.method: row.precision for row in found.rows if row.precision is not None}
    probe, chance = reached.get("least-seen"), reached.get("random")
    if probe is None or chance is None or probe.low <= chance.high * 1.25:
        return []
    return [
        f"Beware: the candidates least often seen with a user in train hold the clicked item in {probe.estimate:.1%} "
        f"of the requests (chance {chance.estimate:.1%}), so this split leaks and the clicked item rewards memory."
    ]


def _second_judge(found: Comparison) -> list[str]:
    """What a click model makes of the order of places, where lists were shown with positions."""
    model = found.facts.get("click_model")
    if model and "needed" in model:
        return [
            "Clicks were made where the logging policy put items, which favours its order; the "
            f"{model['fitted_on']} clicks on validation are too few to correct for that ({model['needed']} are needed)."
        ]
    judged = [row for row in found.served if row.weighed is not None]
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
        return f"not by chance (p = {p_value:.4f})"
    if p_value < 0.05:
        return f"probably not by chance (p = {p_value:.3f})"
    return f"which may be chance (p = {p_value:.2f})"


NAME_HEIGHT = 0.036  # of a name, as a part of the plot's height
COLOURS = {"ours": "#c2410c", "yours": "#c2410c", "rival": "#475569", "probe": "#cbd5e1"}


def value_against_latency(found: Comparison, path: Path | str) -> Path:
    """The best way of every method: headline figure with its 95% interval over milliseconds for one request alone.

    Written as PNG, PDF or SVG, by the path's ending.
    """
    figure = _figure()
    axes = figure.subplots()
    best = {row.method: row for row in reversed(found.served)}
    rows = [row for row in found.rows if row is best.get(row.method)]
    for row in rows:
        interval = found.headline_of(row)
        spread = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
        axes.errorbar(
            row.ms_alone, interval.estimate, yerr=spread, fmt="o", color=COLOURS[row.kind],
            markersize=7 if row.kind in ("ours", "yours") else 5, capsize=2, elinewidth=1,
        )  # fmt: skip
    if found.optimum is not None and found.headline == "value":
        axes.axhline(found.optimum, color="#94a3b8", linewidth=1, linestyle="--")
        axes.annotate("exact optimum", (1, found.optimum), xycoords=("axes fraction", "data"), ha="right", fontsize=7,
                      xytext=(0, 3), textcoords="offset points", color="#64748b")  # fmt: skip
    _names(axes, found, rows)  # last: they stand by the limits of the plot
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("milliseconds for one request (log scale)")
    axes.set_ylabel(HEADLINES[found.headline])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return Path(path)


def _names(axes: Any, found: Comparison, rows: list[Row]) -> None:
    """The names in a column beside the plot, in the order of their points, each with a thin line to its own."""
    axes.set_xscale("log")
    low, high = axes.get_ylim()
    points = [found.headline_of(row).estimate for row in rows]
    heights = spread_out([(point - low) / (high - low) for point in points], NAME_HEIGHT)
    for row, point, height in zip(rows, points, heights, strict=True):
        ours = row.kind in ("ours", "yours")
        axes.annotate(
            row.way, (row.ms_alone, point), xytext=(1.03, height), textcoords="axes fraction", fontsize=8,
            va="center", color=COLOURS[row.kind], weight="bold" if ours else "normal",
            arrowprops={"arrowstyle": "-", "color": COLOURS[row.kind], "alpha": 0.6 if ours else 0.2, "linewidth": 0.6,
                        "shrinkA": 2, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def spread_out(heights: list[float], gap: float) -> list[float]:
    """Heights, highest first, moved as little as keeps `gap` between neighbours; none below zero if they fit.

    >>> spread_out([0.9, 0.89, 0.1], 0.05)
    [0.9, 0.85, 0.1]
    """
    found: list[float] = []
    for height in heights:
        found.append(min(height, found[-1] - gap) if found else height)
    floor = 0.0
    for place in reversed(range(len(found))):
        found[place] = max(found[place], floor)
        floor = found[place] + gap
    return found


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'exactk[plot]'") from error
    return Figure(figsize=(9, 6), dpi=150, layout="constrained")
