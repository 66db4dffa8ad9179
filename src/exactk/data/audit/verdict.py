"""The audit's verdict: measurements in, sentences a person can act on out.

Knows no data, only the numbers that were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

TELLTALE = 0.97  # a single column that finds the click as often as this knew it beforehand
LEAK_MARGIN = 0.05  # above chance by this much, and by twice the probe's standard error


class Finding(NamedTuple):
    """One sentence of the verdict, and how grave it is."""

    grave: str
    text: str


GRAVITY = ("LEAK", "WARNING", "NOTE")
leak, warning, note = (partial(Finding, grave) for grave in GRAVITY)


def findings(measured: Mapping[str, Any]) -> list[Finding]:
    """All that is worth saying, gravest first."""
    parts = (_signal, _lists, _recovery, _leaks, _popularity, _labels, _validity, _propensities)
    said = [finding for part in parts for finding in part(measured)]
    return sorted(said, key=lambda finding: GRAVITY.index(finding.grave))


def _signal(measured: Mapping[str, Any]) -> Iterator[Finding]:
    names = measured["signal"]["names"]
    if not names:
        yield warning("nothing was clicked, chosen or rewarded: there is nothing to learn from")
        return
    yield note(f"what can be learned: {', '.join(names)}")
    if "item of the card" in names and "item of the list" not in names:
        yield warning(
            "only items of the card could be clicked: every figure that counts the clicked item favours the policy "
            "that was logged, which always has it; compare by propensities, or show whole lists"
        )


def _lists(measured: Mapping[str, Any]) -> Iterator[Finding]:
    found = measured["lists"]
    if found is None:
        return
    orders = {name: figures["precision"] for name, figures in found["orders"].items()}
    chance = orders["chance"]
    shares = ", ".join(f"{name} {share:.3f}" for name, share in orders.items())
    what = found["judged_by"]
    yield note(f"of the {what} of {found['lists']:,} test lists, a card of K would hold: {shares}")
    for name, share in found["columns"].items():
        if share > TELLTALE and chance < 0.7:
            column = name.removeprefix("-")
            yield leak(
                f"the column {column!r} alone finds {share:.1%} of the {what} (chance {chance:.1%}): it was probably "
                "written after the click; leave it out"
            )
    best = max(found["columns"].items(), key=lambda held: held[1], default=None)
    if best is not None:
        turned = ", smallest first," if best[0].startswith("-") else ","
        yield note(
            f"the best single column, {best[0].removeprefix('-')!r}{turned} holds {best[1]:.3f} of the {what}"
        )
    place = found["mean_place_of_click"]
    logged = max(orders.get("the order shown", 0.0), orders.get("the logged card", 0.0))
    usual = max(chance, orders.get("popularity in train", 0.0))
    if place is not None and place < 0.4 and logged > 1.3 * usual:
        yield warning(
            f"clicks fall near the top of the lists (mean place {place:.2f}, the middle is 0.5): the order shown finds "
            f"{orders.get('the order shown', logged):.3f} of them. Part of that is people looking there first, so "
            "figures by the clicked item favour the policy that was logged; judge by a click model as well"
        )


def _recovery(measured: Mapping[str, Any]) -> Iterator[Finding]:
    found = measured["recovery"]
    if found is None:
        return
    shares = ", ".join(f"{name} {share:.3f}" for name, share in found["whole_card"].items())
    yield note(f"every card was chosen; of {found['cards']:,} test cards found whole: {shares}")


def _leaks(measured: Mapping[str, Any]) -> Iterator[Finding]:
    if measured["probed_requests"] == 0 and (measured["lists"] or measured["recovery"]):
        return  # judged by what such a log can be judged by
    probe, chance, pairs = (measured[name] for name in ("least_seen", "chance", "pairs"))
    if probe is None or chance is None:
        yield warning("no clicked impression in test, or none in train: leakage cannot be probed")
        return
    hit, luck = probe["precision"], chance["precision"]
    seen = f"{pairs['unclicked_seen_before']:.0%} of the unclicked test candidates were shown to that user in train"
    if hit > luck + max(LEAK_MARGIN, 2 * probe["error"]):
        yield leak(
            f"picking the candidates least often seen with the user in train finds the click in {hit:.1%} of test "
            f"requests (chance {luck:.1%}), because {seen} but only {pairs['clicked_seen_before']:.0%} of the "
            "clicked ones. A model that memorises pairs will look good here and nowhere else. Build with the "
            "leak-free protocol, or split by pair or by user"
        )
    else:
        yield note(f"least-seen finds the click in {hit:.1%}, chance is {luck:.1%}: no leak by pairs")
    cards = measured["overlap"]["cards"]
    if cards is not None and cards > 0.01:
        yield warning(f"{cards:.1%} of the cards of test were shown to the same user in train")


def _popularity(measured: Mapping[str, Any]) -> Iterator[Finding]:
    probe, chance = measured["popularity"], measured["chance"]
    if probe is None or chance is None:
        return
    ratio = probe["hit_ratio"]
    yield note(
        f"popularity alone (clicks per showing in train) finds the clicked item in {probe['precision']:.1%} of the "
        f"requests (chance {chance['precision']:.1%}): what personalised models must beat"
    )
    by_chance = probe["hit_ratio_of_random_companions"]
    if ratio is not None and not measured["lists"] and abs(ratio - by_chance) < 0.01:
        yield note(
            "the companions of the clicked item look drawn at random: this log can rank items, but cannot show what a "
            "whole card is worth beyond them"
        )


def _labels(measured: Mapping[str, Any]) -> Iterator[Finding]:
    train = measured["labels"]["train"]
    rate = train["clicked"]
    if rate == 0 and measured["signal"]["names"]:
        return  # rewards teach, too
    if rate is None or rate == 0:
        yield warning("no card of train was clicked: there is nothing to learn from")
    elif rate == 1 and not (measured["recovery"] or measured["lists"]):
        yield warning("every card of train was clicked: a reward cannot be learned without the others")
    elif rate < 0.001:
        yield warning(f"only {rate:.3%} of the cards of train were clicked: expect a noisy reward")
    elif not measured["recovery"] and not (measured["lists"] and rate == 1):
        yield note(f"{rate:.1%} of the cards of train were clicked")


def _validity(measured: Mapping[str, Any]) -> Iterator[Finding]:
    validity = measured["validity"]
    if not validity["constrained"]:
        yield note("the folder has no rules: any K candidates make a valid card")
        return
    broken, checked = validity["cards_breaking_rules"], validity["cards_checked"]
    if broken:
        rows = ", ".join(map(str, validity["example_rows"]))
        yield warning(f"{broken} of {checked} logged cards break the folder's own rules (rows {rows}, ...)")
    feasible = validity["feasible_requests"]
    if feasible is not None and feasible < 1:
        yield warning(
            f"only {feasible:.1%} of the requests have a valid card; the others need a rule relaxed"
        )
    if not broken and feasible == 1:
        yield note(f"all {checked} cards checked are valid, and every request has a valid card")


def _propensities(measured: Mapping[str, Any]) -> Iterator[Finding]:
    propensity = measured["propensity"]
    if not propensity["recorded"]:
        yield note("no propensities: the value of another policy cannot be estimated from this log")
        return
    if propensity["share"] < 1:
        yield warning(f"only {propensity['share']:.1%} of the impressions record a propensity")
    if propensity["certain"] > 0.5:
        yield warning(
            f"{propensity['certain']:.1%} of the cards were shown with certainty: the log says nothing about others"
        )
    if propensity["effective_share"] < 0.05:
        yield warning(
            f"propensities range from {propensity['least']:.2g} to {propensity['most']:.2g}; weighted by their "
            f"inverse the log is worth {propensity['effective_share']:.1%} of its size"
        )
