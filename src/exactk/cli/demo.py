"""`exactk demo`: the story in one command, told by `exactk.demo`."""

from __future__ import annotations

from exactk.cli import app
from exactk.cli.output import emit, emit_table


@app.command("demo")
def demo() -> None:
    """Solve a handful of requests, beside what top-K and the paper's greedy would have shown."""
    from exactk.demo.requests import examples

    for example in examples():
        emit(f"\n{example.name}. {example.lesson}")
        emit(f"Rules: {'; '.join(example.rules)}")
        emit_table(
            ("method", "card", "value", "valid"),
            [(s.method, "\n".join(s.titles), s.value, "yes" if s.valid else "NO") for s in example.shown],
        )
        for reason in example.best.reasons[:2]:
            emit(f"  why not {reason}")
