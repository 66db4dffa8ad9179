"""The bench that counts what goes wrong: it finds none today, and would find what it is made for."""

from __future__ import annotations

import time

import pytest

from exactk_lab.bench import torture
from exactk_lab.bench.torture import ties


def fine() -> str:
    return ""


def raw() -> str:
    raise KeyError("a traceback")


def wrong() -> str:
    return "not the best card"


def asleep() -> str:
    time.sleep(60)
    return ""


def test_each_kind_of_fault_is_counted_and_the_trials_after_it_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torture, "SECONDS", 1.0)
    counts = torture.tortured(iter([(fine, ()), (raw, ()), (wrong, ()), (asleep, ()), (fine, ())]))
    assert (counts.tried, counts.tracebacks, counts.wrong, counts.hangs) == (5, 1, 1, 1)
    assert counts.first.startswith("raw(): KeyError")


@pytest.mark.parametrize("door", torture.DOORS)
def test_no_door_hangs_breaks_or_errs(door: str) -> None:
    counts = torture.tortured(torture.DOORS[door](7, 40))
    assert counts == torture.DoorCounts(tried=40)


def test_ties_are_searched_in_one_step_an_item() -> None:
    requests, scores = ties._request(0, 0)
    assert ties._nodes(requests, scores) == requests.card_size[0]
