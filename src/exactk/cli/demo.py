"""`exactk demo`: the story in one command, told by `exactk.demo`."""

from __future__ import annotations

from pathlib import Path

import typer

from exactk.cli import app
from exactk.cli.output import emit, emit_table, talk


@app.command("demo")
def demo(
    out: Path = typer.Option(Path("demo"), "--out", help="Folder for the world, the model and the plots."),
    impressions: int = typer.Option(
        60_000, "--impressions", help="How many logged cards of the world to learn from."
    ),
    only_requests: bool = typer.Option(
        False, "--only-requests", help="Only solve the built-in requests: no world, no training."
    ),
) -> None:
    """See what exactk does: solve a few requests, train on a small simulated world, judge the cards by its truth."""
    _show_requests()
    if not only_requests:
        _tell_story(out, impressions)


def _show_requests() -> None:
    from exactk.demo import examples

    for example in examples():
        emit(f"\n{example.name}. {example.lesson}")
        emit(f"Rules: {'; '.join(example.rules)}")
        emit_table(
            ("method", "card", "value", "valid"),
            [(s.method, "\n".join(s.titles), s.value, "yes" if s.valid else "NO") for s in example.shown],
        )
        for reason in example.best.reasons[:2]:
            emit(f"  why not {reason}")


def _tell_story(out: Path, impressions: int) -> None:
    from exactk.demo import draw, tell

    out.mkdir(parents=True, exist_ok=True)
    story = tell(out, talk, impressions)
    emit("\nA simulated world: what cards are really worth, on a day that was not used for training.")
    emit_table(
        ("method", "true click probability", "share of the optimum"),
        [("the optimum", story.optimum, "100%")]
        + [(j.name, j.value, f"{j.share:.1%}") for j in story.judged],
    )
    shown = story.explained
    emit(
        f"One card, for user {shown.user_id}: true value {shown.value:.3f}, best possible {shown.optimum:.3f}."
    )
    for item in shown.card.items:
        emit(f"  {shown.titles[item]}")
    for reason in shown.card.reasons[:3]:
        emit(f"  why not {shown.titles[reason.item]!r}: {str(reason).partition(': ')[2]}")
    for path in draw(story, out):
        talk(f"written: {path}")
    emit(
        f"Next: exactk compare {out / 'world'} --quick, or exactk serve {out / 'model'} and open its address."
    )
