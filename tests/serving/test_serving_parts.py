"""Small parts of the service: settings, keys, the split, the batcher."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactk.errors import ConfigError
from exactk.serving.http.security import hash_key, is_known_key, new_key
from exactk.serving.model.batching import Batcher, ClosedError, Inline, OverloadedError, UnfinishedError
from exactk.serving.settings import CHALLENGER, CHAMPION, Settings, arm_of, key_hashes_from, read_key_hashes


def test_settings_survive_the_trip_to_a_worker() -> None:
    settings = Settings(
        model=Path("m"), log=Path("l"), key_hashes=("a" * 64,), cors_origins=("http://x",), explore=0.1
    )
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_batch": 0}, "max_batch"),
        ({"budget_ms": -1.0}, "budget_ms"),
        ({"explore": 1.5}, "explore"),
        ({"challenger_share": 0.5}, "challenger"),
        ({"key_hashes": ("plain-key",)}, "SHA-256"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Settings(**wrong)  # type: ignore[arg-type]


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="unknown setting service.colour"):
        Settings.from_json('{"colour": "red"}')


def test_only_the_key_itself_opens() -> None:
    key, digest = new_key()
    assert is_known_key(key, ("0" * 64, digest))
    assert not is_known_key(digest, (digest,))
    assert not is_known_key(key + "x", (digest,))
    assert not is_known_key(key, ())


def test_key_hashes_come_from_variable_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXACTK_API_KEYS", f"web:{hash_key('one')}")
    (tmp_path / "keys").write_text(
        f"# team keys\n{hash_key('two')}\n\napp: {hash_key('three')}  # until May\n"
    )
    assert read_key_hashes(tmp_path / "keys") == (hash_key("one"), hash_key("two"), hash_key("three"))


def test_a_plain_key_in_the_file_is_refused_without_being_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        key_hashes_from("team:my-secret-key", "keys.txt")
    assert "keys.txt" in str(caught.value)
    assert "my-secret-key" not in str(caught.value)


def test_an_empty_key_file_does_not_open_the_service(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    with pytest.raises(ConfigError, match="anyone could use"):
        read_key_hashes(tmp_path / "keys")
    with pytest.raises(ConfigError, match="cannot read"):
        read_key_hashes(tmp_path / "absent")


def test_the_split_gives_the_challenger_its_share() -> None:
    assert {arm_of(None, 0.5, "spring") for _ in range(200)} == {CHALLENGER, CHAMPION}
    arms = [arm_of(f"u{n}", 0.2, "spring") for n in range(20_000)]
    # 4 standard deviations of a binomial(20000, 0.2) share: 4 * sqrt(0.2 * 0.8 / 20000) = 0.0113.
    assert abs(arms.count(CHALLENGER) / 20_000 - 0.2) < 0.0113


@given(st.text() | st.integers(), st.floats(0, 1), st.floats(0, 1))
def test_a_growing_share_never_moves_a_user_back(user: str | int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    if arm_of(user, small, "salt") == CHALLENGER:
        assert arm_of(user, large, "salt") == CHALLENGER


def test_the_split_is_the_same_for_ever() -> None:
    """Written down once: a change of the hash would move users between arms in mid-experiment."""
    arms = [arm_of(f"u{n}", 0.5, "exactk") for n in range(8)]
    assert arms == [CHAMPION] * 4 + [CHALLENGER] * 4
    assert arm_of("anyone", 0.0, "exactk") == CHAMPION
    assert arm_of("anyone", 1.0, "exactk") == CHALLENGER


class Number(NamedTuple):
    """A question: what comes after n?"""

    n: int
    deadline: float
    is_patient: bool = False
    group: str = ""
    so_far: Sequence[int] | None = None


def number(n: int, seconds: float = 30.0, is_patient: bool = False, group: str = "") -> Number:
    return Number(n, time.perf_counter() + seconds, is_patient, group)


class Slow:
    """Answers n with n + 1 in batches, noting their sizes, while the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.sizes: list[int] = []

    def __call__(self, numbers: Sequence[Number]) -> list[int | Exception]:
        self.sizes.append(len(numbers))
        assert self.gate.wait(5)
        return [ValueError("odd luck") if each.n == 13 else each.n + 1 for each in numbers]


def test_a_lone_question_does_not_wait_for_company() -> None:
    async def main() -> float:
        batcher: Batcher[Number, int] = Batcher(lambda numbers: [each.n + 1 for each in numbers], 32, 100)
        await batcher.enqueue(number(1))  # starts the thread
        started = time.perf_counter()
        for n in range(20):
            assert await batcher.enqueue(number(n)) == n + 1
        took = (time.perf_counter() - started) / 20
        await batcher.close()
        return took

    assert asyncio.run(main()) < 0.02


def test_those_who_arrive_while_the_engine_is_busy_share_the_next_run() -> None:
    slow = Slow()

    async def main() -> list[int]:
        batcher: Batcher[Number, int] = Batcher(slow, 32, 100)
        first = batcher.enqueue(number(0))
        await asyncio.sleep(0.05)
        others = [batcher.enqueue(number(n)) for n in range(1, 11)]
        slow.gate.set()
        answers = list(await asyncio.gather(first, *others))
        await batcher.close()
        return answers

    assert asyncio.run(main()) == list(range(1, 12))
    assert slow.sizes == [1, 10]


