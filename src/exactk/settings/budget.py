"""What a method may spend on learning when methods are compared; the same for all of them.

Knows no method.
"""

from __future__ import annotations

from dataclasses import dataclass

from exactk.settings.sections import Section, setting


@dataclass(frozen=True)
class Budget(Section):
    """What a comparison allows each method. A trial is one of its settings, trained once."""

    section = "compare"

    trials: int = setting(4, "settings each method may try", least=1)
    epochs: int = setting(30, "of a trial, at most", least=1)
    patience: int = setting(3, "epochs without a better validation before a trial stops", least=0)
    batch_size: int = setting(256, "requests of a step", least=1)
    validation_rows: int = setting(
        4_096, "of the validation split that decide, clicked ones where only they count", least=1
    )
    tree_requests: int = setting(
        200_000, "that tree learners, which hold everything in memory, may read", least=1
    )
    seed: int = setting(0, "of weights, order and samples", least=0)


QUICK = Budget(trials=1, epochs=3, validation_rows=1_024, tree_requests=20_000)
