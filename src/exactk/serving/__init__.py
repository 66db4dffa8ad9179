"""The HTTP door and the studio page: requests in, cards out, what was shown and clicked kept for tomorrow.

Knows no model from inside: it calls `exactk.solve` and `Recommender` as any caller would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exactk.errors import MissingExtraError

if TYPE_CHECKING:
    from exactk.serving.app import create_app
    from exactk.serving.run import serve
    from exactk.serving.settings import Settings

__all__ = ["Settings", "create_app", "serve"]

_ROOMS = {"Settings": "settings", "create_app": "app", "serve": "run"}


def __getattr__(name: str) -> Any:
    """Look a public name up on first use, so that importing this room needs no web framework."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'exactk.serving' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"exactk.serving.{_ROOMS[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in {"fastapi", "uvicorn", "prometheus_client", "starlette", "pydantic"}:
            need = f"serving needs the package {error.name}"
            raise MissingExtraError(f"{need}: pip install 'exactk[serve]'") from error
        raise
