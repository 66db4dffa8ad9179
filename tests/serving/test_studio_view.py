"""What the page is told about a request: the same worth as the API gives, every rule's part, within the budget."""

from __future__ import annotations

import json
import runpy
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import exactk
from exactk import model_folder
from exactk.data.logs.frame import from_frame
from exactk.data.requests import Request
from exactk.data.requests.builder import RequestBuilder
from exactk.data.requests.catalogue import Catalogue
from exactk.data.sample import sample_log
from exactk.engine.decide import Calibration
from exactk.problem.rules.constraints import Constraints
from exactk.serving.settings import Settings
from exactk.serving.studio.sources import DatasetRequests
from random_briefs import KINDS, a_rule, shelf, times_broken
from serving_model import ITEMS, K, fitted, write_data
from serving_server import client_of

pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("studio") / "data")


@pytest.fixture(scope="module", params=["pair_value", "policy"])
def client(request: pytest.FixtureRequest, data: Path) -> Iterator[httpx.Client]:
    folder = data.with_name(request.param)
    fitted(data, request.param).save(folder)
    with client_of(Settings(model=folder, budget_ms=2000.0)) as opened:
        yield opened


def test_a_card_is_worth_the_same_on_the_page_and_to_the_api(client: httpx.Client) -> None:
    rules = [{"type": "distinct", "field": "category"}]
    for start in range(0, 24, 6):
        ids = ITEMS[start : start + 12]
        answer = client.post("/v1/cards", json={"user": "u1", "candidates": ids}).json()
        items = [{"item_id": name, "category": f"c{int(name[1:]) % 6}"} for name in ids]
        told = client.post(
            "/v1/studio/view",
            json={"user": "u1", "k": K, "items": items, "scored_by": "model",
                  "constraints": [{"rule": rule} for rule in rules]},
        ).json()  # fmt: skip
        rows = {frozenset(row["positions"]): row["value"] for row in told["methods"]}
        card = frozenset(ids.index(item) for item in answer["card"])
        assert rows[card] == pytest.approx(answer["value"], abs=1e-6)
        assert told["unfinished"] == []
        assert all(row["value"] is None or 0 <= row["value"] <= 1 for row in told["methods"])
        if "pair" in client.get("/v1/model").json()["arms"][0]["kind"]:
            assert frozenset(told["best"]["positions"]) == card
            assert told["best"]["value"] == pytest.approx(answer["value"], abs=1e-6)
            assert told["best"]["bound"] == pytest.approx(told["best"]["value"])
            assert told["best"]["proof"] == "proven best under this model"
            best = max(row["value"] for row in told["methods"] if row["valid"])
            assert told["best"]["value"] == pytest.approx(best)
            cheapest = min(
                why["cost"] for n, why in enumerate(told["why"]) if n not in card and why["cost"] is not None
            )
            assert 0 <= cheapest < told["best"]["value"]
        else:
            assert "policy" in told["best"]["proof"]


def test_the_view_of_hundreds_of_items_keeps_to_its_budget_and_says_what_it_left_out() -> None:
    draws = np.random.default_rng(2).normal(size=(300, 300))
    pairs = np.round(np.triu(draws, 1) + np.triu(draws, 1).T, 2).tolist()
    body = {"k": 20, "items": [{"item_id": n} for n in range(300)], "scores": [0.0] * 300, "pair_scores": pairs,
            "budget_ms": 3000}  # fmt: skip
    with client_of(Settings()) as client:
        client.post("/v1/studio/view", json=body)  # compiles what a service has compiled before it is ready
        begun = time.perf_counter()
        told = client.post("/v1/studio/view", json=body)
        assert time.perf_counter() - begun < 10  # the search for a proof takes minutes
    assert told.status_code == 200, told.text
    assert set(told.json()["unfinished"]) == {"best", "why"}
    assert len(told.json()["best"]["positions"]) == 20
    assert "Not worked out" in told.json()["why"][299]["text"]


@pytest.fixture(scope="module")
def solving() -> Iterator[httpx.Client]:
    with client_of(Settings()) as opened:
        yield opened


def looked(
    client: httpx.Client, request: dict[str, Any], off: tuple[int, ...] = (), **more: Any
) -> dict[str, Any]:
    """The view of a request in the form of the sources, some of its rules switched off."""
    body = {name: request[name] for name in ("k", "items", "scores", "pair_scores") if request.get(name)}
    body["constraints"] = [
        {"rule": rule, "on": place not in off} for place, rule in enumerate(request["constraints"])
    ]
    answer = client.post("/v1/studio/view", json=body | more)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "brief.py"))


def brief() -> dict[str, Any]:
    """The shelf's brief, from the studio's own examples."""
    text = files("exactk.serving.studio").joinpath("examples.json").read_text(encoding="utf-8")
    (found,) = [each for each in json.loads(text) if each["name"] == "A shelf's brief"]
    return dict(found)


