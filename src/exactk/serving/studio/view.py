"""Everything the page shows: of one request its columns and rules, graph, cards of several methods, reasons; and the
model's own story.

Knows who works out each part, and how much of the time each may take; values are sums of scores and pair scores of
the chosen items, less what broken preferences cost.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exactk.data.columns import SENT_MEASURES
from exactk.data.requests import Request
from exactk.data.requests.builder import RequestBuilder
from exactk.errors import InputError
from exactk.problem.deadline import Deadline
from exactk.problem.rules.constraints import Constraints
from exactk.problem.rules.explain import infeasible_error
from exactk.serving.http import problem_of
from exactk.serving.http.wire import constraints_of, request_of
from exactk.serving.model import Arm
from exactk.serving.routes import weights_of
from exactk.serving.schemas import ViewRequest
from exactk.serving.studio.scene import Scene, Weights, best_card, methods, policy_card, scene_of, weights_by
from exactk.serving.studio.why import reasons, rule_states


def view(champion: Arm | None, asked: ViewRequest, ends: float) -> dict[str, Any]:
    """All of it, by the time it ends; `unfinished` names the parts that there was not enough time for."""
    deadline = Deadline(ends).part(0.9)
    model = champion if asked.scored_by == "model" else None
    on = constraints_of([switch.rule for switch in asked.constraints if switch.on])
    k = max(min(asked.k, len(asked.items) - len(asked.exclude)), 1)
    request = request_of(asked, asked.items, k)
    weighed = weights_by(model, request) if model is not None else _given(asked)
    scene = scene_of(asked.items, weighed, on, k, (asked.include, asked.exclude), deadline)
    best = best_card(scene, deadline)
    policy = None
    if best is not None and model is not None:
        policy = policy_card(model, request, on, deadline.part(0.3).ends)
    rows = methods(scene, best, policy, deadline)
    problem = None if best is not None else _problem(scene, deadline.part(0.5))
    rules, all_costed = rule_states(scene, asked.constraints, best, deadline.part(0.4))
    why, all_said = reasons(scene, best, deadline)
    late = {
        "best": best is not None and not best["optimal"],
        "problem": problem is not None and "unfinished" in problem,
        "rules": best is not None and not all_costed,
        "why": best is not None and not all_said,
    }
    builder = None if model is None else model.loaded.recommender.fitted.builder
    return {
        "items": [_item_shown(item, model is not None) for item in asked.items],
        "scores": weighed.scores.tolist(),
        "share": _share(weighed.scores),
        "pair_scores": None if weighed.pairs is None else weighed.pairs.tolist(),
        **columns_read(asked, on, builder, request),
        "rules": rules,
        "conflicts": np.argwhere(np.triu(scene.forbidden, 1)).tolist(),
        "excluded": np.flatnonzero(~scene.requests.present[0]).tolist(),
        "best": best,
        "problem": problem,
        "methods": rows,
        "why": why,
        "unfinished": [part for part, lacks in late.items() if lacks],
        "attention": weighed.attention,
        "influence": weighed.influence,
    }


def _item_shown(item: dict[str, Any], score_came_along: bool) -> dict[str, Any]:
    """What the page shows of an item: text only, short; its score apart, where that is what weighs it."""
    apart = {"item_id", "title", "category"} | (set() if score_came_along else {"score"})
    rest = {
        name: str(value)[:80]
        for name, value in item.items()
        if name not in apart and isinstance(value, str | int | float | bool)
    }
    return {
        "item_id": item["item_id"],
        "title": str(item.get("title") or item["item_id"])[:120],
        "category": str(item.get("category") or "")[:60],
        "attributes": rest,
    }


def _share(scores: np.ndarray) -> list[float]:
    """How long the bar of each score is."""
    span = float(scores.max() - scores.min()) or 1.0
    shares: list[float] = (0.08 + 0.92 * (scores - scores.min()) / span).tolist()
    return shares


def _given(asked: ViewRequest) -> Weights:
    """Scores and pair scores as they came."""
    if asked.scored_by == "model":
        raise InputError("there is no model here to score with")
    N, given = len(asked.items), asked.scores
    if given is None:
        held = [item.get("score", 0.0) for item in asked.items]
        if not all(isinstance(score, int | float) and abs(score) < 1e15 for score in held):
            raise InputError("each item needs a number as its score, or the request a list of scores")
        given = [float(score) for score in held]
    if len(given) != N:
        raise InputError(f"there are {N} items and {len(given)} scores; each item needs one")
    return Weights(*weights_of(given, asked.pair_scores))


def _problem(scene: Scene, deadline: Deadline) -> dict[str, Any]:
    """What blocks the request, in the words of `/v1/solve`."""
    if scene.sheet.feasible(scene.sheet.pieces(), deadline.part(0.5)) is False:
        return {"blocking": []} | problem_of(infeasible_error(scene.sheet, deadline=deadline))
    return {"title": "No valid card was found", "detail": "the search ran out of time", "blocking": [],
            "unfinished": ["search"]}  # fmt: skip


SHOWN = ("item_id", "title", "category")  # what the page itself shows of an item
MODEL, SCORES = "the model", "the score"


def columns_read(
    asked: ViewRequest, constraints: Constraints, builder: RequestBuilder | None, request: Request
) -> dict[str, Any]:
    """Columns with their readers; names that the model (without one: anybody) does not read; names that it misses.

    Without a builder no model scores this request.
    """
    of_items = list(dict.fromkeys(name for item in asked.items for name in item))
    sent = frozenset().union(*request.attributes.values())
    unread = set() if builder is None else set(builder.unread(sent, request.context))
    readers: dict[tuple[str, str], list[str]] = {}
    places = [("candidate", name) for name in of_items] + [("request", name) for name in request.context]
    for place, name in places:
        found = []
        if builder is not None and name not in unread and name not in SHOWN:
            found.append(MODEL)
        if place == "candidate":
            if builder is None and name == "score" and asked.scores is None:
                found.append(SCORES)
            named = zip(constraints.names, constraints.rules, strict=True)
            found += [rule_name for rule_name, rule in named if name in rule.fields]
        readers[place, name] = found
    columns = [
        {"of": place, "name": name, "read_by": found}
        for (place, name), found in readers.items()
        if found or name not in SHOWN
    ]
    return {
        "columns": columns,
        "context": {name: str(value)[:80] for name, value in request.context.items()},
        "unread": [each["name"] for each in columns if not each["read_by"] or each["name"] in unread],
        "lacking": [] if builder is None else _lacking(builder, of_items, request.context),
    }


def _lacking(builder: RequestBuilder, sent: Sequence[str], context: Mapping[str, Any]) -> list[str]:
    """Names that vary by request; of items and users the catalogue knows, and rolling counts the service keeps."""
    fitted = builder.vocabulary.columns
    logged_as = fitted.columns.roles  # the score or the position may bear the log's name for it
    wanted = [
        name
        for name in (*fitted.candidate_numbers.names, *fitted.candidate_categories.names, *SENT_MEASURES)
        if name not in fitted.rolling and name in builder.columns.candidate_names
    ]
    return [
        *(name for name in wanted if name not in sent and logged_as.get(name) not in sent),
        *(name for name in fitted.columns.context.names if name not in context),
    ]


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
