"""exactk: the best whole card, exactly K items out of N candidates, every pair of them allowed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from exactk.errors import (
        ConfigError,
        DataError,
        ExactKError,
        InfeasibleError,
        InputError,
        MissingExtraError,
    )
    from exactk.problem.constraints import (
        Allowed,
        AtMost,
        Constraints,
        Distinct,
        Forbid,
        MinimumDistance,
        MinimumGap,
        Rule,
        TitleDistance,
        load_rules,
    )
    from exactk.solving import Card, solve

# Every public name and the room it lives in. Names are looked up on first use, so that `import exactk` and
# `exactk --help` need not wait for torch and numba.
_ROOMS = {
    "exactk.errors": [
        "ConfigError",
        "DataError",
        "ExactKError",
        "InfeasibleError",
        "InputError",
        "MissingExtraError",
    ],
    "exactk.problem.constraints": [
        "Allowed",
        "AtMost",
        "Constraints",
        "Distinct",
        "Forbid",
        "MinimumDistance",
        "MinimumGap",
        "Rule",
        "TitleDistance",
        "load_rules",
    ],
    "exactk.solving": ["Card", "solve"],
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Allowed",
    "AtMost",
    "Card",
    "ConfigError",
    "Constraints",
    "DataError",
    "Distinct",
    "ExactKError",
    "Forbid",
    "InfeasibleError",
    "InputError",
    "MinimumDistance",
    "MinimumGap",
    "MissingExtraError",
    "Rule",
    "TitleDistance",
    "__version__",
    "load_rules",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'exactk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
