"""`exactk solve`, `recommend`, `score`: cards for a file of requests, shown, or kept as JSON lines, CSV or Parquet.

Knows answers as plain objects: a card, or the error in its place. Reading and choosing is the library's business.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import typer

from exactk.cli import app
from exactk.cli.data import column_map
from exactk.cli.output import (
    ADDRESS,
    JSON,
    MAP,
    MODEL,
    RAY,
    column_lines,
    emit,
    emit_json,
    emit_table,
    interruptible,
    kept_file,
    plain,
    progress_bar,
    talk,
)
from exactk.errors import DataError, ExactKError, InputError, without_place

if TYPE_CHECKING:
    from exactk.problem.solving_file import Solved

SHOWN = 20  # cards of `solve`
AT_ONCE = 256  # requests of `recommend`
RELAX = typer.Option(
    [],
    "--relax",
    help="A rule that may be dropped where no card exists; repeat it in the order to drop them.",
)
EXPLAIN = typer.Option(False, "--explain", help="Say why each other item is not on the card.")
OUT = typer.Option(None, "--out", help="Write the cards to this file: .jsonl or .csv.")


@app.command("solve")
def solve(
    file: Path = typer.Argument(
        help="CSV, Parquet or JSON lines with a row for each candidate: item_id, score, any columns that rules read, "
        "and request_id if there is more than one request."
    ),
    k: int = typer.Option(..., "--k", "-k", min=1, help="How many items a card has."),
    rules: Path | None = typer.Option(None, "--rules", help="Rules as TOML or JSON."),
    score: str = typer.Option("score", "--score", help="The column that holds the scores."),
    include: list[str] = typer.Option(
        [], "--include", help="An item that must be on the card; may be repeated."
    ),
    exclude: list[str] = typer.Option(
        [], "--exclude", help="An item that must not be on the card; may be repeated."
    ),
    relax: list[str] = RELAX,
    best: int = typer.Option(1, "--best", min=1, help="How many cards to find for each request, best first."),
    time_limit: float | None = typer.Option(
        None, "--time-limit", help="Seconds per request; after that, the best card so far."
    ),
    explain: bool = EXPLAIN,
    out: Path | None = OUT,
    text_ids: bool = typer.Option(
        False,
        "--text-ids",
        help="Read all ids as text. Without it, ids in CSV are numbers if all of them are written as numbers.",
    ),
    as_json: bool = JSON,
) -> None:
    """Find the best valid card of exactly K items for each request, and prove that it is the best.

    For a request without a valid card, the output says what blocks it, and the exit status is 2. All others are solved.
    """
    from exactk.problem.rules.constraints import load_rules
    from exactk.problem.solving_file import solve_file

    settings: dict[str, Any] = {
        "relax": tuple(relax), "n": best, "time_limit": time_limit, "explain": explain,
    }  # fmt: skip
    if include or exclude:
        settings |= {"include": tuple(include), "exclude": tuple(exclude)}
    constraints = load_rules(rules) if rules else None
    size = file.stat().st_size if file.is_file() else 0
    shown: list[Solved] = []
    count = failed = 0
    with interruptible(), kept_cards(out, file, rules) as keep, progress_bar("solving", size) as progress:
        for answer in solve_file(file, k, constraints, score, progress, text_ids, **settings):
            keep(answer.as_dict())
            count += 1
            failed += answer.error is not None
            if as_json or len(shown) < SHOWN:
                shown.append(answer)
    if as_json:
        emit_json({"cards": [answer.as_dict() for answer in shown], "requests": count, "infeasible": failed})
    elif out is None or count <= SHOWN:
        _show(shown, explain)
    if not as_json and count > len(shown):
        talk(f"the first {len(shown)} of {count} cards; keep all with --out cards.jsonl")
    _end(count, failed)


def _show(answers: list[Solved], explain: bool) -> None:
    rows: list[tuple[object, ...]] = []
    for answer in answers:
        name = "-" if answer.request_id is None else str(answer.request_id)
        if answer.error is not None:
            rows.append((name, answer.error, None, "infeasible" if answer.blocking else "no card"))
        for card in answer.cards:
            proof = "optimal" if card.optimal else f"gap {card.gap:.3g}"
            relaxed = f", without {', '.join(card.relaxed)}" if card.relaxed else ""
            broken = "".join(f", breaks {rule} {n} x (-{cost:.3g})" for rule, n, cost in card.broken)
            rows.append((name, ", ".join(map(str, card.items)), card.value, proof + relaxed + broken))
    emit_table(("request", "card", "value", "proof"), rows)
    if explain:
        for answer in answers:
            for card in answer.cards:
                for reason in card.reasons:
                    emit(f"{answer.request_id or ''} {reason}".strip())


@app.command("recommend")
def recommend(
    model: Path = MODEL,
    requests: Path | None = typer.Option(
        None,
        "--requests",
        help="Parquet, CSV or JSON lines: a row per candidate, or a row per request with lists. Without it: stdin.",
    ),
    columns: list[str] = MAP,
    k: int | None = typer.Option(
        None, "--k", "-k", help="How many items a card has, if the request does not say."
    ),
    rules: Path | None = typer.Option(None, "--rules", help="Rules instead of the model's own."),
    relax: list[str] = RELAX,
    explain: bool = EXPLAIN,
    out: Path | None = OUT,
    as_json: bool = JSON,
) -> None:
    """Let a trained model choose a card for each request.

    Columns have the same names as in the log the model learned from. A line of JSON is a whole request:
    {"user_id": ..., "candidates": [...], "context": {...}, "k": 4, "include": [...]}; candidates are ids, or objects
    with their columns. An answer names its request by request_id, or by the number of its row.
    """
    from exactk.data.logs.request_rows import AskedColumns
    from exactk.problem.rules.constraints import load_rules
    from exactk.recommender import Recommender
    from exactk.scale.reading import PartReader

    recommender = Recommender.load(model)
    fitted = recommender.fitted
    constraints = fitted.constraints if rules is None else load_rules(rules)
    asked = AskedColumns.of(fitted.vocabulary, fitted.card_size if k is None else k, constraints.fields)
    reader = PartReader(asked, column_map(columns))
    settings: dict[str, Any] = {"relax": tuple(relax), "explain": explain, "constraints": constraints}
    answers: list[dict[str, Any]] = []
    count = failed = 0
    with interruptible(), kept_cards(out, requests, rules) as keep, _source(requests) as source:
        for answer in _answers(recommender, reader, source, settings):
            keep(answer)
            count += 1
            failed += "error" in answer
            if as_json:
                answers.append(answer)
            elif out is None:
                emit(json.dumps(plain(answer), ensure_ascii=False))
    if as_json:
        emit_json({
            "cards": answers, "requests": count, "infeasible": failed,
            "unread": sorted(reader.unread), "missing": reader.missing if count else (), "notes": reader.notes,
        })  # fmt: skip
    for line in column_lines(sorted(reader.unread), reader.missing if count else (), reader.notes):
        talk(line)
    _end(count, failed)


def _answers(recommender: Any, reader: Any, source: Path, settings: Any) -> Iterator[dict[str, Any]]:
    """A card, or the error in its place, for each request of a file."""
    from exactk.scale.plan import files_of, parts_of

    for part in parts_of(files_of(source), sys.maxsize):
        for read in reader.read(part):
            for row, reason in read.reasons.items():
                if row not in read.refused:
                    raise DataError(f"{source}: row {row}: {reason}")
            refused = sorted(read.refused.items(), reverse=True)
            for first in range(0, len(read.rows), AT_ONCE):
                some = read.requests[first : first + AT_ONCE]
                found = recommender.recommend_many(some, infeasible="return", **settings)
                for place, answer in enumerate(found, first):
                    while refused and refused[-1][0] < read.rows[place]:
                        yield _refusal(read, *refused.pop())
                    name = read.rows[place] if read.ids[place] is None else read.ids[place]
                    yield _answer(name, answer)
            while refused:
                yield _refusal(read, *refused.pop())


def _refusal(read: Any, row: int, request_id: Any) -> dict[str, Any]:
    return _answer(row if request_id is None else request_id, InputError(read.reasons[row]))


def _answer(request_id: Any, answer: Any) -> dict[str, Any]:
    if not isinstance(answer, ExactKError):
        return {"request_id": request_id, **answer.as_dict()}
    blocking = list(getattr(answer, "blocking", ()))
    return {"request_id": request_id, "error": without_place(answer), "blocking": blocking}


@contextmanager
def _source(requests: Path | None) -> Iterator[Path]:
    """The file to read; lines of JSON from a pipe are kept in one first."""
    opened: AbstractContextManager[BinaryIO]
    if requests is None or str(requests) == "-":
        opened = nullcontext(sys.stdin.buffer)
    elif requests.is_file() or not requests.exists():
        yield requests
        return
    else:
        opened = requests.open("rb")
    with tempfile.TemporaryDirectory(prefix="exactk-") as folder, opened as pipe:
        lines = Path(folder) / "lines.jsonl"
        with lines.open("wb") as file:
            shutil.copyfileobj(pipe, file)
        yield lines


@app.command("score")
def score(
    model: Path = MODEL,
    source: Path = typer.Argument(
        help="Requests: Parquet, CSV or JSON lines (a row per candidate, or per request with lists), a folder of such, "
        "or a dataset folder."
    ),
    out: Path = typer.Option(..., "--out", help="The folder of Parquet cards to write, or to resume."),
    columns: list[str] = MAP,
    candidates: Path | None = typer.Option(
        None, "--candidates", help="A file with an item id per line: offer these to every user."
    ),
    k: int | None = typer.Option(
        None,
        "--k",
        "-k",
        help="How many items a card has, if the request does not say; the model's own by default.",
    ),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave out rows that cannot be used, and count them."
    ),
    rows: int = typer.Option(
        65_536, "--rows", help="Rows per part. An interrupted job loses one part at most."
    ),
    on_ray: bool = RAY,
    address: str | None = ADDRESS,
    workers: int = typer.Option(1, "--workers", help="Processes that score, with --ray."),
    as_json: bool = JSON,
) -> None:
    """Choose a card for every user of a large set of requests. After an interruption, the same command resumes."""
    from exactk.scale.cluster import Placement
    from exactk.scale.reading import plain_candidates
    from exactk.scale.score import ScoringJob
    from exactk.scale.score import score as run

    offered = None if candidates is None else plain_candidates(candidates, model)
    job = ScoringJob(str(model), str(out), column_map(columns), offered, k, skip_bad)
    with nullcontext() if on_ray else interruptible(), progress_bar("scoring", 100) as bar:
        place = Placement(on_ray, address, workers)
        report = run(job, source, place, rows, lambda done, total: bar(100 * done // max(1, total)))
    if as_json:
        emit_json(report.to_dict())
        return
    emit(
        f"written: {out} ({report.requests:,} requests; parts: {report.parts}, {report.parts_before} made before; "
        f"{report.requests_per_second:,.0f} a second, {report.megabytes_most:,.0f} MB at most)"
    )
    for line in column_lines(report.unread, report.missing, report.notes):
        emit(line)
    if report.infeasible:
        emit(f"{report.infeasible:,} requests have no valid card; their column 'problem' says why")
    if report.bad:
        emit(f"{report.bad:,} rows could not be used and were left out; the first: {report.examples[0]}")


Answer = Mapping[str, Any]
ENDINGS = (".jsonl", ".ndjson", ".csv", "")
CSV_COLUMNS = ("request_id", "card", "item_id", "position", "value", "bound", "optimal", "relaxed", "error")


@contextmanager
def kept_cards(out: Path | None, *inputs: Path | None) -> Iterator[Callable[[Answer], object]]:
    """Yield what keeps one answer, if there is where; the file takes its name when all are kept."""
    if out is None:
        yield lambda _: None
        return
    if out.suffix not in ENDINGS:
        raise InputError(f"--out {out}: cards are kept as .jsonl or .csv, not {out.suffix}")
    with kept_file(out, *inputs) as lines:
        if out.suffix == ".csv":
            yield _csv_writer(lines)
        else:
            yield lambda answer: lines.write(json.dumps(plain(answer), ensure_ascii=False) + "\n")
    talk(f"written: {out}")


def _csv_writer(lines: TextIO) -> Callable[[Answer], object]:
    """A row for each item of each card (card 1 is the best), one with the error where there is no card."""
    writer = csv.writer(lines)
    writer.writerow(CSV_COLUMNS)

    def write(answer: Answer) -> None:
        if "error" in answer:
            writer.writerow([answer["request_id"], *[None] * 7, answer["error"]])
            return
        for rank, card in enumerate([answer, *answer.get("others", ())], start=1):
            figures = (card["value"], card["bound"], card["optimal"], "; ".join(card["relaxed"]), None)
            for item, position in zip(card["items"], card["positions"], strict=True):
                writer.writerow([answer["request_id"], rank, item, position, *figures])

    return write


def _end(count: int, failed: int) -> None:
    """Exit 2 where a request has no card; all others were answered."""
    if failed:
        talk(f"no card for {failed} of {count} requests")
        raise typer.Exit(2)
