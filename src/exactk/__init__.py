"""exactk: the best whole card, exactly K items out of N candidates, every rule kept."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from exactk.data.audit import audit
    from exactk.data.dataset import Dataset
    from exactk.data.logs.frame import from_frame
    from exactk.data.requests import Request
    from exactk.data.world import World, world
    from exactk.errors import (
        ConfigError,
        DataError,
        ExactKError,
        InfeasibleError,
        InputError,
        MissingExtraError,
        OutOfTimeError,
    )
    from exactk.evaluation.compare import baselines, compare
    from exactk.problem.rules.constraints import (
        Allowed,
        AtMost,
        Constraints,
        Count,
        Distinct,
        Forbid,
        MinimumDistance,
        MinimumGap,
        Prefer,
        Rule,
        Share,
        Slots,
        TitleDistance,
        Total,
        Variety,
        Where,
        load_rules,
    )
    from exactk.problem.solving import Card, solve
    from exactk.recommender import Recommender
    from exactk.settings.config import Config
    from exactk.settings.presets import preset

# Every public name and the room it lives in. Names are looked up on first use, so that `import exactk` and
# `exactk --help` need not wait for torch and numba.
_ROOMS = {
    "exactk.settings.config": "Config",
    "exactk.data.audit": "audit",
    "exactk.data.dataset": "Dataset",
    "exactk.data.logs.frame": "from_frame",
    "exactk.data.requests": "Request",
    "exactk.data.world": "World world",
    "exactk.errors": (
        "ConfigError DataError ExactKError InfeasibleError InputError MissingExtraError OutOfTimeError"
    ),
    "exactk.evaluation.compare": "baselines compare",
    "exactk.problem.rules.constraints": (
        "Allowed AtMost Constraints Count Distinct Forbid MinimumDistance MinimumGap Prefer Rule "
        "Share Slots TitleDistance Total Variety Where load_rules"
    ),
    "exactk.settings.presets": "preset",
    "exactk.recommender": "Recommender",
    "exactk.problem.solving": "Card solve",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = [
    "Allowed", "AtMost", "Card", "Config", "ConfigError", "Constraints", "Count", "DataError", "Dataset",
    "Distinct", "ExactKError", "Forbid", "InfeasibleError", "InputError", "MinimumDistance", "MinimumGap",
    "MissingExtraError", "OutOfTimeError", "Prefer", "Recommender", "Request", "Rule", "Share", "Slots",
    "TitleDistance", "Total", "Variety", "Where", "World", "__version__", "audit", "baselines", "compare",
    "from_frame", "load_rules", "preset", "solve", "world",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            value = getattr(import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise import_module("exactk.errors").MissingExtraError(
                f"exactk.{name} learns, which needs torch: pip install 'exactk[learn]'"
            ) from error
        globals()[name] = value
        return value
    raise AttributeError(f"module 'exactk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
