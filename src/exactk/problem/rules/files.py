"""Rules in files: TOML ([[rule]] tables) and JSON ({"rule": [...]}), the same words in both.

Knows no particular rule.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exactk.errors import ConfigError
from exactk.problem.rules.rule_set import Constraints


def load_rules(path: str | os.PathLike[str]) -> Constraints:
    """The rules in a .toml or .json file; every fault is named with the file."""
    file = Path(path)
    parse: Callable[[str], Any] = _format(file, tomllib.loads, json.loads)
    try:
        written = parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the rules in {file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid {file.suffix[1:].upper()}: {error}") from None
    try:
        return Constraints.from_dict(written)
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from None


def save_rules(constraints: Constraints, path: str | os.PathLike[str]) -> None:
    """Write rules so that `load_rules` reads equal ones; the file appears whole or not at all."""
    file = Path(path)
    write: Callable[[dict[str, Any]], str] = _format(
        file, as_toml, lambda rules: json.dumps(rules, indent=2) + "\n"
    )
    half = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        half.write_bytes(write(constraints.to_dict()).encode())
        half.replace(file)
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"cannot write the rules to {file}: {error}") from None


def as_toml(rules: dict[str, Any]) -> str:
    """The TOML form of `Constraints.to_dict()`."""
    tables = []
    for rule in rules["rule"]:
        settings = "".join(f"{key} = {_toml_value(value)}\n" for key, value in rule.items())
        tables.append(f"[[rule]]\n{settings}")
    return "\n".join(tables)


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(one) for one in value)}]"
    if isinstance(value, dict):
        inside = [f"{json.dumps(key, ensure_ascii=False)} = {_toml_value(one)}" for key, one in value.items()]
        return f"{{{', '.join(inside)}}}"
    # JSON's text, numbers and booleans are TOML's too, but TOML wants the delete character escaped.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")


def _format(file: Path, toml: Any, json_: Any) -> Any:
    formats = {".toml": toml, ".json": json_}
    if file.suffix.lower() not in formats:
        raise ConfigError(f"rules are read from and written to .toml or .json, not {file.name}")
    return formats[file.suffix.lower()]
