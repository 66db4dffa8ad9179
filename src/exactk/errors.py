"""Every error exactk raises on purpose: what was wrong, where, and what would be right.

Knows nothing of what raised it.
"""

from __future__ import annotations

import re

_PLACE = re.compile(r"^request (\d+)(?: \(\d+\))?: ")


class ExactKError(Exception):
    """Base of all errors a caller may want to catch; the command line prints it as one line and exits 2."""


class InputError(ExactKError, ValueError):
    """A value given by the caller cannot be used: a NaN score, an unknown field, K larger than N."""


class InfeasibleError(ExactKError):
    """No valid card exists for a request.

    `blocking` names a set of demands that together forbid every card. Where it is `minimal` no smaller part of it
    does: lift any one of them and a card exists; it is not where time ran out before that was proven.
    """

    def __init__(self, message: str, blocking: tuple[str, ...] = (), minimal: bool = True) -> None:
        super().__init__(message)
        self.blocking = blocking
        self.minimal = minimal


class OutOfTimeError(ExactKError):
    """The time limit passed before there was any card, or a proof that none exists; the message names the part."""


class ConfigError(ExactKError, ValueError):
    """A setting, rule or configuration file is wrong; the message names the setting."""


class DataError(ExactKError):
    """A file or table is missing, damaged or malformed; the message names file, row and column."""


class MissingExtraError(ExactKError, ImportError):
    """A feature needs a package that is not installed; the message says which extra brings it."""


def place_of(error: Exception) -> int | None:
    """The place in its batch of the request that an error is about, where it names one."""
    found = _PLACE.match(str(error))
    return int(found[1]) if found else None


def without_place(error: Exception) -> str:
    """Its message, without the place in a batch that nobody outside knows."""
    return _PLACE.sub("", str(error))
