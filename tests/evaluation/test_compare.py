"""Comparisons: the table from known scores, the words from the table, and the jobs under fire."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exactk
from exactk.data import Dataset
from exactk.data.world import world
from exactk.errors import InputError
from exactk.evaluation import jobs
from exactk.evaluation.compare import Existing, baselines, compare, method_names
from exactk.evaluation.jobs import code_digest
from exactk.evaluation.judging import Scores, judged, read_result, write_result
from exactk.evaluation.table import Comparison, Entry, Logged, compared
from exactk.evaluation.verdict import markdown, spread_out, studio_table, value_against_latency, verdict
from exactk.recommender import Recommender
from exactk.rivals.contract import Logs
from exactk.rivals.counting import fit_popularity, fit_random
from exactk.settings.presets import preset
from exactk_lab.bench.pages.kept import comparison_of, goals
from rival_logs import TINY, planted_log, planted_logs

REQUESTS = 400


def scores(level: float, seed: int = 0, noise: float = 0.1, num: int = REQUESTS) -> Scores:
    """Scores whose true value is `level` on average; the same seed makes the same noise."""
    rng = np.random.default_rng(seed)
    value = np.clip(level + rng.normal(0, noise, num), 0, 1)
    return Scores(
        request=np.arange(num),
        cards=rng.integers(0, 9, (num, 2)),
        precision=(rng.random(num) < level).astype(float),
        hit_ratio=np.full(num, level),
        whole_card=np.full(num, np.nan),
        valid=np.ones(num),
        diversity=np.full(num, np.nan),
        value=value,
        coverage=0.5,
        ms_per_card=1.0,
        ms_alone=2.0,
    )


def logged(num: int = REQUESTS) -> Logged:
    return Logged(
        user=np.arange(num),
        card=np.tile(np.array([0, 1]), (num, 1)),
        clicked=np.ones(num, bool),
        propensity=np.full(num, np.nan),
        num_left_out=3,
    )


def table(entries: Sequence[Entry], with_truth: bool = True) -> Comparison:
    optimum = np.full(REQUESTS, 0.8) if with_truth else None
    return compared(entries, logged(), optimum, {"K": 2, "N": 9}, (0,))


def test_the_table_is_ordered_by_true_value_and_tests_against_the_strongest_rival() -> None:
    found = table(
        [
            Entry("weak", "weak", "rival", (scores(0.3, 1),), 1.0),
            Entry("gattn", "GAttN", "ours", (scores(0.6, 2),), 5.0),
            Entry("strong", "strong", "rival", (scores(0.5, 3),), 2.0),
            Entry("least-seen", "least seen", "probe", (scores(0.9, 4),), 0.0),
        ]
    )
    assert [row.way for row in found.rows] == ["least seen", "GAttN", "strong", "weak"]
    assert found.strongest_rival == "strong"
    ours = found.row("GAttN")
    assert ours.p_value is not None
    assert ours.p_value < 0.001
    assert ours.difference is not None
    assert ours.difference.low < 0.1 < ours.difference.high
    assert ours.share_of_optimum is not None
    assert ours.share_of_optimum.estimate == pytest.approx(0.6 / 0.8, abs=0.02)
    assert ours.regret == pytest.approx(0.2, abs=0.02)
    assert found.row("strong").p_value is None
    assert found.optimum == pytest.approx(0.8)


def test_seeds_are_averaged_request_by_request() -> None:
    one, two = scores(0.5, 1), scores(0.7, 2)
    found = table([Entry("a", "a", "rival", (one, two), 1.0)])
    value = found.row("a").value
    assert value is not None
    assert value.estimate == pytest.approx((one.value.mean() + two.value.mean()) / 2)


def test_without_truth_the_headline_is_precision_and_without_clicks_hit_ratio() -> None:
    entry = Entry("a", "a", "rival", (scores(0.5),), 1.0)
    assert table([entry], with_truth=False).headline == "precision"
    blind = replace(entry, scores=(replace(entry.scores[0], precision=np.full(REQUESTS, np.nan)),))
    assert table([blind], with_truth=False).headline == "hit_ratio"


def test_the_verdict_says_when_a_rival_wins() -> None:
    found = table(
        [
            Entry("gattn", "GAttN", "ours", (scores(0.5, 1),), 5.0),
            Entry("strong", "strong", "rival", (scores(0.6, 2),), 2.0),
        ]
    )
    said = " ".join(verdict(found))
    assert "Highest true value: strong" in said
    assert "A rival wins this table." in said
    assert "GAttN is 0.1" in said
    assert "below strong" in said


def test_the_verdict_does_not_call_noise_a_win() -> None:
    same = scores(0.5, 1)
    found = table(
        [
            Entry(
                "gattn",
                "GAttN",
                "ours",
                (replace(same, value=same.value + 1e-4 * np.sin(np.arange(REQUESTS)) + 1e-6),),
                5.0,
            ),
            Entry("strong", "strong", "rival", (same,), 2.0),
        ]
    )
    assert "which may be chance" in verdict(found)[0]


def test_the_verdict_says_that_popularity_does_as_well_only_where_no_difference_is_sure() -> None:
    counted = Entry("popularity", "popularity exact", "rival", (scores(0.5, 2, noise=0.3),), 0.0)
    value = counted.scores[0].value
    wavering = replace(counted.scores[0], value=value + 0.01 * np.sin(np.arange(REQUESTS)) + 1e-5)
    level = table([counted, Entry("deep", "deep", "rival", (wavering,), 9.0)])
    assert "Popularity alone reaches" in " ".join(verdict(level))
    # A small step up on every request is sure, however wide the intervals of either.
    steady = replace(counted.scores[0], value=value + 0.01)
    above = table([counted, Entry("deep", "deep", "rival", (steady,), 9.0)])
    assert above.rows[0].value is not None
    assert above.rows[1].value is not None
    assert above.rows[1].value.high > above.rows[0].value.low
    assert "Popularity alone" not in " ".join(verdict(above))


def test_a_probe_alone_is_no_comparison() -> None:
    found = table([Entry("least-seen", "least seen", "probe", (scores(0.9),), 0.0)], with_truth=False)
    assert verdict(found) == [
        "Only a probe was judged, and a probe cannot be served: there is nothing to compare."
    ]
    assert "least seen" in markdown(found)


def test_the_verdict_warns_of_a_leak() -> None:
    found = table(
        [
            Entry("random", "random", "rival", (scores(0.2, 1),), 0.0),
            Entry("popularity", "popularity exact", "rival", (scores(0.5, 2),), 0.0),
            Entry("deep", "deep", "rival", (scores(0.503, 3),), 9.0),
            Entry("least-seen", "least seen", "probe", (scores(0.95, 4),), 0.0),
        ],
        with_truth=False,
    )
    said = " ".join(verdict(found))
    assert "this split leaks" in said
    assert "3 test requests have no valid card" in said
    assert "No off-policy estimate: no propensity recorded" in said


def test_the_verdict_says_which_rows_are_one_and_which_holds_what_is_asked_for() -> None:
    chance, other = scores(0.2, 1), scores(0.5, 2)
    entries = [
        Entry("random", "random", "rival", (chance,), 0.0),
        Entry(
            "popularity", "popularity greedy", "rival", (replace(chance, cards=chance.cards[:, ::-1]),), 0.0
        ),
        Entry("popularity", "popularity exact", "rival", (chance,), 0.0),
        Entry("als", "ALS greedy", "rival", (chance,), 0.0),
        *(Entry(name, name, "rival", (other,), 0.0) for name in ("mf", "bpr")),
        Entry("logged-policy", "logged policy", "probe", (scores(1.0, 3),), 0.0),
    ]
    said = " ".join(verdict(table(entries, with_truth=False)))
    assert "popularity, als and random; nothing they read tells these candidates apart." in said
    assert "The same cards in every request: mf, bpr." in said
    assert "a probe, not a rival" in said


def test_methods_left_out_for_one_reason_are_named_together() -> None:
    missing = [Entry(name, name, "rival", reason="no column `score`.") for name in ("a", "b")]
    found = table([Entry("random", "random", "rival", (scores(0.2),), 0.0), *missing])
    assert "Not in the table: a, b (no column `score`)." in verdict(found)


def test_a_comparison_shows_its_table_wherever_it_is_shown() -> None:
    found = table([Entry("a", "a", "rival", (scores(0.5),), 1.0)])
    assert repr(found) == str(found) == markdown(found)


def test_markdown_has_a_line_per_method_and_leaves_out_what_nobody_knows() -> None:
    found = table(
        [Entry("a", "a", "rival", (scores(0.5),), 1.0), Entry("b", "b", "ours", (scores(0.4),), 1.0)]
    )
    text = markdown(found)
    head = text.splitlines()[0]
    assert "clicked item" in head
    assert "diversity" not in head
    assert "| **b** |" in text
    assert text.splitlines()[2].startswith("| a |")


def test_the_answer_is_plain_json(tmp_path: Path) -> None:
    found = table([Entry("a", "a", "rival", (scores(0.5),), float("nan"))])
    again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert again["rows"][0]["train_seconds"] is None
    assert again["rows"][0]["estimates"]["snips"]["interval"] is None
    assert again["verdict"]


def test_a_comparison_read_back_says_the_same(tmp_path: Path) -> None:
    found = table(
        [
            Entry("a", "a", "rival", (scores(0.5),), float("nan")),
            Entry("b", "b", "ours", (scores(0.6, 1),), 2.0, {"inputs": "both"}),
            Entry("c", "c", "rival", reason="it was too tired"),
        ]
    )
    again = comparison_of(json.loads(json.dumps(found.as_dict())))
    assert markdown(again) == markdown(found)
    assert again.row("b") == found.row("b")
    assert again.skipped == found.skipped


def test_the_studio_is_given_one_figure_to_a_cell() -> None:
    found = table(
        [Entry("a", "a", "rival", (scores(0.5),), 1.0), Entry("b", "b (exactk)", "yours", (scores(0.6, 1),))]
    )
    told = studio_table(found)
    assert [row["method"] for row in told["rows"]] == ["b (exactk)", "a"]
    first, second = told["rows"]
    assert first["of optimum"] == pytest.approx(0.75, abs=0.02)
    assert "diversity" not in first
    assert "training s" not in first
    assert second["training s"] == 1.0
    assert told["verdict"] == verdict(found)
    json.dumps(told, allow_nan=False)


def world_table(ours: tuple[float, float], rival: float, **world: float) -> Comparison:
    """Our two methods and a rival in a world; the first level is the policy's."""
    entries = [
        Entry("gattn", "GAttN + RLfD", "ours", (scores(ours[0], 1),)),
        Entry("pair-value", "pair value + exact", "ours", (scores(ours[1], 2),)),
        Entry("r", "r", "rival", (scores(rival, 3),)),
    ]
    facts = {"K": 2, "world": {"strength": 1.0, "theme": 0.0, **world}}
    return compared(entries, logged(), np.full(REQUESTS, 0.9), facts, (0,))


