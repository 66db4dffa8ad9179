"""Settings of the service: one frozen value, checked at birth, that travels to every worker process as JSON.

Knows no web framework.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from exactk.errors import ConfigError

ENVIRONMENT = "EXACTK_SERVE"  # how `serve` hands the settings to the worker processes it starts
KEYS_ENVIRONMENT = "EXACTK_API_KEYS"


@dataclass(frozen=True)
class Settings:
    """What an operator may decide. Every limit is a promise to the clients that stay within it.

    `model` is a model folder; without one the service solves. `challenger` is a second model folder that gets
    `challenger_share` of the users. `key_hashes` are SHA-256 hashes in hex (see `security.py`); none: no key
    is asked for. `log` is the folder of the impression and feedback log; none: nothing is kept.
    """

    model: Path | None = None
    challenger: Path | None = None
    challenger_share: float = 0.0
    split_salt: str = "exactk"
    explore: float = 0.0
    seed: int | None = None
    dataset: Path | None = None
    log: Path | None = None
    log_rotate_bytes: int = 64 << 20
    log_rotate_seconds: float = 3600.0
    key_hashes: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 2 << 20
    max_candidates: int = 512
    max_requests: int = 64
    max_waiting: int = 256
    max_batch: int = 32
    max_connections: int = 1000
    head_timeout_s: float = 10.0
    body_timeout_s: float = 10.0
    unread_timeout_s: float = 30.0
    budget_ms: float = 100.0
    max_budget_ms: float = 5000.0
    reload_seconds: float = 2.0

    def __post_init__(self) -> None:
        counts = (
            "max_body_bytes",
            "max_candidates",
            "max_requests",
            "max_waiting",
            "max_batch",
            "max_connections",
        )
        for name in counts:
            if getattr(self, name) < 1:
                raise ConfigError(f"setting {name} must be at least 1, got {getattr(self, name)}")
        timeouts = ("head_timeout_s", "body_timeout_s", "unread_timeout_s")
        for name in (*timeouts, "budget_ms", "max_budget_ms", "reload_seconds", "log_rotate_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"setting {name} must be positive, got {getattr(self, name)}")
        for name in ("challenger_share", "explore"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"setting {name} must lie in 0..1, got {getattr(self, name)}")
        if self.challenger_share and self.challenger is None:
            raise ConfigError("challenger_share needs a challenger: name its model folder")
        if self.challenger is not None and self.model is None:
            raise ConfigError("a challenger needs a model to be compared with")
        for digest in self.key_hashes:
            if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
                raise ConfigError(
                    f"API key hash {digest[:8]}... is no SHA-256 in lower-case hex (64 digits); "
                    "keep hashes here, never the keys themselves"
                )

    def to_json(self) -> str:
        """One line for the environment of a worker."""
        return json.dumps({k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()})

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The inverse of `to_json`; an unknown setting is refused by name."""
        read: dict[str, Any] = json.loads(text)
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(read) - known)
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        for name in ("model", "challenger", "dataset", "log"):
            read[name] = None if read.get(name) is None else Path(read[name])
        for name in ("key_hashes", "cors_origins"):
            read[name] = tuple(read.get(name, ()))
        return cls(**read)

    @classmethod
    def from_environment(cls) -> Settings:
        """What `serve` left for this process, or the defaults; key hashes from their own variable where given."""
        return cls.from_json(os.environ.get(ENVIRONMENT, "{}"))


def key_hashes_from(text: str, where: str) -> tuple[str, ...]:
    """Hashes out of a variable or a file: one per line or comma, `name:hash` or the hash alone, # comments.

    >>> len(key_hashes_from("team:" + "a" * 64 + "  # rotates in May", "here"))
    1
    """
    hashes = []
    for line in text.replace(",", "\n").splitlines():
        entry = line.split("#", 1)[0].strip()
        if entry:
            digest = entry.rpartition(":")[2].strip().lower()
            if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
                raise ConfigError(
                    f"{where}: an entry is no SHA-256 in hex (64 digits), as `name:hash` or `hash`"
                )
            hashes.append(digest)
    return tuple(hashes)


def read_key_hashes(keys_file: Path | None) -> tuple[str, ...]:
    """All hashes an operator gave: from the environment variable and from the file."""
    hashes = key_hashes_from(os.environ.get(KEYS_ENVIRONMENT, ""), KEYS_ENVIRONMENT)
    if keys_file is not None:
        try:
            hashes += key_hashes_from(keys_file.read_text(), str(keys_file))
        except OSError as error:
            raise ConfigError(f"cannot read the key file {keys_file}: {error.strerror}") from error
        if not hashes:
            raise ConfigError(f"key file {keys_file} holds no key hash: the service would stand open")
    return hashes
