"""How good a card is, how sure we are, and who else could have picked it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """`offpolicy_check`, without importing the world for those who only want a metric."""
    if name == "offpolicy_check":
        from exactk_lab.trust import offpolicy_check

        return offpolicy_check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
