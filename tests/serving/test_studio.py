"""The studio in a real browser, used as a person would use it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from exactk.serving.http.security import hash_key
from exactk.serving.settings import Settings
from serving_model import fitted, write_data
from serving_server import served

sync_api = pytest.importorskip("playwright.sync_api", reason="the studio is tested through Playwright")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def solving() -> Iterator[str]:
    with served(Settings()) as address:
        yield address


@pytest.fixture(scope="module")
def with_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scratch = tmp_path_factory.mktemp("studio")
    data = write_data(scratch / "shop")
    recommender = fitted(data, "policy")
    recommender.save(scratch / "model")
    rows = [{"method": "top-k", "value": 0.41}, {"method": "exactk", "value": 0.52}]
    (scratch / "model" / "comparison.json").write_text(json.dumps({"name": "compare", "rows": rows}))
    with served(Settings(model=scratch / "model", dataset=data)) as address:
        yield address


@pytest.fixture
def look(browser: Any, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Open the page; an error on its console fails the test."""

    def opened(address: str, **context: Any) -> Any:
        window = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **context})
        request.addfinalizer(window.close)
        page = window.new_page()
        page.set_default_timeout(20_000)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on(
            "request", lambda sent: complaints.append(sent.url) if not sent.url.startswith(address) else None
        )
        page.complaints = complaints
        page.goto(address)
        page.wait_for_selector(".candidate")
        return page

    return opened


def choose(page: Any, name: str) -> None:
    """Pick an example by its name and wait until it is drawn."""
    with page.expect_response("**/v1/studio/view"):
        page.select_option("#request", label=name)
    page.wait_for_function("name => document.querySelector('#lesson').textContent.length > 0", arg=name)
    page.wait_for_timeout(100)


def titles(page: Any) -> list[str]:
    return [str(text) for text in page.locator("#card .tile b").all_text_contents()]


def change(page: Any, act: Callable[[], Any]) -> None:
    """Do something that asks the service again, and wait for the new picture."""
    with page.expect_response("**/v1/studio/view"):
        act()
    page.wait_for_timeout(100)


