"""The bodies that travel: what a request may say and what an answer says; those of the page's own questions come last.

Knows how routes tell the OpenAPI page of them, no route and no solver. Parsed from bytes by pydantic's compiled reader.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SkipValidation,
    StrictBool,
    StrictInt,
    StrictStr,
    field_validator,
)
from starlette.responses import Response

from exactk.serving.http import MEDIA_TYPE

MAX_CARD = 64
LIMIT = 4096  # of any list, whatever the settings say

Whole = Annotated[StrictInt, Field(ge=-(2**53), le=2**53)]
Text = Annotated[StrictStr, Field(min_length=1, max_length=512)]
Id = Whole | Text
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # whole, too; no text, true or false
Features = list[SkipValidation[float | None]]  # checked beside those of items (`http/wire.py`)
Item = dict[str, Any]
Rule = dict[str, Any]
CardSize = Annotated[StrictInt, Field(ge=1, le=MAX_CARD)]
Relax = Annotated[
    list[Text] | None,
    Field(max_length=64, description="Names of rules to give up, in this order, when no card exists."),
]
Budget = Annotated[
    Number | None, Field(gt=0, description="Time the whole answer may take, from the last byte of the body.")
]
Unfinished = Annotated[list[str], Field(description="What the budget was too short for.", examples=[[]])]
Include = Annotated[
    list[Id], Field(default_factory=list, max_length=MAX_CARD, description="Items that must be on the card.")
]
Exclude = Annotated[
    list[Id], Field(default_factory=list, max_length=LIMIT, description="Items that must not.")
]

_FEW = Field(min_length=1, max_length=LIMIT)
# Ids first: the usual request is read in one pass. No mixture: the ids of a data set are of one type.
Candidates = Annotated[
    Annotated[list[Text], _FEW] | Annotated[list[Whole], _FEW] | Annotated[list[Item], _FEW],
    Field(union_mode="left_to_right"),
]

ITEMS_EXAMPLE: list[Any] = [
    {"item_id": "scarf-red", "title": "merino wool scarf red", "category": "scarf"},
    {"item_id": "scarf-blue", "title": "merino wool scarf blue", "category": "scarf"},
    {"item_id": "beanie", "title": "ribbed beanie", "category": "hat"},
    {"item_id": "boots", "title": "waterproof snow boots", "category": "boots"},
]
SOLVE_EXAMPLE: dict[str, Any] = {
    "k": 3,
    "items": ITEMS_EXAMPLE,
    "scores": [0.94, 0.93, 0.81, 0.61],
    "constraints": [{"type": "title_distance", "minimum": 0.5}],
}
CARDS_EXAMPLE: dict[str, Any] = {
    "user": "u42",
    "candidates": ITEMS_EXAMPLE,
    "context": {"device": "phone"},
    "k": 3,
    "constraints": [{"type": "distinct", "field": "category"}],
    "budget_ms": 50,
}
FEEDBACK_EXAMPLE: dict[str, Any] = {
    "request_id": "643f1c2e4b07d9c1a5e88f02ba", "clicked": True, "clicked_item": "beanie",
}  # fmt: skip


class Body(BaseModel):
    """Base of what clients send: an unknown field is refused by name rather than ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def check_items(items: list[Item] | None) -> list[Item] | None:
    for place, item in enumerate(items or ()):
        item_id = item.get("item_id")
        whole = isinstance(item_id, int) and not isinstance(item_id, bool) and abs(item_id) <= 2**53
        if not whole and not (isinstance(item_id, str) and 0 < len(item_id) <= 512):
            wanted = "a whole number or a text of 1 to 512 characters"
            raise ValueError(f"item {place} needs an item_id: {wanted}")
    return items


class SolveRequest(Body):
    """Scores and rules in. `scores[i]` belongs to `items[i]`; without items, candidates are called 0, 1, 2, ..."""

    model_config = ConfigDict(json_schema_extra={"examples": [SOLVE_EXAMPLE]})

    k: Annotated[CardSize, Field(description="How many items make a card.")]
    scores: Annotated[list[Number], Field(min_length=1, max_length=LIMIT)]
    pair_scores: Annotated[
        list[list[Number]] | None,
        Field(description="Symmetric [N, N]: what a pair adds to the value when both are chosen."),
    ] = None
    items: Annotated[list[Item] | None, Field(max_length=LIMIT)] = None
    constraints: Annotated[list[Rule], Field(default_factory=list, max_length=64)]
    include: Include
    exclude: Exclude
    relax: Relax = None
    explain: StrictBool = False
    budget_ms: Budget = None

    _items = field_validator("items")(check_items)


