"""Which method should I run? Everybody fitted on the same train split, judged on the same test requests, one table.

Knows no method by itself: names lead to the rivals' room and to our own two, each run as a job.
"""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from exactk.data.columns.vocabulary import Vocabulary
from exactk.data.dataset import Dataset, SplitRecord, expect_dataset
from exactk.errors import InputError
from exactk.evaluation import offpolicy
from exactk.evaluation.click_models import second_judge
from exactk.evaluation.jobs import MethodRun, Tell, code_digest, resolve, results, run_all
from exactk.evaluation.judging import Scores, TrueValues, judged, read_result, write_result
from exactk.evaluation.ours import OURS, VARIANTS
from exactk.evaluation.table import Comparison, Entry, Logged, compared
from exactk.problem.reading import seconds_of
from exactk.recommender import Recommender
from exactk.rivals import RIVALS
from exactk.rivals.contract import QUICK, Budget, CardPicker, Logs
from exactk.tensors import TensorBatch

PROBES = ("least-seen",)  # shown to expose leaks, never counted as a way to serve anybody; see `compare`, too
QUICK_METHODS = (
    "random", "popularity", "least-seen", "mf-softmax", "lambdarank", "deeprank", "listwise-mhsa", "set-value",
    *(name for name in OURS if name not in VARIANTS),
)  # fmt: skip
QUICK_ROWS = 6_000


def method_names() -> list[str]:
    """Every method there is, ours last."""
    return [*RIVALS, *OURS]


def methods_for(quick: bool) -> list[str]:
    """What is compared where nobody asks for anything."""
    return list(QUICK_METHODS) if quick else method_names()


@dataclass(frozen=True)
class Existing:
    """A recommender that exists already: how it picks cards, and the vocabulary it reads batches in."""

    name: str
    decider: CardPicker
    vocabulary: Vocabulary
    kind: str = "yours"
    split: SplitRecord | None = None  # of the log it was trained on, where that is known

    @classmethod
    def of(cls, given: Any) -> Existing:
        """Itself, or a fitted `exactk.Recommender`."""
        if isinstance(given, Existing):
            return given
        if not hasattr(given, "decider") or not hasattr(given, "fitted"):
            raise InputError(f"a method is a name, module:function or a fitted recommender, not {given!r}")
        split = getattr(given.fitted, "split", None)
        return cls("yours", given.decider, given.fitted.vocabulary, split=split)

    @classmethod
    def load(cls, folder: Path) -> Existing:
        return replace(cls.of(Recommender.load(folder)), name=f"{folder.resolve().name} (exactk)")


class Parts(NamedTuple):
    """What is learned from, tuned on and judged on."""

    train: Dataset
    valid: Dataset
    test: Dataset


def baselines(
    train: Dataset, names: Sequence[str] = ("popularity", "mf-softmax", "deeprank"), budget: Budget = QUICK
) -> list[Existing]:
    """Train a few rivals in this process, to compare with a recommender: `compare(test, [rec, *baselines(train)])`."""
    tenth = np.arange(len(train)) % 10 == 9
    learn, valid = Logs.of(train.take(~tenth), train.take(tenth))
    return [
        Existing(way, recommender, learn.vocabulary, _kind(name), train.parted)
        for name in names
        for way, recommender in resolve(_place(name))(learn, valid, budget).ways.items()
    ]