def test_goals_are_those_of_the_world_compared_on() -> None:
    (sure,) = goals(world_table((0.4, 0.6), 0.5))
    assert sure.met
    assert "pair value + exact above every rival" in sure.name
    (beaten,) = goals(world_table((0.4, 0.5), 0.6))
    assert not beaten.met
    assert beaten.measured == 1.0
    policy, value = goals(world_table((0.595, 0.4), 0.6, strength=0.0))
    assert policy.measured == pytest.approx(0.595 / 0.6, abs=0.03)
    assert not value.met
    (themed,) = goals(world_table((0.6, 0.5), 0.3, theme=1.0))
    assert themed.met
    assert goals(table([Entry("a", "a", "rival", (scores(0.5),))])) == []


def test_a_trained_model_joins_by_its_folder(log: Dataset, tmp_path: Path) -> None:
    train, valid, _ = log.split()
    trained = Recommender(preset("tiny")).fit(train, valid, show=False)
    trained.save(tmp_path / "mine")
    mine = Existing.load(tmp_path / "mine")
    assert mine.name == "mine (exactk)"
    batch = train.take(slice(0, 20)).batch(trained.fitted.vocabulary)
    assert mine.decider.recommend(batch).tolist() == trained.recommend_batch(batch).tolist()


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra 'plot'")
    found = table(
        [Entry("a", "a", "rival", (scores(0.5),), 1.0), Entry("b", "b", "ours", (scores(0.4),), 1.0)]
    )
    path = value_against_latency(found, tmp_path / "plot.png")
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_names_beside_the_picture_never_lie_on_each_other() -> None:
    assert spread_out([0.9, 0.89, 0.1], 0.05) == pytest.approx([0.9, 0.85, 0.1])
    assert spread_out([0.05, 0.04, 0.03], 0.05) == pytest.approx([0.1, 0.05, 0.0])