def test_a_full_queue_refuses_at_the_door_and_the_rest_is_answered() -> None:
    slow = Slow()

    async def main() -> None:
        batcher: Batcher[Number, int] = Batcher(slow, 2, 3)
        running = batcher.enqueue(number(0))
        await asyncio.sleep(0.05)
        waiting = [batcher.enqueue(number(n)) for n in (1, 2, 3)]
        with pytest.raises(OverloadedError):
            batcher.enqueue(number(4))
        slow.gate.set()
        assert await asyncio.gather(running, *waiting) == [1, 2, 3, 4]
        await batcher.close()
        with pytest.raises(ClosedError):
            batcher.enqueue(number(5))

    asyncio.run(main())
    assert slow.sizes == [1, 2, 1]


def test_one_failure_stays_with_its_question() -> None:
    slow = Slow()
    slow.gate.set()

    async def main() -> None:
        batcher: Batcher[Number, int] = Batcher(slow, 32, 100)
        asked = [batcher.enqueue(number(n)) for n in (12, 13, 14)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert answers[0] == 13
        assert isinstance(answers[1], ValueError)
        assert answers[2] == 15
        await batcher.close()

    asyncio.run(main())


def test_closing_answers_everyone_who_waits() -> None:
    slow = Slow()

    async def main() -> None:
        batcher: Batcher[Number, int] = Batcher(slow, 2, 100)
        asked = [batcher.enqueue(number(n)) for n in range(7)]
        await asyncio.sleep(0.02)
        slow.gate.set()
        await batcher.close()
        assert [each.result() for each in asked] == list(range(1, 8))

    asyncio.run(main())


def test_a_client_that_went_away_takes_no_place_in_a_batch() -> None:
    slow = Slow()

    async def main() -> None:
        batcher: Batcher[Number, int] = Batcher(slow, 32, 100)
        running = batcher.enqueue(number(0))
        await asyncio.sleep(0.02)
        gone, stays = batcher.enqueue(number(1)), batcher.enqueue(number(2))
        gone.cancel()
        slow.gate.set()
        assert list(await asyncio.gather(running, stays)) == [1, 3]
        await batcher.close()

    asyncio.run(main())
    assert slow.sizes == [1, 1]


def test_nobody_waits_beyond_his_deadline_and_is_told_why() -> None:
    slow = Slow()

    async def main() -> None:
        batcher: Batcher[Number, int] = Batcher(slow, 1, 100)
        running, queued = batcher.enqueue(number(0, 0.05)), batcher.enqueue(number(1, 0.05))
        begun = time.perf_counter()
        with pytest.raises(UnfinishedError):
            await running
        with pytest.raises(OverloadedError, match="ran out"):
            await queued
        assert time.perf_counter() - begun < 2  # the gate would have held for 5
        assert batcher.longest_run() > 0.05
        slow.gate.set()
        assert await batcher.enqueue(number(2)) == 3
        assert batcher.longest_run() == 0
        await batcher.close()

    asyncio.run(main())
    assert slow.sizes == [1, 1]  # who was refused is not worked on


def test_patient_questions_never_keep_out_those_who_ask_for_the_usual_time() -> None:
    slow = Slow()

    async def main() -> None:
        batcher: Batcher[Number, int] = Batcher(
            lambda asked: slow(asked) if asked[0].is_patient else [each.n + 1 for each in asked],
            1,
            100,
            threads=4,
        )
        patient = [batcher.enqueue(number(n, is_patient=True)) for n in range(6)]
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(batcher.enqueue(number(7)), 4) == 8
        assert not any(each.done() for each in patient)
        slow.gate.set()
        await asyncio.gather(*patient)
        await batcher.close()

    asyncio.run(main())


def test_only_questions_of_one_group_share_a_batch_and_what_the_loop_cannot_answer_goes_to_a_thread() -> None:
    batches: list[list[int]] = []

    def run(asked: Sequence[Number]) -> list[int | Exception]:
        batches.append([each.n for each in asked])
        return [each.n + 1 for each in asked]

    async def main() -> None:
        def some(asked: Sequence[Number]) -> list[int | Exception | None]:
            return [each.n + 1 if each.n < 3 else None for each in asked]

        batcher: Batcher[Number, int] = Batcher(run, 32, 100, inline=Inline(lambda _: True, some))
        asked = [batcher.enqueue(number(n, group="even" if n % 2 == 0 else "odd")) for n in range(8)]
        assert await asyncio.gather(*asked) == list(range(1, 9))
        await batcher.close()

    asyncio.run(main())
    assert sorted(batches) == [[3, 5, 7], [4, 6]]


def test_an_error_of_a_whole_batch_is_found_out_one_by_one() -> None:
    def run(asked: Sequence[Number]) -> list[int | Exception]:
        if any(each.n == 13 for each in asked):
            raise OverflowError("unlucky")
        return [each.n + 1 for each in asked]

    async def main() -> None:
        batcher: Batcher[Number, int] = Batcher(run, 32, 100)
        answers = await asyncio.gather(
            *(batcher.enqueue(number(n)) for n in (12, 13, 14)), return_exceptions=True
        )
        assert [answers[0], answers[2]] == [13, 15]
        assert isinstance(answers[1], OverflowError)
        await batcher.close()

    asyncio.run(main())
