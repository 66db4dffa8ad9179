"""Methods for the tests of comparisons: one fails politely, one dies, one sleeps, one counts its runs."""

from __future__ import annotations

import os
from pathlib import Path

from exactk.errors import MissingExtraError
from exactk.rivals.contract import Budget, Logs, TrainedMethod
from exactk.rivals.counting import fit_random


def fit_lacking(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    raise MissingExtraError("this rival needs 'unobtainium': pip install 'exactk[rivals]'")


def fit_crashing(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    os.write(2, b"out of luck\n")
    os._exit(9)


def fit_sleeping(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    import time

    time.sleep(60)
    return fit_random(train, valid, budget)


def fit_counted(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Leaves a mark for every time it is run."""
    with Path(os.environ["EXACTK_TEST_MARKS"]).open("a", encoding="utf-8") as file:
        file.write("ran\n")
    return fit_random(train, valid, budget)