def test_judging_counts_by_hand(tmp_path: Path) -> None:
    train, valid, test = planted_logs(tmp_path / "log", num=300, features=True)
    way = fit_popularity(train, valid, TINY).ways["popularity exact"]
    found = judged(way, test, None)
    batch = test.view.batch(test.vocabulary)
    cards = way.recommend(batch)
    clicked = batch.clicked_position if batch.clicked_position is not None else np.empty(0)
    hits = [c in card for c, card in zip(clicked, cards, strict=True) if c >= 0]
    assert np.nanmean(found.precision) == pytest.approx(np.mean(hits))
    assert found.valid.min() == 1.0
    assert 0 < found.coverage <= 1
    assert found.ms_per_card > 0
    assert np.isnan(found.value).all()


def test_a_result_file_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    write_result(path, {"key": "k"}, {"a": np.arange(3)})
    held = read_result(path)
    assert held is not None
    assert held[0] == {"key": "k"}
    assert held[1]["a"].tolist() == [0, 1, 2]
    path.write_bytes(path.read_bytes()[:40])
    assert read_result(path) is None
    assert read_result(tmp_path / "none.npz") is None
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return planted_log(tmp_path_factory.mktemp("log") / "log", num=600)


@pytest.fixture
def import_test_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in processes of their own: they find the test methods by the path."""
    here = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))


@pytest.mark.usefixtures("import_test_methods")
def test_a_failing_method_is_listed_with_its_reason_and_loses_nobody(log: Dataset, tmp_path: Path) -> None:
    told: list[str] = []
    methods = ["random", "compare_methods:fit_lacking", "compare_methods:fit_crashing"]
    found = compare(log, methods, out=tmp_path / "out", budget=TINY, jobs=2, tell=told.append)
    assert [row.way for row in found.rows] == ["random"]
    assert found.skipped["compare_methods:fit_lacking"].startswith("this rival needs 'unobtainium'")
    assert found.skipped["compare_methods:fit_crashing"] == "exit 9: out of luck"
    assert any("random-seed0 done" in line for line in told)
    assert "Not in the table" in " ".join(verdict(found))


@pytest.mark.usefixtures("import_test_methods")
def test_an_interrupted_comparison_goes_on_with_what_is_missing(
    log: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    monkeypatch.setenv("EXACTK_TEST_MARKS", str(marks))
    method = "compare_methods:fit_counted"
    out = tmp_path / "out"

    def run() -> int:
        compare(log, [method], out=out, budget=TINY, tell=lambda _: None)
        return len(marks.read_text().splitlines())

    assert run() == 1
    assert run() == 1, "a finished result is not run again"
    result = out / "compare_methods.fit_counted-seed0.npz"
    result.write_bytes(result.read_bytes()[:100])
    assert run() == 2, "a damaged result is"
    compare(log, [method], out=out, budget=replace(TINY, epochs=3), tell=lambda _: None)
    assert len(marks.read_text().splitlines()) == 3, "and so is one of another budget"


@pytest.mark.usefixtures("import_test_methods")
def test_a_report_fits_nothing_and_names_what_other_settings_made(log: Dataset, tmp_path: Path) -> None:
    first = compare(log, ["popularity"], out=tmp_path, budget=TINY, jobs=1, tell=lambda _: None)
    other = replace(TINY, epochs=TINY.epochs + 1)
    told: list[str] = []
    found = compare(
        log, ["popularity", "random"], out=tmp_path, budget=other, tell=told.append, run=False
    )  # fmt: skip
    assert not [line for line in told if "jobs to run" in line]
    assert found.row("popularity greedy").precision == first.row("popularity greedy").precision
    assert found.facts["made_earlier"] == ["popularity"]
    assert found.skipped == {"random": "it was never run"}
    assert any("Kept from earlier runs" in sentence for sentence in verdict(found))


@pytest.mark.usefixtures("import_test_methods")
def test_a_method_that_never_ends_is_stopped(log: Dataset, tmp_path: Path) -> None:
    found = compare(
        log,
        ["compare_methods:fit_sleeping"],
        out=tmp_path / "o",
        budget=TINY,
        tell=lambda _: None,
        limit_seconds=8.0,
    )
    assert found.skipped["compare_methods:fit_sleeping"].startswith("killed after 8 s")
    (line,) = verdict(found)
    assert line.startswith(
        "No method finished, so there is nothing to compare (compare_methods:fit_sleeping: killed"
    )


def test_learning_beats_chance_in_a_whole_comparison(log: Dataset, tmp_path: Path) -> None:
    studious = replace(TINY, epochs=20, patience=20)
    found = compare(
        log, ["random", "mf-softmax"], out=tmp_path / "out", budget=studious, jobs=1, tell=lambda _: None
    )
    assert not found.skipped
    assert found.headline == "precision"
    assert found.rows[-1].way == "random"
    assert found.strongest_rival in ("MF softmax greedy", "MF softmax exact")
    assert all(row.valid_rate == 1.0 for row in found.rows)
    assert found.facts["test"] == 60


def test_a_quick_comparison_says_first_that_it_decides_nothing(log: Dataset, tmp_path: Path) -> None:
    found = compare(
        log, ["random", "popularity"], out=tmp_path / "out", quick=True, jobs=1, tell=lambda _: None
    )
    first, second, *_ = verdict(found)
    assert first.startswith("A quick run (")
    assert f"{len(log.split()[0]):,} cards to learn from" in first
    assert second.startswith("Highest")
    assert "- A quick run (" in markdown(found)
    usual = compare(
        log, ["random", "popularity"], out=tmp_path / "out", budget=TINY, jobs=1, tell=lambda _: None
    )
    assert not any("quick" in said for said in verdict(usual))


def test_a_fitted_recommender_is_judged_beside_the_others(log: Dataset, tmp_path: Path) -> None:
    train, valid, test = log.split()
    vocabulary = train.vocabulary()

    class Fitted:
        def __init__(self) -> None:
            self.vocabulary = vocabulary

    class Mine:
        fitted = Fitted()
        decider = fit_random(Logs(train, vocabulary), Logs(valid, vocabulary), TINY).ways["random"]

    found = compare((train, valid, test), ["random", Mine()], budget=TINY, tell=lambda _: None)
    assert {row.way: row.kind for row in found.rows} == {"yours": "yours", "random": "rival"}
    assert found.row("yours").precision == found.row("random").precision


def test_the_logged_policy_wins_nothing_where_only_its_own_cards_could_be_clicked(
    log: Dataset, tmp_path: Path
) -> None:
    found = compare(
        log, ["random", "popularity", "logged-policy"], out=tmp_path, budget=TINY, jobs=1, tell=lambda _: None
    )
    shown = found.row("logged policy")
    assert shown.precision is not None
    assert (shown.kind, shown.precision.estimate) == ("probe", 1.0)
    assert found.strongest_rival != "logged policy"
    others = [said for said in verdict(found) if not said.endswith("a probe, not a rival.")]
    assert len(others) == len(verdict(found)) - 1
    assert not any("logged policy" in said or said.startswith("Beware") for said in others)


def test_fitted_recommenders_alone_need_no_training(log: Dataset) -> None:
    train, _, test = log.split()
    found = compare(test, baselines(train, ["random", "popularity"], TINY), tell=lambda _: None)
    assert {row.way for row in found.rows} == {"random", "popularity greedy", "popularity exact"}
    assert found.facts["test"] == len(test)
    assert found.strongest_rival is not None
    assert str(found) == markdown(found)
    assert (exactk.compare, exactk.baselines) == (compare, baselines)
    with pytest.raises(InputError, match="a method is a name"):
        compare(test, [3])


def test_on_a_world_the_headline_is_true_value_and_nobody_beats_the_optimum(tmp_path: Path) -> None:
    data = world(users=60, items=150, impressions=900, n=10, k=2, path=tmp_path / "world")
    train, _, test = data.split()
    found = compare(test, baselines(train, ["random", "popularity"], TINY), tell=lambda _: None)
    assert found.headline == "value"
    assert found.optimum is not None
    for row in found.rows:
        assert row.value is not None
        assert row.share_of_optimum is not None
        assert row.regret is not None
        assert row.value.estimate == pytest.approx(found.optimum - row.regret)
        assert 0 < row.share_of_optimum.estimate < 1
        assert row.diversity is not None
    assert found.rows[-1].way == "random"


def test_unknown_methods_are_refused_before_anything_runs(log: Dataset) -> None:
    with pytest.raises(InputError, match="unknown method 'deeprnak'; did you mean deeprank"):
        compare(log, ["deeprnak"])
    assert {"gattn", "pair-value", "least-seen"} <= set(method_names())


def test_limits_that_are_no_time_and_folders_that_are_not_there_are_refused(
    log: Dataset, tmp_path: Path
) -> None:
    for limit in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="limit_seconds must be a number of seconds above 0"):
            compare(log, ["random"], limit_seconds=limit)
    with pytest.raises(InputError, match="nowhere holds no results of earlier runs: there is no such folder"):
        compare(log, ["random"], out=tmp_path / "nowhere", run=False)
    assert not list(tmp_path.iterdir())


def test_an_empty_part_is_refused(log: Dataset) -> None:
    train, valid, test = log.split()
    nothing: Any = slice(0, 0)
    with pytest.raises(InputError, match="one part is empty"):
        compare((train, valid, test.take(nothing)), ["random"])


def running(folder: Path) -> list[int]:
    """Processes whose command line names this folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and "exactk.evaluation.jobs" in line:
            found.append(int(place.name))
    return found


