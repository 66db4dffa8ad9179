"""What came along with a request, by column: of candidates, of the request; who reads it, and what is not read.

Knows the names a model was fitted on, no values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exactk.data.columns.roles import SENT_MEASURES
from exactk.data.requests.builder import RequestBuilder
from exactk.data.requests.request import Request
from exactk.problem.rules.constraints import Constraints
from exactk.serving.studio.schemas import ViewRequest

SHOWN = ("item_id", "title", "category")  # what the page itself shows of an item
MODEL, SCORES = "the model", "the score"


def columns_told(
    asked: ViewRequest, constraints: Constraints, builder: RequestBuilder | None, request: Request
) -> dict[str, Any]:
    """Columns with their readers; names that the model (without one: anybody) does not read; names that it misses.

    Without a builder no model scores this request.
    """
    of_items = list(dict.fromkeys(name for item in asked.items for name in item))
    sent = frozenset().union(*request.attributes.values())
    unread = set() if builder is None else set(builder.unread(sent, request.context))
    readers: dict[tuple[str, str], list[str]] = {}
    for place, name in [("candidate", name) for name in of_items] + [
        ("request", name) for name in request.context
    ]:
        found = []
        if builder is not None and name not in unread and name not in SHOWN:
            found.append(MODEL)
        if place == "candidate":
            if builder is None and name == "score" and asked.scores is None:
                found.append(SCORES)
            found += _rules_that_read(constraints, name)
        readers[place, name] = found
    columns = [
        {"of": place, "name": name, "read_by": found}
        for (place, name), found in readers.items()
        if found or name not in SHOWN
    ]
    return {
        "columns": columns,
        "context": {name: _text(value) for name, value in request.context.items()},
        "unread": [each["name"] for each in columns if not each["read_by"] or each["name"] in unread],
        "lacking": [] if builder is None else _lacking(builder, of_items, request.context),
    }


def _rules_that_read(constraints: Constraints, name: str) -> list[str]:
    named = zip(constraints.names, constraints.rules, strict=True)
    return [rule_name for rule_name, rule in named if name in rule.fields]


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


def _text(value: Any) -> str:
    return str(value)[:80]