class CardRequest(Body):
    """One request to the model: who, out of what, how many, under which rules."""

    model_config = ConfigDict(json_schema_extra={"examples": [CARDS_EXAMPLE]})

    user: Annotated[Id | None, Field(description="Null where nobody knows who asks: an unknown user.")]
    candidates: Annotated[
        Candidates,
        Field(description="Item ids, or items with the columns of the log, features and what rules read."),
    ]
    context: Annotated[
        dict[str, Any] | None,
        Field(description="What is true of the request, and of its user, by the names of the log."),
    ] = None
    k: Annotated[CardSize | None, Field(description="The model's own where left out.")] = None
    user_features: Annotated[Features | None, Field(max_length=LIMIT)] = None
    constraints: Annotated[
        list[Rule] | None, Field(max_length=64, description="The model's own where left out; [] for none.")
    ] = None
    include: Include
    exclude: Exclude
    relax: Relax = None
    explain: StrictBool = False
    budget_ms: Budget = None

    @field_validator("candidates")
    @classmethod
    def _each_has_an_id(cls, candidates: list[Any]) -> list[Any]:
        if isinstance(candidates[0], dict):
            check_items(candidates)  # all are items: the union allows no mixture
        return candidates


class ManyCards(Body):
    """Several requests in one body, answered in the same order."""

    # Each is checked on its own, later: what is wrong with one must not refuse the others.
    requests: Annotated[list[SkipValidation[CardRequest]], Field(min_length=1, max_length=LIMIT)]


class Feedback(Body):
    """What became of a card that was shown."""

    model_config = ConfigDict(json_schema_extra={"examples": [FEEDBACK_EXAMPLE]})

    request_id: Annotated[StrictStr, Field(min_length=1, max_length=512, pattern=r"^[0-9A-Za-z_.:-]+$")]
    clicked: StrictBool
    clicked_item: Id | None = None
    reward: Annotated[
        Number | None, Field(description="What came of the clicked item: seconds, revenue, a grade.")
    ] = None


class SolveAnswer(BaseModel):
    """A card with its proof."""

    card: list[Id] = Field(examples=[["scarf-red", "beanie", "boots"]])
    positions: list[int] = Field(examples=[[0, 2, 3]])
    value: float = Field(examples=[2.36])
    bound: float | None = Field(description="No valid card is worth more, where known.", examples=[2.36])
    gap: float | None = Field(description="bound - value; 0 is a proof of optimality.", examples=[0.0])
    optimal: bool
    relaxed: list[str] = Field(description="Rules given up to find a card.")
    broken: list[dict[str, Any]] | None = Field(
        None, description="Preferences the card breaks: rule, times, cost. Left out where there are none."
    )
    reasons: list[dict[str, Any]] | None = Field(None, description="Of each item left out: why.")
    unfinished: Unfinished
    ms: float


class CardAnswer(BaseModel):
    """A card by the model: what it is worth, how likely it was, and how it was made."""

    request_id: str = Field(description="Name it in feedback.")
    card: list[Id]
    value: float | None = Field(description="Estimated probability that the card is clicked.")
    propensity: float | None = Field(description="Probability of this card under the serving policy.")
    gap: float | None = Field(description="How far from the best card, where that is proven.")
    relaxed: list[str]
    broken: list[dict[str, Any]] | None = Field(
        None, description="Preferences the card breaks: rule, times, cost. Left out where there are none."
    )
    method: str = Field(description="How the card was found.")
    fallback: bool = Field(description="True where time ran short and a quicker method than usual was used.")
    arm: str
    model: str = Field(description="Version of the model.")
    reasons: list[dict[str, Any]] | None = None
    unread: list[str] = Field(
        description="Names that were sent and that neither the model nor a rule reads: misspelt, perhaps.",
        examples=[[]],
    )
    unfinished: Unfinished
    ms: float


class ManyAnswers(BaseModel):
    """One entry per request, in order: a card, or a problem for that request alone."""

    answers: list[CardAnswer | dict[str, Any]]


class Kept(BaseModel):
    """The feedback is safe, and what it was matched with; whether it is used is for `data build log` to say."""

    kept: bool
    request: Literal["known", "unknown"] = Field(
        description="Whether the id is one that a card was answered with."
    )
    item: Literal["on the card", "not on the card"] | None = Field(
        description="Of the clicked item, where known."
    )
    repeated: bool = Field(description="Whether this worker has kept a click on the same request before.")


class Health(BaseModel):
    """One word: the service is alive, or ready, or not."""

    status: str


class ModelState(BaseModel):
    """What serves now."""

    exactk: str
    mode: str
    arms: list[dict[str, Any]]