def test_the_page_opens_quickly_and_asks_no_other_host(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    assert page.title() == "exactk studio"
    assert len(titles(page)) == 4
    assert page.complaints == []
    # The page's own files: far below the second that the whole may take, even on a busy machine.
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    assert loaded < 3000


def test_ours_stands_beside_the_others_and_broken_cards_are_marked(
    look: Callable[..., Any], solving: str
) -> None:
    page = look(solving)
    names = page.locator(".method .name").all_text_contents()
    assert names == ["exactk", "Top-K", "Algorithm 1", "MMR"]
    assert "broken" in page.locator('[data-method="top"]').get_attribute("class")
    assert "breaks title distance" in page.locator('[data-method="top"] .note').text_content()
    assert "proven best" in page.locator("#proof").text_content()


def test_pairs_bring_the_fifth_method_and_the_matrix(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "Supper basket")
    assert page.locator('[data-method="solver"]').is_visible()
    ours = float(page.locator('[data-method="exact"] .value').text_content())
    blind = float(page.locator('[data-method="solver"] .value').text_content())
    assert ours > blind
    page.locator("#pairs canvas").hover(position={"x": 60, "y": 20})
    assert "→" in page.locator("#pairs .heat-read").text_content()
    assert page.locator(".strongest li").count() > 4


def test_the_graph_lights_exactly_the_clique(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    assert page.locator("#graph .node").count() == 12
    assert page.locator("#graph .node.in").count() == 4
    assert page.locator("#graph line.lit").count() == 6  # 4 choose 2
    page.click("#show-conflicts")
    assert page.locator("#graph line.conflict").count() == 7
    assert page.locator("#graph line.lit").count() == 6


def test_moving_k_changes_the_card_at_once(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    page.focus("#k")
    change(page, lambda: page.keyboard.press("ArrowRight"))
    assert len(titles(page)) == 5
    assert page.locator("#k-shown").text_content() == "5"


def test_switching_a_rule_off_lets_the_copies_back_in(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    scarves = [title for title in titles(page) if "scarf" in title]
    assert len(scarves) == 1
    change(page, lambda: page.locator(".rule input").first.uncheck())
    scarves = [title for title in titles(page) if "scarf" in title]
    assert len(scarves) == 2  # the other rule still caps a category at two
    change(page, lambda: page.locator(".rule input").nth(1).uncheck())
    assert len([title for title in titles(page) if "scarf" in title]) == 4


def test_must_and_never_are_honoured_and_can_be_taken_back(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    before = titles(page)
    change(page, lambda: page.get_by_label("lip balm, beeswax: must be on the card").click())
    assert "lip balm, beeswax" in titles(page)
    change(page, lambda: page.get_by_label("ribbed beanie: never on the card", exact=True).click())
    assert "ribbed beanie" not in titles(page)
    change(page, lambda: page.locator(".wish.must").click())
    change(page, lambda: page.locator(".wish.never").click())
    assert titles(page) == before


def test_hovering_tells_why_in_and_why_not(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    page.locator(".candidate", has_text="merino wool scarf blue").hover()
    assert page.locator("#why-title").text_content() == "merino wool scarf blue"
    why = page.locator("#why").text_content()
    assert "cost 0.01" in why
    assert "merino wool scarf red" in why
    assert "title distance" in why
    page.locator(".candidate.in").first.hover()
    assert "On the card" in page.locator("#why").text_content()


def test_everything_is_reached_by_keyboard(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("(e => e.id || String(e.className.baseVal ?? e.className))(document.activeElement)")
        )
    assert {"source", "request", "previous", "next", "paste", "theme", "k", "show-allowed"} <= seen
    assert any("switch" in str(each) for each in seen)
    page.focus(".candidate .who")
    assert page.locator("#why-title").text_content() != "Why?"


def test_tab_walks_in_reading_order_and_shows_where_it_is(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "A shelf's brief")
    page.evaluate("document.activeElement.blur()")
    # Of what has the focus: its place in the document, and whether a ring (or a thicker line) is drawn around it.
    seen = """() => {
        const at = document.activeElement, all = [...document.querySelectorAll('*')];
        const drawn = (style) => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        const thick = (circle) => circle && parseFloat(getComputedStyle(circle).strokeWidth) >= 3;
        const ring = drawn(getComputedStyle(at)) || drawn(getComputedStyle(at, '::before'))
            || thick(at.matches('#graph .node') && at.querySelector('circle'));
        return [all.indexOf(at), ring, at.id || at.className.baseVal || at.className || at.tagName];
    }"""
    walked = []
    for _ in range(30):
        page.keyboard.press("Tab")
        walked.append(page.evaluate(seen))
    places = [place for place, _, _ in walked]
    assert places == sorted(places)
    assert len(set(places)) == 30
    assert [name for _, ring, name in walked if not ring] == []
    names = [name for _, _, name in walked]
    assert names[0] == "skip"
    assert names.count("switch") == 7
    assert names.index("columns-summary") > names.index("switch")


def test_space_switches_a_rule_and_keeps_the_focus(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "A shelf's brief")
    before = titles(page)
    page.focus('[data-rule="4"]')
    change(page, lambda: page.keyboard.press("Space"))
    assert titles(page) != before
    assert page.evaluate("document.activeElement.dataset.rule") == "4"
    assert not page.is_checked('[data-rule="4"]')
    change(page, lambda: page.keyboard.press("Space"))
    assert titles(page) == before


def test_escape_leaves_the_dialog_and_changes_nothing(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    before = titles(page)
    page.focus("#paste")
    page.keyboard.press("Enter")
    assert page.locator("#paste-dialog").is_visible()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.fill("#paste-text", "{}")
    page.keyboard.press("Escape")
    assert not page.locator("#paste-dialog").is_visible()
    assert page.evaluate("document.activeElement.id") == "paste"
    assert titles(page) == before


CONTRAST = """() => {
    const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const parts = (colour) => {
        const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        return [...pen.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const colour = parts(getComputedStyle(at).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return parts(getComputedStyle(document.documentElement).backgroundColor);
    };
    const found = [];
    for (const node of document.querySelectorAll('body *')) {
        const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
        if (!own || !node.checkVisibility() || node.closest('svg, .gone, option, noscript')) continue;
        const [a, b] = [light(parts(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) found.push([node.tagName, node.className, node.textContent.slice(0, 30), ratio.toFixed(2)]);
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_on_its_ground(scheme: str, look: Callable[..., Any], solving: str) -> None:
    """A contrast of 4.5 to 1 or more, with rules off and broken, a preference broken, items pinned and barred."""
    page = look(solving, color_scheme=scheme)
    choose(page, "A shelf's brief")
    page.focus("#k")
    change(page, lambda: page.keyboard.press("ArrowRight"))
    change(page, lambda: rule(page, "total price").locator("input").uncheck())
    change(page, lambda: page.locator(".candidate .must").nth(7).click())
    change(page, lambda: page.locator(".candidate .never").nth(0).click())
    page.click("#columns summary")
    page.locator(".candidate .who").nth(9).focus()
    page.wait_for_timeout(300)  # colours move for 0.2 s
    assert page.evaluate(CONTRAST) == []
    choose(page, "Too strict")
    page.wait_for_timeout(300)
    assert page.evaluate(CONTRAST) == []


def test_the_graph_is_one_stop_for_tab_and_arrows_walk_in_it(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    assert page.locator('#graph .node[tabindex="0"]').count() == 1
    page.focus('#graph .node[tabindex="0"]')
    before = page.locator("#graph .node:focus circle").get_attribute("cx")
    page.keyboard.press("ArrowLeft")
    assert float(page.locator("#graph .node:focus circle").get_attribute("cx")) < float(before)
    assert page.locator("#why-title").text_content() in page.locator("#graph .node:focus").get_attribute(
        "aria-label"
    )
    assert page.locator('#graph .node[tabindex="0"]').count() == 1


def test_names_in_the_graph_do_not_cover_each_other(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    for name in ("Winter shelf", "Supper basket", "Front page"):
        choose(page, name)
        boxes = [each.bounding_box() for each in page.locator("#graph text").all()]
        assert len(boxes) >= 4
        for n, one in enumerate(boxes):
            for other in boxes[:n]:
                across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
                down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
                assert across <= 2 or down <= 3  # a text's box is a little larger than the text


def test_a_blocked_request_names_what_blocks_it(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "Too strict")
    assert "distinct brand" in page.locator("#card .none").text_content()
    assert page.locator(".rule.blocking").count() == 1
    change(page, lambda: page.locator(".rule.blocking input").uncheck())
    assert len(titles(page)) == 4


def test_algorithm_1_walks_into_the_dead_end(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "Dead end")
    assert len(titles(page)) == 3
    assert page.locator('[data-method="greedy"] .chip.empty').count() >= 1


def rule(page: Any, name: str) -> Any:
    """The row of the rule of a name."""
    return page.locator(".rule", has_text=name)


def test_a_brief_is_shown_in_display_order_with_what_each_rule_costs(
    look: Callable[..., Any], solving: str
) -> None:
    page = look(solving)
    choose(page, "A shelf's brief")
    assert page.locator(".rule").count() == 7
    assert page.locator("#card .place").all_text_contents() == [f"place {n}" for n in (1, 2, 3, 4)]
    assert "has 189.96 · without it 0.282 more" in rule(page, "total price").text_content()
    assert "costs nothing here" in rule(page, "at most 2 per brand").text_content()
    assert "No pair is forbidden" in page.locator("#no-conflicts").text_content()
    assert "and 2 more" in page.locator('[data-method="top"] .note').text_content()
    assert page.complaints == []


def test_switching_a_rule_of_a_brief_tells_what_it_changed(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "A shelf's brief")
    before = titles(page)
    change(page, lambda: rule(page, "total price").locator("input").uncheck())
    after, told = titles(page), page.locator("#changed").text_content()
    assert "total price at most 200 off: worth 3.1 → 3.38 (+0.282)." in told
    assert all(title in told.partition("In: ")[2].partition(".")[0] for title in set(after) - set(before))
    assert all(title in told.partition("Out: ")[2] for title in set(before) - set(after))
    assert "off, and broken" in rule(page, "total price").text_content()
    assert "price" in page.locator("#unread").text_content()
    change(page, lambda: rule(page, "total price").locator("input").check())
    assert titles(page) == before


def test_a_broken_preference_is_named_with_its_cost(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "A shelf's brief")
    assert page.locator("#preferences li").count() == 0
    page.focus("#k")
    change(page, lambda: page.keyboard.press("ArrowRight"))  # five items of four colours
    assert page.locator("#preferences").text_content() == "rather distinct colour: broken once, −0.1"
    assert "broken once: −0.1" in rule(page, "rather distinct colour").text_content()
    change(page, lambda: rule(page, "rather distinct colour").locator("input").uncheck())
    assert page.locator("#preferences li").count() == 0


EVERY_KIND: list[tuple[dict[str, Any], list[int]]] = [  # and the best card of three of ten that keeps it
    ({"type": "distinct", "field": "group"}, [7, 8, 9]),
    ({"type": "at_most", "field": "pile", "m": 1}, [2, 4, 9]),
    ({"type": "minimum_gap", "field": "place", "minimum": 2}, [5, 7, 9]),
    ({"type": "forbid", "pairs": [[9, 8]]}, [6, 7, 9]),
    ({"type": "title_distance", "minimum": 0.9}, [7, 8, 9]),
    ({"type": "count", "where": {"field": "flag"}, "at_least": 1}, [1, 8, 9]),
    ({"type": "share", "where": {"field": "flag"}, "at_least": 0.5}, [0, 1, 9]),
    ({"type": "total", "field": "place", "at_most": 4}, [0, 1, 3]),
    ({"type": "variety", "field": "pile", "at_least": 3}, [2, 4, 9]),
    ({"type": "slots", "where": {"2": {"field": "flag"}}}, [9, 1, 8]),
    ({"type": "prefer", "rule": {"type": "count", "where": {"field": "flag"}, "at_least": 1}, "worth": 9}, [1, 8, 9]),
]  # fmt: skip


@pytest.mark.parametrize(("said", "card"), EVERY_KIND, ids=[said["type"] for said, _ in EVERY_KIND])
def test_a_rule_of_every_kind_has_a_switch_that_works(
    said: dict[str, Any], card: list[int], look: Callable[..., Any], solving: str
) -> None:
    items: list[dict[str, Any]] = [
        {"item_id": n, "title": f"{'abcdefghij'[n] * 5}", "score": n / 10, "place": n, "group": f"g{n % 3}",
         "pile": "abc"[(n > 2) + (n > 4)], "flag": n < 2}
        for n in range(10)
    ]  # fmt: skip
    page = look(solving)
    paste(page, {"k": 3, "items": items, "constraints": [said]})
    assert titles(page) == [items[n]["title"] for n in card]
    worth = page.locator("#proof b").text_content()
    change(page, lambda: page.locator(".rule input").uncheck())
    assert titles(page) == [items[n]["title"] for n in (7, 8, 9)]
    assert page.locator("#proof b").text_content() == "2.4"
    change(page, lambda: page.locator(".rule input").check())
    assert titles(page) == [items[n]["title"] for n in card]
    assert page.locator("#proof b").text_content() == worth
    assert ("costs nothing here" in page.locator(".rule").text_content()) == (sorted(card) == [7, 8, 9])
    assert page.complaints == []


def test_a_request_is_edited_as_json_with_its_columns_and_context(
    look: Callable[..., Any], solving: str
) -> None:
    page = look(solving)
    items = [{"item_id": n, "score": n / 10, "position": 5 - n, "price": 10 * n} for n in range(5)]
    asked = {"k": 2, "items": items, "context": {"device": "phone", "nights": 3},
             "constraints": [{"type": "total", "field": "price", "at_most": 50}]}  # fmt: skip
    paste(page, asked)
    assert page.locator("#context li").all_text_contents() == ["device phone", "nights 3"]
    assert page.locator("#unread").text_content() == "No rule reads: position, device, nights."
    page.click("#columns summary")
    readers = {
        row.locator("th").text_content(): row.locator("td").text_content()
        for row in page.locator("#columns tr").all()
    }
    assert readers == {
        "score": "the score", "position": "nobody", "price": "total price at most 50",
        "device of the request": "nobody", "nights of the request": "nobody",
    }  # fmt: skip
    assert titles(page) == ["1", "4"]
    page.click("#paste")
    written = json.loads(page.input_value("#paste-text"))
    assert {name: written[name] for name in asked} == asked
    written["constraints"][0]["at_most"] = 70
    written["context"]["device"] = "desk"
    page.fill("#paste-text", json.dumps(written))
    change(page, lambda: page.click("#paste-use"))
    assert titles(page) == ["3", "4"]
    assert page.locator("#context li").first.text_content() == "device desk"


def paste(page: Any, request: dict[str, Any]) -> None:
    """Take the place of the request on the page."""
    page.click("#paste")
    page.fill("#paste-text", json.dumps(request))
    change(page, lambda: page.click("#paste-use"))


def test_a_pasted_request_is_shown_and_a_wrong_one_explained(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    page.click("#paste")
    page.fill("#paste-text", "{ not json")
    page.click("#paste-use")
    assert "Not JSON" in page.locator("#paste-error").text_content()
    hostile = "<img src=x onerror=alert(1)>"
    items = [{"item_id": n, "title": f"{hostile} {n}", "score": n / 10} for n in range(5)]
    page.fill("#paste-text", json.dumps({"k": 2, "items": items}))
    change(page, lambda: page.click("#paste-use"))
    assert titles(page) == [f"{hostile} 3", f"{hostile} 4"]
    assert page.locator("#card img").count() == 0
    assert page.complaints == []


def test_after_a_request_of_ones_own_any_of_the_list_can_be_chosen_again(
    look: Callable[..., Any], solving: str
) -> None:
    page = look(solving)
    first = titles(page)
    paste(page, {"k": 3, "items": [{"item_id": n, "title": f"thing {n}", "score": n} for n in range(2)]})
    assert titles(page) == ["thing 0", "thing 1"]
    assert page.locator("#k-shown").text_content() == "2, all there are"
    assert page.input_value("#request") == ""
    change(page, lambda: page.select_option("#request", index=0))
    assert titles(page) == first


def test_light_and_dark_follow_the_system_and_the_button(look: Callable[..., Any], solving: str) -> None:
    page = look(solving, color_scheme="dark")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(ground)
    page.click("#theme")
    light = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector(".candidate")
    assert page.evaluate(ground) == light


def test_a_phone_shows_all_of_it_without_sideways_scrolling(look: Callable[..., Any], solving: str) -> None:
    page = look(solving, viewport={"width": 390, "height": 844}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".candidate .who").first.tap()
    assert page.locator(".candidate .here").is_visible()
    box = page.locator(".candidate .acts button").first.bounding_box()
    assert box["height"] >= 30


def test_what_sticks_while_scrolling_covers_nothing(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    choose(page, "Supper basket")
    page.locator("#pairs canvas").scroll_into_view_if_needed()
    above = page.locator("#pairs-section").bounding_box()["y"]
    for sticky in (".controls", ".why-panel"):
        box = page.locator(sticky).bounding_box()
        assert box["y"] + box["height"] <= above


def test_the_model_tells_its_story_and_scores_the_logged_requests(
    look: Callable[..., Any], with_model: str
) -> None:
    page = look(with_model)
    assert page.locator("#source option").all_text_contents() == ["shop", "Examples", "Embedded world"]
    assert "The log shows" in page.locator("#lesson").text_content()
    assert page.locator('[data-method="policy"]').is_visible()
    page.wait_for_selector("#curves svg")
    assert page.locator("#curves svg").count() >= 1
    assert "exactk" in page.locator("#comparison tr.ours").text_content()
    page.locator("#attention canvas").hover(position={"x": 50, "y": 80})
    assert "→" in page.locator("#attention .heat-read").text_content()
    page.locator("#influence canvas").hover(position={"x": 60, "y": 90})
    assert len(page.locator("#influence .heat-read").text_content()) > 10
    assert page.locator("#influence .strongest li").count() >= 1
    by_model = page.locator(".candidate").first.text_content()
    change(page, lambda: page.select_option("#scored-by", "given"))
    assert page.locator("#attention-section").is_hidden()
    assert page.locator(".candidate").first.text_content() != by_model
    assert page.complaints == []


def test_the_embedded_world_brings_its_true_pairs(look: Callable[..., Any], solving: str) -> None:
    page = look(solving)
    with page.expect_response("**/v1/studio/view", timeout=120_000):
        page.select_option("#source", "world")
    page.wait_for_function("() => document.querySelectorAll('.candidate').length === 30")
    assert "true ones" in page.locator("#lesson").text_content()
    assert page.locator("#pairs canvas").is_visible()
    assert len(titles(page)) == 4
    assert page.locator('[data-method="solver"]').is_visible()
    assert page.complaints == []


def test_a_phone_shows_a_dozen_candidates_first(look: Callable[..., Any], solving: str) -> None:
    page = look(solving, viewport={"width": 390, "height": 844}, has_touch=True)
    assert not page.locator("#unfold").is_visible()  # twelve in all
    with page.expect_response("**/v1/studio/view"):
        page.select_option("#source", label="Embedded world")
    page.wait_for_selector("#unfold:visible")
    folded = page.locator(".candidate:visible").count()
    assert 12 <= folded <= 16
    page.tap("#unfold")
    assert page.locator(".candidate:visible").count() == page.locator(".candidate").count() > folded
    assert not page.locator("#unfold").is_visible()


def test_a_phone_shows_a_whole_brief_and_its_switches_are_large_enough(
    look: Callable[..., Any], solving: str
) -> None:
    page = look(solving, viewport={"width": 360, "height": 740}, has_touch=True)
    choose(page, "A shelf's brief")
    page.tap("#columns summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    wide = page.evaluate("[...document.querySelectorAll('main *')].filter((e) => e.checkVisibility()"
                         " && !e.closest('svg, .scroll') && e.getBoundingClientRect().right > 360).length")  # fmt: skip
    assert wide == 0
    for row in page.locator(".rule").all():
        assert row.bounding_box()["height"] >= 40  # the whole row is the switch
    before = titles(page)
    change(page, lambda: rule(page, "total price").tap())
    assert titles(page) != before


def test_a_service_with_keys_asks_for_one(browser: Any) -> None:
    with served(Settings(key_hashes=(hash_key("open sesame"),))) as address:
        assert httpx.get(f"{address}/v1/studio/sources").status_code == 401
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#key-dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#message:visible")
        assert "Without a key" in page.locator("#message").text_content()
        page.reload()
        page.fill("#key", "open sesame")
        page.click("#key-dialog .primary")
        page.wait_for_selector(".candidate")
        page.close()