def test_the_shelf_of_the_examples_is_the_one_of_the_studio() -> None:
    shown = brief()
    columns = EXAMPLE["shelf"]()
    assert {name: [item[name] for item in shown["items"]] for name in columns} == columns
    assert shown["constraints"] == Constraints.of(EXAMPLE["BRIEF"]).to_dict()["rule"]


def test_what_a_rule_costs_is_what_the_best_card_without_it_is_worth_more(solving: httpx.Client) -> None:
    request, rules = brief(), EXAMPLE["BRIEF"]
    told = looked(solving, request)
    items = EXAMPLE["shelf"]()
    best = exactk.solve("score", k=4, items=items, constraints=rules)
    assert told["best"]["positions"] == list(best.positions)
    assert told["best"]["value"] == pytest.approx(best.value)
    for place, state in enumerate(told["rules"]):
        others = rules[:place] + rules[place + 1 :]
        free = exactk.solve("score", k=4, items=items, constraints=others)
        assert state["cost"] == pytest.approx(free.value - best.value, abs=1e-9), state
        assert state["name"] == rules[place].name
        assert looked(solving, request, off=(place,))["best"]["value"] == pytest.approx(free.value)
    assert {state["cost"] > 0 for state in told["rules"]} == {True, False}


def test_the_card_says_what_it_holds_of_each_rule_on_or_off(solving: httpx.Client) -> None:
    request = brief()
    items, every = request["items"], tuple(range(len(request["constraints"])))
    for off in ((), every):
        told = looked(solving, request, off=off)
        card = [items[p] for p in told["best"]["positions"]]
        brands = [item["brand"] for item in card]
        said = [state["says"] for state in told["rules"]]
        alike = sum(a["colour"] == b["colour"] for a, b in combinations(card, 2))
        assert said == [
            "",
            f"{max(map(brands.count, brands))} of 2",
            f"has {sum(item['on_sale'] for item in card)}",
            f"has {sum(item['sponsored'] for item in card)}",
            f"has {round(sum(item['price'] for item in card), 2):g}",
            f"has {len({item['category'] for item in card})}",
            {0: "kept", 1: "broken once: \u22120.1", 2: "broken twice: \u22120.2"}[alike],
        ]
        kept = [
            card[0]["hero"] and not card[0]["sponsored"],
            max(map(brands.count, brands)) <= 2,
            any(item["on_sale"] for item in card),
            sum(item["sponsored"] for item in card) == 1,
            round(sum(item["price"] for item in card), 2) <= 200,
            len({item["category"] for item in card}) >= 3,
            alike == 0,
        ]
        assert [state["kept"] for state in told["rules"]] == kept
    assert not all(kept)


def test_a_card_with_places_stands_in_display_order_and_a_broken_preference_is_priced(
    solving: httpx.Client,
) -> None:
    request = brief() | {"k": 5}  # of four colours
    told = looked(solving, request)
    best = exactk.solve("score", k=5, items=EXAMPLE["shelf"](), constraints=EXAMPLE["BRIEF"])
    assert told["best"]["in_places"]
    assert told["best"]["positions"] == list(best.positions)
    assert told["best"]["broken"] == [one._asdict() for one in best.broken]
    assert len(best.broken) == 1
    rows = {row["key"]: row for row in told["methods"]}
    assert rows["exact"]["value"] == pytest.approx(best.value)
    top = [request["items"][p] for p in rows["top"]["positions"]]
    clashes = sum(a["colour"] == b["colour"] for a, b in combinations(top, 2))
    assert rows["top"]["value"] == pytest.approx(sum(item["score"] for item in top) - 0.1 * clashes)
    assert rows["top"]["broken"][0]["times"] == clashes > 0


def test_others_cards_are_put_into_places_and_the_rules_they_break_are_named(solving: httpx.Client) -> None:
    scores = [0.9, 0.8, 0.7, 0.2]
    items = [{"item_id": n, "score": score, "hero": n == 1} for n, score in enumerate(scores)]
    slots = {"type": "slots", "where": {"1": {"field": "hero"}}}
    told = looked(solving, {"k": 2, "items": items, "constraints": [slots]})
    rows = {row["key"]: row for row in told["methods"]}
    assert rows["top"]["positions"] == [1, 0]
    assert rows["top"]["valid"]
    total = {"type": "total", "field": "score", "at_most": 1.2}
    told = looked(solving, {"k": 2, "items": items, "constraints": [slots, total]})
    rows = {row["key"]: row for row in told["methods"]}
    assert rows["top"]["rules_broken"] == ["total score at most 1.2"]
    assert rows["top"]["note"].endswith("breaks total score at most 1.2")
    assert told["best"]["positions"] == [1, 3]