MEANINGS = {
    400: "Not HTTP as we know it.",
    401: "An API key is needed.",
    404: "Not here: no such path, no model, or no log.",
    408: "The body came too slowly.",
    409: "No valid card exists; `blocking` names the rules that together forbid every card.",
    413: "Too large.",
    422: "The body cannot be used; the detail says where and why.",
    429: "Too much at once; try again after the seconds in Retry-After.",
    503: "Not now: no model, shutting down, or the log cannot be written.",
}


def described(
    body: type[BaseModel] | tuple[type[BaseModel], ...] | None,
    reply: type[BaseModel] | tuple[type[BaseModel], ...],
    *statuses: int,
) -> dict[str, Any]:
    """Arguments of a route that reads its own body: the OpenAPI text is written here instead."""
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}}
    responses = {200: {"description": "Done.", "content": _content(reply)}}
    responses |= {status: {"description": MEANINGS[status], **problem} for status in statuses}
    extra = {} if body is None else {"requestBody": {"required": True, "content": _content(body)}}
    return {"response_class": Response, "responses": responses, "openapi_extra": extra}


def _content(bodies: type[BaseModel] | tuple[type[BaseModel], ...]) -> dict[str, Any]:
    listed = bodies if isinstance(bodies, tuple) else (bodies,)
    references = [{"$ref": f"#/components/schemas/{each.__name__}"} for each in listed]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    return {"application/json": {"schema": schema}}


class Switch(Body):
    """A rule and whether it counts."""

    rule: Rule
    on: bool = True


class PageRequest(Body):
    """What the page sends of a request, whoever made it."""

    scores: Annotated[list[Number] | None, Field(max_length=LIMIT)] = None
    pair_scores: list[list[Number]] | None = None
    user: Id | None = None
    user_features: Annotated[Features | None, Field(max_length=LIMIT)] = None
    context: Annotated[
        dict[Text, Any] | None,
        Field(description="What is true of the request: the log's columns of context, by name."),
    ] = None
    include: Include
    exclude: Exclude


class ViewRequest(PageRequest):
    """The request as it stands on the page."""

    k: CardSize
    items: Annotated[list[Item], Field(min_length=1, max_length=LIMIT)]
    constraints: Annotated[list[Switch], Field(default_factory=list, max_length=64)]
    scored_by: Literal["given", "model"] = "given"
    budget_ms: Annotated[
        Number | None, Field(gt=0, description="Of the whole answer; the most there is where left out.")
    ] = None

    _items = field_validator("items")(check_items)


class Pasted(PageRequest):
    """What a person may paste: a body of `/v1/solve` or `/v1/cards`, loosely; the page shows what is in it."""

    model_config = ConfigDict(extra="ignore")

    k: CardSize = 4
    items: Annotated[list[Item] | None, Field(max_length=LIMIT)] = None
    candidates: Annotated[list[Item] | None, Field(max_length=LIMIT)] = None
    constraints: Annotated[list[Rule], Field(default_factory=list, max_length=64)]

    _items = field_validator("items", "candidates")(check_items)


class StudioRequest(BaseModel):
    """A request to look at."""

    name: str
    lesson: str = ""
    user: Id | None = None
    user_features: list[float] | None = None
    context: dict[str, Any] = {}
    k: int
    items: list[dict[str, Any]]
    scores: list[float] | None = None
    pair_scores: list[list[float]] | None = None
    constraints: list[dict[str, Any]] = []
    include: list[Id] = []
    exclude: list[Id] = []


class View(BaseModel):
    """Everything the page draws."""

    items: list[dict[str, Any]]
    scores: list[float]
    share: list[float]
    pair_scores: list[list[float]] | None
    columns: list[dict[str, Any]] = Field(description="Names that came along, of what, and who reads them.")
    context: dict[str, str]
    unread: list[str] = Field(description="Names that the model, or without one anybody, does not read.")
    lacking: list[str] = Field(description="Names of the request that the model reads and that did not come.")
    rules: list[dict[str, Any]]
    conflicts: list[tuple[int, int]]
    excluded: list[int]
    best: dict[str, Any] | None
    problem: dict[str, Any] | None
    methods: list[dict[str, Any]]
    why: list[dict[str, Any]]
    unfinished: Unfinished
    attention: list[list[float]] | None
    influence: list[list[float]] | None


class SourceNames(BaseModel):
    """Where requests may come from."""

    sources: list[dict[str, Any]]
    model: bool


class RequestNames(BaseModel):
    """What a source holds."""

    requests: list[dict[str, Any]]


class ModelStory(BaseModel):
    """What the page tells of the model."""

    loaded: bool
    facts: dict[str, Any] = {}
    curves: list[dict[str, Any]] = []
    comparison: dict[str, Any] | None = None
