"""`exactk recommend`: a file of requests in, a card for each of them out, one after the other."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import typer

from exactk.cli import app
from exactk.cli.cards import kept_cards
from exactk.cli.data import column_map
from exactk.cli.output import column_lines, emit, emit_json, plain, talk
from exactk.errors import DataError, ExactKError, without_place

AT_ONCE = 256


@app.command("recommend")
def recommend(
    model: Path = typer.Argument(help="A model folder (exactk train)."),
    requests: Path | None = typer.Option(
        None,
        "--requests",
        help="Parquet, CSV or JSON lines: a row per candidate, or a row per request with lists. Without it: stdin.",
    ),
    columns: list[str] = typer.Option(
        [], "--map", help="Say what your columns are called: item_id=sku. May be repeated."
    ),
    k: int | None = typer.Option(
        None, "--k", "-k", help="How many items a card has, if the request does not say."
    ),
    rules: Path | None = typer.Option(None, "--rules", help="Rules instead of the model's own."),
    relax: list[str] = typer.Option(
        [],
        "--relax",
        help="A rule that may be dropped where no card exists; repeat it in the order to drop them.",
    ),
    explain: bool = typer.Option(False, "--explain", help="Say why each other item is not on the card."),
    out: Path | None = typer.Option(None, "--out", help="Write the cards to this file: .jsonl or .csv."),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
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
    with ExitStack() as stack:
        keep = stack.enter_context(kept_cards(out, requests, rules)) if out is not None else None
        for answer in _answers(recommender, reader, stack.enter_context(_source(requests)), settings):
            count += 1
            failed += "error" in answer
            if keep is not None:
                keep(answer)
            if as_json:
                answers.append(answer)
            elif keep is None:
                emit(json.dumps(plain(answer), ensure_ascii=False))
    if out is not None:
        talk(f"written: {out}")
    if as_json:
        emit_json({
            "cards": answers, "requests": count, "infeasible": failed,
            "unread": sorted(reader.unread), "missing": reader.missing if count else (), "notes": reader.notes,
        })  # fmt: skip
    for line in column_lines(sorted(reader.unread), reader.missing if count else (), reader.notes):
        talk(line)
    if failed:
        talk(f"{failed} of {count} requests have no card")
        raise typer.Exit(2)


def _answers(recommender: Any, reader: Any, source: Path, settings: Any) -> Iterator[dict[str, Any]]:
    """A card, or the error in its place, for each request of a file."""
    from exactk.scale.plan import files_of, parts_of

    for part in parts_of(files_of(source), sys.maxsize):
        for read in reader.read(part):
            for row, reason in read.reasons.items():
                raise DataError(f"{source}: row {row}: {reason}")
            for first in range(0, len(read.rows), AT_ONCE):
                some = read.requests[first : first + AT_ONCE]
                found = recommender.recommend_many(some, infeasible="return", **settings)
                for place, answer in enumerate(found, first):
                    name = read.rows[place] if read.ids[place] is None else read.ids[place]
                    yield _answer(name, answer)


def _answer(request_id: Any, answer: Any) -> dict[str, Any]:
    if not isinstance(answer, ExactKError):
        return {"request_id": request_id, **answer.as_dict()}
    blocking = list(getattr(answer, "blocking", ()))
    return {"request_id": request_id, "error": without_place(answer), "blocking": blocking}


@contextmanager
def _source(requests: Path | None) -> Iterator[Path]:
    """The file to read; lines of JSON from a pipe are kept in one first."""
    piped = requests is None or str(requests) == "-"
    if requests is not None and not piped and (requests.is_file() or not requests.exists()):
        yield requests
        return
    with tempfile.TemporaryDirectory(prefix="exactk-") as folder, ExitStack() as stack:
        lines = Path(folder) / "lines.jsonl"
        pipe = sys.stdin.buffer if piped or requests is None else stack.enter_context(requests.open("rb"))
        with lines.open("wb") as file:
            shutil.copyfileobj(pipe, file)
        yield lines
