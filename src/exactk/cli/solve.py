"""`exactk solve`: a file of scored candidates in, the best valid card of each request out.

The reading and solving live in `exactk.problem.solving_file`; this file shows or keeps the answers.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from exactk.cli import app
from exactk.cli.cards import kept_cards
from exactk.cli.output import emit, emit_json, emit_table, progress_bar, talk

if TYPE_CHECKING:
    from exactk.problem.solving_file import Solved

SHOWN = 20


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
    relax: list[str] = typer.Option(
        [],
        "--relax",
        help="A rule that may be dropped where no card exists; repeat it in the order to drop them.",
    ),
    best: int = typer.Option(1, "--best", min=1, help="How many cards to find for each request, best first."),
    time_limit: float | None = typer.Option(
        None, "--time-limit", help="Seconds per request; after that, the best card so far."
    ),
    explain: bool = typer.Option(False, "--explain", help="Say why each other item is not on the card."),
    out: Path | None = typer.Option(None, "--out", help="Write the cards to this file: .jsonl or .csv."),
    text_ids: bool = typer.Option(
        False,
        "--text-ids",
        help="Read all ids as text. Without it, ids in CSV are numbers if all of them are written as numbers.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print exactly one JSON object."),
) -> None:
    """Find the best valid card of exactly K items for each request, and prove that it is the best.

    For a request without a valid card, the output says what blocks it, and the exit status is 2. All others are solved.
    """
    from exactk.problem.rules.constraints import load_rules
    from exactk.problem.solving_file import solve_file

    settings: dict[str, Any] = {
        "relax": tuple(relax),
        "n": best,
        "time_limit": time_limit,
        "explain": explain,
    }
    if include or exclude:
        settings |= {"include": tuple(include), "exclude": tuple(exclude)}
    with ExitStack() as stack:
        size = file.stat().st_size if file.is_file() else 0
        progress = stack.enter_context(progress_bar("solving", size))
        constraints = load_rules(rules) if rules else None
        answers = solve_file(file, k, constraints, score, progress, text_ids, **settings)
        keep = stack.enter_context(kept_cards(out, file, rules)) if out is not None else None
        shown: list[Solved] = []
        count = failed = 0
        for answer in answers:
            if keep is not None:
                keep(answer.as_dict())
            count += 1
            failed += answer.error is not None
            if as_json or len(shown) < SHOWN:
                shown.append(answer)
    if out is not None:
        talk(f"written: {out}")
    if as_json:
        emit_json({"cards": [answer.as_dict() for answer in shown], "requests": count, "infeasible": failed})
    elif out is None or count <= SHOWN:
        _show(shown, explain)
    if not as_json and count > len(shown):
        talk(f"the first {len(shown)} of {count} cards; keep all with --out cards.jsonl")
    if failed:
        talk(f"{failed} of {count} requests have no card")
        raise typer.Exit(2)


def _show(answers: list[Solved], explain: bool) -> None:
    rows: list[tuple[object, ...]] = []
    for answer in answers:
        name = "-" if answer.request_id is None else str(answer.request_id)
        if answer.error is not None:
            rows.append((name, answer.error, None, "infeasible"))
        for card in answer.cards:
            proof = "optimal" if card.optimal else f"gap {card.gap:.3g}"
            relaxed = f", without {', '.join(card.relaxed)}" if card.relaxed else ""
            rows.append((name, ", ".join(map(str, card.items)), card.value, proof + relaxed))
    emit_table(("request", "card", "value", "proof"), rows)
    if explain:
        for answer in answers:
            for card in answer.cards:
                for reason in card.reasons:
                    emit(f"{answer.request_id or ''} {reason}".strip())
