"""What a group of settings is: frozen fields with a type, a range and a meaning; wrong values are refused by name.

Knows no setting of exactk: those are where they are used (`config.py`, a world's, the service's).
"""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from exactk.errors import ConfigError

Number = int | float
_KINDS: dict[Any, str] = {
    int: "whole number", float: "number", bool: "true or false", Path: "path", str: "text",
}  # fmt: skip
Group = TypeVar("Group", bound="Section")


class Range(NamedTuple):
    """Where a number must lie; `above` and `below` leave the bound itself out."""

    least: Number | None = None
    most: Number | None = None
    above: Number | None = None
    below: Number | None = None

    def __str__(self) -> str:
        parts = [
            ("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below),
        ]  # fmt: skip
        return " and ".join(f"{words} {bound:g}" for words, bound in parts if bound is not None)

    def __contains__(self, value: object) -> bool:
        assert isinstance(value, int | float)
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


def setting(default: Any, meaning: str, **bounds: Number) -> Any:
    """A field with a default, what it means, and the range it must stay in (least, most, above, below)."""
    return field(default=default, metadata={"meaning": meaning, "range": Range(**bounds)})


class SettingRow(NamedTuple):
    """One setting, as people read it."""

    name: str
    default: Any
    values: str
    meaning: str


class Section:
    """What every group of settings does: refuse a value of the wrong kind or out of range, by name."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        for f in fields(self):  # type: ignore[arg-type]
            name = self.full_name(f.name)
            value = checked(name, getattr(self, f.name), hints[f.name])
            object.__setattr__(self, f.name, value)
            allowed: Range = f.metadata.get("range", Range())
            if value is not None and allowed != Range() and value not in allowed:
                raise ConfigError(f"setting {name} must be {allowed}, got {value}")

    @classmethod
    def full_name(cls, name: str) -> str:
        """A setting's name with that of its group."""
        return f"{cls.section}.{name}" if cls.section else name

    @classmethod
    def from_dict(cls: type[Group], values: Mapping[str, Any]) -> Group:
        """Defaults with `values` in place of their own; an unknown name is an error."""
        hints = hints_of(cls)
        for name in values:
            refuse_unknown(name, list(hints), cls.full_name(""))
        return cls(**{n: checked(cls.full_name(n), value, hints[n]) for n, value in values.items()})

    @classmethod
    def listed(cls) -> list[SettingRow]:
        """Every setting of the group, in order."""
        hints, found = hints_of(cls), []
        for f in fields(cls):  # type: ignore[arg-type]
            if "meaning" in f.metadata:
                parts = [in_words(hints[f.name]), str(f.metadata["range"])]
                values = ", ".join(text for text in parts if text)
                found.append(SettingRow(cls.full_name(f.name), f.default, values, f.metadata["meaning"]))
        return found


def hints_of(section: type) -> dict[str, Any]:
    """The type of every setting of a group."""
    kinds = get_type_hints(section)
    return {f.name: kinds[f.name] for f in fields(section)}


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


def in_words(kind: Any) -> str:
    """What values a setting of this type takes."""
    kind, optional = options(kind)
    one_of = get_origin(kind) is Literal
    words = " or ".join(get_args(kind)) if one_of else _KINDS.get(kind, "list of texts")
    return words + " or none" * optional


def _one_of(kind: Any) -> str:
    """A value of this type, with its article: a whole number, true or false, text."""
    words = _KINDS.get(kind, kind.__name__)
    return words if kind in (bool, str) else f"a {words}"


def checked(name: str, value: Any, kind: Any) -> Any:
    """`value` if it is of the declared kind, else an error by name.

    A whole number will do for a number, text for a path and a list for a tuple, as JSON has neither.
    """
    kind, optional = options(kind)
    value = value.item() if hasattr(value, "item") else value  # numpy's numbers are Python's
    if value is None and optional:
        return None
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"setting {name} must be one of {', '.join(get_args(kind))}, got {value!r}")
        return value
    if get_origin(kind) is tuple:
        part_kind, words = get_args(kind)[0], "texts" if get_args(kind)[0] is str else "whole numbers"
        if not isinstance(value, list | tuple) or not all(isinstance(part, part_kind) for part in value):
            raise ConfigError(f"setting {name} must be a list of {words}, got {value!r}")
        return tuple(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    endless = isinstance(value, float) and not math.isfinite(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)) or endless:
        raise ConfigError(f"setting {name} must be {_one_of(kind)}, got {value!r}")
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
            raise ConfigError(f"setting {name} must be {_one_of(kind)}, got {text!r}") from None
    if get_origin(kind) is Literal:
        return text
    raise ConfigError(f"setting {name} is a group of settings; set one of its members, as in {name}.x=...")
