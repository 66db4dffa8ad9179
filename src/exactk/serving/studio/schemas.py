"""Bodies of the page's own questions. Knows no route."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator

from exactk.serving.routes.schemas import (
    LIMIT,
    MAX_CARD,
    Body,
    Exclude,
    Features,
    Id,
    Include,
    Item,
    Number,
    Rule,
    Text,
    check_items,
)

Context = Annotated[
    dict[Text, Any] | None,
    Field(description="What is true of the request: the log's columns of context, by name."),
]


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
    context: Context = None
    include: Include
    exclude: Exclude


class ViewRequest(PageRequest):
    """The request as it stands on the page."""

    k: Annotated[StrictInt, Field(ge=1, le=MAX_CARD)]
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

    k: Annotated[StrictInt, Field(ge=1, le=MAX_CARD)] = 4
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
    unfinished: list[str] = Field(description="What the budget was too short for.", examples=[[]])
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
