"""What a body may hold beyond its bytes: how many lists, how long a text, how deep a value, which numbers.

Knows no route. Everything a search, a rule or the log would choke on later is refused here, before any work is done,
with the place in the body and the setting that allows more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from exactk.errors import InputError
from exactk.serving.http.problems import RefusalError
from exactk.serving.settings import Settings

LARGEST_WHOLE = 2**53  # beyond it JSON loses digits
LARGEST_FEATURE = 1e30  # squares of sums of such numbers overflow the single precision that models compute in
LONGEST_VECTOR = 4096


def check_lists(body: bytes, limits: Settings) -> None:
    """Refuse a body of very many lists and objects unread: each costs as much to read as a hundred bytes of numbers."""
    count = body.count(b"[") + body.count(b"{")
    if count > limits.max_lists:
        detail = f"the body has {count} lists and objects; this service takes at most {limits.max_lists} (max_lists)"
        raise RefusalError(413, "size", "Too many", detail)


def check_items(items: Sequence[Any], limits: Settings, where: str = "items") -> None:
    """Refuse attributes that no rule could read or that the log could not give back."""
    for number, item in enumerate(items):
        if not isinstance(item, Mapping):
            return  # ids alone: all are of one kind
        place = f"{where}/{number}"
        if len(item) > limits.max_item_fields:
            raise InputError(
                f"{place} has {len(item)} fields; this service takes at most {limits.max_item_fields} "
                "(max_item_fields)"
            )
        for name, value in item.items():
            if len(name) > limits.max_text_letters:
                raise _too_long(place, len(name), limits)
            if name == "features":
                check_features(value, f"{place}/features")
            else:
                check_value(value, f"{place}/{name}", limits, LONGEST_VECTOR)


def check_context(context: Mapping[str, Any] | None, limits: Settings) -> None:
    """Refuse what no model could read of a request, and what the log could not give back."""
    if context and len(context) > limits.max_item_fields:
        raise InputError(
            f"context has {len(context)} fields; this service takes at most {limits.max_item_fields} (max_item_fields)"
        )
    if context:
        check_value(context, "context", limits, LONGEST_VECTOR)


def check_rules(rules: Sequence[Any] | None, limits: Settings) -> None:
    """Refuse settings of rules that are no plain values of a sensible size."""
    for number, rule in enumerate(rules or ()):
        check_value(rule, f"constraints/{number}", limits)


def check_features(features: Any, place: str) -> None:
    """A list of finite numbers; null stands for an unknown one. True and false are no numbers."""
    if features is None:
        return
    if not isinstance(features, list) or len(features) > LONGEST_VECTOR:
        raise InputError(f"{place} must be a list of at most {LONGEST_VECTOR} numbers, got {shown(features)}")
    for number, value in enumerate(features):
        if value is None:
            continue
        plain = type(value) is int or type(value) is float
        if not plain or not -LARGEST_FEATURE <= value <= LARGEST_FEATURE:  # no comparison holds for NaN
            raise InputError(
                f"{place}/{number} must be a number from -1e30 to 1e30 or null, got {shown(value)}"
            )


def check_value(value: Any, place: str, limits: Settings, longest: int | None = None, depth: int = 0) -> None:
    """Refuse long texts, deep nesting, long lists, endless numbers and whole ones beyond 2^53."""
    kind = type(value)
    if kind is str:
        if len(value) > limits.max_text_letters:
            raise _too_long(place, len(value), limits)
    elif kind is int:
        if not -LARGEST_WHOLE <= value <= LARGEST_WHOLE:
            raise InputError(
                f"{place}: the whole number {shown(value)} is beyond 2^53, where JSON loses digits; send it as text"
            )
    elif kind is float:
        if not math.isfinite(value):
            raise InputError(f"{place} must be a finite number, got {value}")
    elif kind is list or kind is dict:
        if depth >= limits.max_depth:
            raise InputError(f"{place} is nested deeper than {limits.max_depth} (max_depth)")
        if longest is not None and len(value) > longest:
            raise InputError(f"{place} has {len(value)} entries; this service takes at most {longest}")
        if kind is dict:
            for name in value:
                if len(name) > limits.max_text_letters:
                    raise _too_long(place, len(name), limits)
        entries = value.items() if kind is dict else enumerate(value)
        for name, inner in entries:
            check_value(inner, f"{place}/{name}" if depth < 2 else place, limits, longest, depth + 1)


def shown(value: Any, most: int = 40) -> str:
    """A value in few letters, for a message; a whole number of thousands of digits is only named."""
    if type(value) is int and value.bit_length() > 200:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'object'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _too_long(place: str, letters: int, limits: Settings) -> InputError:
    return InputError(
        f"{place[:200]} is a text of {letters} letters; this service takes at most {limits.max_text_letters} "
        "(max_text_letters)"
    )