def test_why_not_is_what_solve_says(solving: httpx.Client) -> None:
    request, items = brief(), EXAMPLE["shelf"]()
    told = looked(solving, request)
    best = exactk.solve("score", k=4, items=items, constraints=EXAMPLE["BRIEF"], explain=True)
    place = {name: position for position, name in enumerate(items["item_id"])}
    for reason in best.reasons:
        why = told["why"][place[reason.item]]
        assert why["cost"] == (None if reason.cost is None else pytest.approx(reason.cost, abs=1e-9))
        assert why["swap"] == (None if reason.instead is None else [place[name] for name in reason.instead])
        assert why["blocking"] == list(reason.blocking)
    assert any(reason.cost is not None and reason.cost > 0 for reason in best.reasons)


def test_an_item_that_no_card_may_hold_says_what_rules_it_out(solving: httpx.Client) -> None:
    items = [{"item_id": n, "score": n / 10, "price": 10 * n} for n in range(1, 7)]
    rule = {"type": "total", "field": "price", "at_most": 60}
    told = looked(solving, {"k": 3, "items": items, "constraints": [rule]})
    assert told["why"][5]["text"] == "Out: no valid card holds it."
    assert told["why"][5]["blocking"] == ["exactly 3 of 6 candidates", "total price at most 60"]


def test_a_preference_weighs_the_same_on_the_page_and_to_the_api(data: Path) -> None:
    """A calibrated model: what a break costs is in the model's own units, not in those of the value that is shown."""
    trained = fitted(data, "pair_value").fitted
    folder = data.with_name("steep")
    model_folder.save(replace(trained, calibration=Calibration(scale=6.0, shift=0.3)), folder)
    changed = 0
    with client_of(Settings(model=folder, budget_ms=2000.0)) as client:
        for start in range(0, 24, 3):
            ids = ITEMS[start : start + 12]
            items = [{"item_id": name, "odd": int(name[1:]) % 2 == 1} for name in ids]
            answers = []
            for worth in (0.003, 0.03, 0.1, 0.3, 1.0):
                rules = [
                    {
                        "type": "prefer",
                        "worth": worth,
                        "rule": {"type": "count", "where": "odd", "at_most": 0},
                    }
                ]
                answer = client.post(
                    "/v1/cards", json={"user": "u1", "candidates": items, "k": K, "constraints": rules}
                ).json()
                told = looked(
                    client, {"k": K, "items": items, "constraints": rules}, user="u1", scored_by="model"
                )
                assert [ids[p] for p in told["best"]["positions"]] == answer["card"]
                assert told["best"]["value"] == pytest.approx(answer["value"], abs=1e-6)
                answers.append(answer["card"])
            changed += answers[0] != answers[-1]
    assert changed, "the price of a break decides somewhere"


SAMPLE = sample_log(requests=250, seed=3)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> exactk.Dataset:
    return from_frame(SAMPLE.rows, items=SAMPLE.items, path=tmp_path_factory.mktemp("columns") / "data")


@pytest.fixture(scope="module")
def reads_columns(logged: exactk.Dataset) -> Iterator[httpx.Client]:
    train, valid, _ = logged.split(seed=0)
    tiny = exactk.preset("tiny")
    small = replace(tiny.card_value, width=16, layers=1, heads=2, feed_forward_size=16, members=1, epochs=2)
    folder = logged.path.with_name("model")
    exactk.Recommender(replace(tiny, model="card_value", card_value=small)).fit(
        train, valid, show=False
    ).save(folder)
    with client_of(Settings(model=folder, dataset=logged.path, budget_ms=2000.0)) as opened:
        yield opened


def test_a_logged_request_says_everything_that_training_read(logged: exactk.Dataset) -> None:
    """Shown in the studio, a row of the log makes the very batch that it makes in training."""
    builder = RequestBuilder(logged.vocabulary(), Catalogue.of(logged))
    shown = DatasetRequests(logged.path).requests()
    for place in (0, 7, 120):
        request, batch = shown[place], logged.batch(builder.vocabulary, np.array([place]))
        ids = tuple(item["item_id"] for item in request["items"])
        asked = Request(
            request["user"], ids, request["k"], context=request["context"],
            attributes=dict(zip(ids, request["items"], strict=True)),
        )  # fmt: skip
        same = builder.batch([asked])
        for name in (
            "user", "item", "candidate_numbers", "candidate_categories", "context_numbers", "context_categories",
            "score", "position", "item_features", "item_categories", "item_vectors",
        ):  # fmt: skip
            np.testing.assert_allclose(getattr(same, name), getattr(batch, name), rtol=1e-6, err_msg=name)