def waited_for(happened: Callable[[], bool], seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not happened() and time.monotonic() < ends:
        time.sleep(0.1)
    return happened()


@pytest.mark.usefixtures("import_test_methods")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="counts processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_comparison_leaves_no_process_behind(
    log: Dataset, tmp_path: Path, how: signal.Signals
) -> None:
    out = tmp_path / "out"
    door = [sys.executable, "-c", "from exactk.cli import main; main()"]
    command = [*door, "compare", str(log.path), "--out", str(out), "--jobs", "1"]
    with subprocess.Popen(
        [*command, "--method", "compare_methods:fit_sleeping"], stderr=subprocess.PIPE, text=True
    ) as run:
        assert waited_for(lambda: bool(running(out)))
        run.send_signal(how)
        assert run.stderr is not None
        said = run.stderr.read()
    assert waited_for(lambda: not running(out))
    if how == signal.SIGINT:
        assert run.returncode == 130
        assert said.endswith("stopped with 0 of 1 results; the same command resumes there\n")


def test_a_result_is_of_the_package_and_of_the_file_of_somebody_elses_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    theirs = tmp_path / "their_method.py"
    theirs.write_text("def fit(): return 1\n")
    before, ours = code_digest("their_method:fit"), code_digest("exactk.rivals.counting:fit_random")
    theirs.write_text("def fit(): return 2\n")
    assert code_digest("their_method:fit") != before
    assert code_digest("nowhere.to_be_found:fit") not in (before, code_digest("their_method:fit"))
    package = tmp_path / "exactk"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(exactk, "__file__", str(package / "__init__.py"))
    jobs._package_digest.cache_clear()
    assert code_digest("exactk.rivals.counting:fit_random") != ours
    jobs._package_digest.cache_clear()
