"""What a group of settings is: frozen fields with a type and a range; wrong values are refused by name.

Knows no setting of exactk: those are in `config.py`.
"""

from __future__ import annotations

import difflib
import types
from dataclasses import field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from exactk.errors import ConfigError


def setting(default: Any, least: int | float | None = None, most: int | float | None = None) -> Any:
    """A field with a default and the range it must stay in."""
    return field(default=default, metadata={"least": least, "most": most})


class Section:
    """What every group of settings does: refuse a value of the wrong kind or out of range, by name."""

    section = ""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in fields(self):  # type: ignore[arg-type]
            name = f"{self.section}.{f.name}" if self.section else f.name
            value = checked(name, getattr(self, f.name), hints[f.name])
            object.__setattr__(self, f.name, value)
            least, most = f.metadata.get("least"), f.metadata.get("most")
            if value is not None and least is not None and value < least:
                raise ConfigError(f"setting {name} must be at least {least:g}, got {value}")
            if value is not None and most is not None and value > most:
                raise ConfigError(f"setting {name} must be at most {most:g}, got {value}")


def refuse_unknown(name: str, known: list[str], prefix: str) -> None:
    """A name that is not known is an error that says which one may have been meant."""
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {prefix}{near[0]}?" if near else f"; known: {', '.join(known)}"
    raise ConfigError(f"unknown setting {prefix}{name}{hint}")


def options(kind: Any) -> tuple[Any, bool]:
    """The type of a setting without its `| None`, and whether none is allowed."""
    if get_origin(kind) in (Union, types.UnionType):
        inner = [k for k in get_args(kind) if k is not type(None)]
        return inner[0], True
    return kind, False


def checked(name: str, value: Any, kind: Any) -> Any:
    """`value` if it is of the declared kind (a whole number will do for a float), else an error by name."""
    kind, optional = options(kind)
    if value is None and optional:
        return None
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"setting {name} must be one of {', '.join(get_args(kind))}, got {value!r}")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)) or value != value:
        raise ConfigError(f"setting {name} must be {kind.__name__}, got {value!r}")
    return value


def parsed(name: str, text: str, kind: Any) -> Any:
    """Text of an override as the setting's type."""
    kind, optional = options(kind)
    if optional and text.lower() == "none":
        return None
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"setting {name} must be true or false, got {text!r}")
        return text.lower() == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            raise ConfigError(f"setting {name} must be {kind.__name__}, got {text!r}") from None
    if get_origin(kind) is Literal:
        return text
    raise ConfigError(f"setting {name} is a group of settings; set one of its members, as in {name}.x=...")