def test_columns_are_shown_with_their_readers_and_what_is_not_read_is_said(
    reads_columns: httpx.Client,
) -> None:
    request = reads_columns.get("/v1/studio/requests/dataset/0").json()
    assert set(request["context"]) == {"nights", "device"}
    rule = {"type": "total", "field": "price", "at_most": 1e6, "missing": "allow"}
    context = {"device": request["context"]["device"], "weather": "fine"}
    items = [{name: value for name, value in item.items() if name != "offer"} for item in request["items"]]
    asked = {**request, "items": [item | {"shelf_life": 3} for item in items], "constraints": [rule]}
    told = looked(reads_columns, asked, user=request["user"], context=context, scored_by="model")
    readers = {(each["of"], each["name"]): each["read_by"] for each in told["columns"]}
    assert readers["candidate", "price"] == ["the model", "total price at most 1000000"]
    assert readers["candidate", "touches"] == ["the model"]
    assert readers["request", "device"] == ["the model"]
    assert readers["request", "weather"] == readers["candidate", "shelf_life"] == []
    assert told["unread"] == ["shelf_life", "weather"]
    assert set(told["lacking"]) == {"offer", "nights"}
    assert told["context"] == {"device": context["device"], "weather": "fine"}
    alone = looked(reads_columns, asked)
    assert {name for name in alone["unread"] if name in ("price", "touches")} == {"touches"}
    assert alone["lacking"] == []


def test_context_and_candidate_columns_reach_the_model(reads_columns: httpx.Client) -> None:
    request = reads_columns.get("/v1/studio/requests/dataset/0").json()

    def scores(**changed: Any) -> list[float]:
        asked = {**request, **changed}
        given = {"user": request["user"], "context": asked["context"], "scored_by": "model"}
        found: list[float] = looked(reads_columns, asked, **given)["scores"]
        return found

    as_logged = scores()
    assert scores(context={"device": "desk", "nights": 7}) != as_logged or scores(context={}) != as_logged
    cheaper = [item | {"price": 1.0} if n == 0 else item for n, item in enumerate(request["items"])]
    assert scores(items=cheaper) != as_logged


@pytest.mark.parametrize("context", [{"": 1}, {"a": [[[[[[[[[[1]]]]]]]]]]}, {"a": "x" * 100_000}, "phone"])
def test_a_context_that_is_none_is_refused_by_name(solving: httpx.Client, context: Any) -> None:
    items = [{"item_id": 1, "score": 1.0}, {"item_id": 2, "score": 2.0}]
    answer = solving.post("/v1/studio/view", json={"k": 1, "items": items, "context": context})
    assert answer.status_code == 422
    assert "context" in answer.text


@pytest.mark.parametrize("seed", range(40))
def test_a_random_brief_is_shown_as_a_separate_reading_of_its_rules_has_it(
    seed: int, solving: httpx.Client
) -> None:
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 5))
    items = shelf(rng, 9)
    scores = np.round(rng.normal(size=9), 3).tolist()
    kinds = rng.choice(KINDS, int(rng.integers(1, 5)), replace=False).tolist()
    rules = [a_rule(rng, kind, K) for kind in kinds]
    off = tuple(place for place in range(len(rules)) if rng.random() < 0.3)
    on = [rule for place, rule in enumerate(rules) if place not in off]
    request = {"k": K, "items": items, "scores": scores, "constraints": [rule.to_dict() for rule in rules]}
    told = looked(solving, request, off=off)
    frame = {name: [item[name] for item in items] for name in items[0]}
    best = exactk.solve(scores, K, constraints=on, items=frame, infeasible="return")
    if isinstance(best, exactk.InfeasibleError):
        assert told["best"] is None
        assert set(told["problem"]["blocking"]) == set(best.blocking)
        assert [state["kept"] for state in told["rules"]] == [None] * len(rules)
        return
    assert told["best"]["value"] == pytest.approx(best.value)
    card = [items[p] for p in told["best"]["positions"]]
    assert [state["kept"] for state in told["rules"]] == [
        not times_broken(getattr(rule, "rule", rule), card) for rule in rules
    ]
    assert sum(one["cost"] for one in told["best"]["broken"]) == pytest.approx(
        sum(one.cost for one in best.broken)
    )
    costs = [state["cost"] for state in told["rules"]]
    for place, rule in enumerate(rules):
        if place in off or (isinstance(rule, exactk.Slots) and rule.weights):
            assert costs[place] is None
        else:
            free = exactk.solve(scores, K, constraints=[one for one in on if one != rule], items=frame)
            assert costs[place] == pytest.approx(free.value - best.value, abs=1e-9)
    for row in told["methods"]:
        if len(row["positions"]) == K and row["valid"]:
            assert row["value"] <= best.value + 1e-9
        shown = [items[p] for p in row["positions"]]
        if len(shown) == K:
            named = {
                rule.name for rule in on if not isinstance(rule, exactk.Prefer) and times_broken(rule, shown)
            }
            assert set(row["rules_broken"]) == named
