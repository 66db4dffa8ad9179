"""Every error exactk raises on purpose: what was wrong, where, and what would be right.

Knows nothing of what raised it.
"""

from __future__ import annotations

import re
from pathlib import Path

_STARTS = {
    b"\x1f\x8b": "compressed by gzip: unpack it first",
    b"PK\x03\x04": "a zip archive (a spreadsheet, perhaps): save it as CSV first",
    b"BZh": "compressed by bzip2: unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
    b"PAR1": "a Parquet file: give it the ending .parquet",
}
_PLACE = re.compile(r"^request (\d+)(?: \(\d+\))?: ")


class ExactKError(Exception):
    """Base of all errors a caller may want to catch; the command line prints it as one line and exits 2."""


class InputError(ExactKError, ValueError):
    """A value given by the caller cannot be used: a NaN score, an unknown field, K larger than N."""


class InfeasibleError(ExactKError):
    """No valid card exists for a request.

    `blocking` names a set of demands that together forbid every card. If `minimal` is True, a card exists as soon as
    any one of them is lifted; it is False if time ran out before that was proven.
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


def why_unreadable(path: Path | str, error: Exception) -> str:
    """Why a file, or a line of it, cannot be read: what its first bytes say it is, or what its reader said."""
    path, start = Path(path), b""
    if path.is_file():
        with path.open("rb") as raw:
            start = raw.read(4)
    for known, meaning in _STARTS.items():
        if start.startswith(known) and not (known == b"PAR1" and path.suffix == ".parquet"):
            return f"this is {meaning}"
    said = str(error)
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError) or "UTF8" in said:
        return "this is not UTF-8 text; save it as UTF-8"
    return "a number of thousands of digits" if "set_int_max_str_digits" in said else said