def compare(
    data: Dataset | tuple[Dataset, Dataset, Dataset],
    methods: Sequence[Any] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    jobs: int | None = None,
    out: Path | str | None = None,
    budget: Budget | None = None,
    quick: bool = False,
    max_test: int = 10_000,
    limit_seconds: float | None = None,
    tell: Tell | None = None,
    run: bool = True,
) -> Comparison:
    """Train `methods` (by default all) on train, tune them on valid, judge them on at most `max_test` test requests.

    A method is a name from `method_names()`, `module:function` for a function fit(train, valid, budget), or a fitted
    recommender. If all methods are fitted, a Dataset is taken as the test part itself. `out` keeps the results, one
    file per method and seed: a second call with the same folder runs only what is missing. A method that fails is
    listed with its reason. `quick` means few methods, few rows and a small budget. With `run=False` nothing is
    trained: the table shows what earlier runs left in `out`, and which rows other code or settings made.
    """
    say = tell or _to_stderr
    limit = seconds_of(limit_seconds, "limit_seconds")
    if not run and out is not None and not Path(out).is_dir():
        raise InputError(f"{out} holds no results of earlier runs: there is no such folder")
    budget = budget or (QUICK if quick else Budget())
    chosen = list(methods) if methods is not None else methods_for(quick)
    places = {name: _place(name) for name in chosen if isinstance(name, str)}
    existing = [Existing.of(given) for given in chosen if not isinstance(given, str)]
    if isinstance(data, tuple | list) and len(data) == 3:
        train, valid, test = (expect_dataset(part, "each part of data") for part in data)
    else:
        whole = expect_dataset(data, "data")
        train, valid, test = whole.split() if places else (whole,) * 3
    _refuse_other_split(existing, test)
    if quick:
        train, valid = _thinned(train, QUICK_ROWS), _thinned(valid, QUICK_ROWS // 4)
        max_test = min(max_test, 500)
    test = _thinned(test, max_test)
    if not len(train) or not len(test):
        raise InputError(
            f"{train.path}: comparing needs rows to train on and rows to test on; one part is empty"
        )
    parts = Parts(train, valid, test)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rows = _lay_down(folder, parts)
        rules = _own_rules(train)
        work = [
            MethodRun(
                name, place, seed, replace(budget, seed=seed), str(train.path), str(rows), rules, str(folder)
            ).keyed(code_digest(place))
            for seed in seeds
            for name, place in places.items()
        ]
        if run:
            run_all(work, jobs or os.cpu_count() or 1, say, limit)
        older = sorted({job.name for job in work if job.path.exists() and not job.finished()})
        entries = [*_entries(work, seeds), *(_judged_entry(one, test) for one in existing)]
        truth = TrueValues.of(test)
        if truth is None and not test.signal.whole_lists:  # the card it shows is the one that holds the click
            entries = [replace(e, kind="probe") if e.method == "logged-policy" else e for e in entries]
        solvable = _judged_rows(entries)
        logged = Logged.of(test.take(solvable), num_left_out=len(test) - len(solvable))
        clicks = second_judge(valid, test)
        if clicks is not None and clicks.examined is not None:
            logged = replace(logged, examined=clicks.examined[solvable])
        optimum = None if truth is None else _optimum(folder, truth, entries, say)
        models = _opinions(parts, entries, logged, budget, say)
    facts = {**_describe(parts, budget), **({} if run else {"made_earlier": older})}
    facts |= {"quick": True} if quick else {}
    unknown = [one.name for one in existing if one.split is None or test.parted is None]
    facts |= {"split_unknown": unknown} if unknown else {}
    facts |= {} if clicks is None else {"click_model": clicks.facts}
    return compared(entries, logged, optimum, facts, seeds, models)


def _refuse_other_split(existing: Sequence[Existing], test: Dataset) -> None:
    """A model that was trained by another split of this log would be judged on rows it knows."""
    for one in existing:
        here, trained = test.parted, one.split
        if here and trained and here.impressions == trained.impressions and here != trained:
            raise InputError(
                f"{one.name} was trained by another split of this log ({trained}) than the one it would be judged on "
                f"({here}); compare by its own"
            )


def _place(name: str) -> str:
    """Where a method's function is."""
    if name in OURS:
        return OURS[name]
    if name in RIVALS:
        return f"exactk.rivals.{RIVALS[name]}"
    if ":" in name:
        return name
    known = method_names()
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ";"
    raise InputError(f"unknown method {name!r}{hint} there are {', '.join(known)}, or module:function")


def _thinned(view: Dataset, most: int) -> Dataset:
    """At most so many rows, spread evenly over the view, in its order."""
    return view.spread(most)


def _own_rules(view: Dataset) -> dict[str, Any] | None:
    """Rules given to the view itself; those of the folder its jobs find there."""
    if view.constraints is None or view.rules is view.folder.rules:
        return None
    return dict(view.constraints.to_dict())


def _lay_down(folder: Path, parts: Parts) -> Path:
    """The split as row numbers, for jobs in other processes; the same split gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.npz"
    write_result(path, {}, {name: view.rows for name, view in parts._asdict().items()})
    return path


def _entries(work: Sequence[MethodRun], seeds: Sequence[int]) -> list[Entry]:
    """One entry per way of each method, its seeds side by side; a method that was skipped keeps its reason."""
    found: dict[str, list[tuple[dict[str, Any], Scores]]] = {}
    skipped: dict[str, Entry] = {}
    for job, header, ways in results(work):
        if header["reason"]:
            skipped[job.name] = Entry(job.name, job.name, _kind(job.name), reason=header["reason"])
        for way, scores in ways.items():
            found.setdefault(f"{job.name}\n{way}", []).append((header, scores))
    entries = []
    for label, runs in found.items():
        name, way = label.split("\n")
        if name in skipped and len(runs) < len(seeds):
            continue  # a method that failed for one seed is not averaged over the others
        seconds = float(np.mean([header["train_seconds"] for header, _ in runs]))
        chosen = runs[0][0]["chosen"]
        entries.append(Entry(name, way, _kind(name), tuple(s for _, s in runs), seconds, chosen))
    return [*entries, *skipped.values()]


def _judged_entry(one: Existing, test: Dataset) -> Entry:
    """A recommender that exists already; its training is none of this comparison's time."""
    scores = judged(one.decider, Logs(test, one.vocabulary), TrueValues.of(test))
    return Entry(one.name, one.name, one.kind, (scores,))


def _kind(name: str) -> str:
    return "ours" if name in OURS else "probe" if name in PROBES else "rival"


def _judged_rows(entries: Sequence[Entry]) -> Int[np.ndarray, "R"]:
    """Places in the test view of the requests that were judged."""
    return next((entry.scores[0].request for entry in entries if entry.scores), np.empty(0, np.int64))


def _optimum(folder: Path, truth: TrueValues, entries: Sequence[Entry], say: Tell) -> Float[np.ndarray, "R"]:
    """The best possible value of every judged request; kept, because the search may take a while."""
    rows = _judged_rows(entries)
    key = {"rows": truth.view.rows[rows].tolist(), "files": truth.view.meta.checksums}
    held = read_result(folder / "optimum.npz")
    if held is not None and held[0] == key:
        return held[1]["value"]
    say(f"finding the best card of {len(rows)} requests")
    value = truth.optimum(rows)
    write_result(folder / "optimum.npz", key, {"value": value})
    return value


def _opinions(
    parts: Parts, entries: Sequence[Entry], logged: Logged, budget: Budget, say: Tell
) -> dict[str, offpolicy.Opinions]:
    """A value model's opinion of logged and chosen cards, for doubly robust estimates: only where they may be shown."""
    from exactk.rivals.whole_cards import fit_value

    def has_support(entry: Entry) -> bool:
        weights = offpolicy.card_weights(entry.scores[0].cards, logged.card, logged.propensity)
        return offpolicy.support(weights).enough

    supported = [entry for entry in entries if entry.scores and has_support(entry)]
    if not supported:
        return {}
    say("fitting a value model for doubly robust estimates")
    train_logs, valid_logs, test_logs = Logs.of(*parts)
    try:
        network, _, _ = fit_value(train_logs, valid_logs, replace(budget, trials=1))
    except InputError as error:
        say(f"no doubly robust estimates: {error}")
        return {}
    judged_rows = test_logs.view.take(supported[0].scores[0].request)

    @torch.no_grad()
    def opinion(cards: np.ndarray) -> np.ndarray:
        batches = map(TensorBatch.of, judged_rows.batches(test_logs.vocabulary, 1024))
        parts = zip(batches, torch.from_numpy(cards).unsqueeze(1).split(1024), strict=True)  # type: ignore[no-untyped-call]
        return torch.cat([network(*part).squeeze(1) for part in parts]).double().sigmoid().numpy()

    shown = opinion(logged.card)
    return {entry.way: offpolicy.Opinions(shown, opinion(entry.scores[0].cards)) for entry in supported}


def _describe(parts: Parts, budget: Budget) -> dict[str, Any]:
    train, source = parts.train, parts.train.meta.provenance
    return {
        "data": train.path.name,
        "K": train.meta.K,
        "N": train.meta.N,
        **{name: len(view) for name, view in parts._asdict().items()},
        "budget": {"trials": budget.trials, "epochs": budget.epochs, "patience": budget.patience},
        "source": source.get("source"),
        "world": source.get("config") if source.get("source") == "world" else None,
    }


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
