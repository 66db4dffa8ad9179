"""Settings of the service: one frozen value, checked at birth, that travels to every worker process as JSON.

Knows no web framework. Also the A/B split that they set: which model serves a user is decided by a hash alone, the
same in every process and for ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from exactk.errors import ConfigError
from exactk.settings.sections import Section, setting

ENVIRONMENT = "EXACTK_SERVE"  # how `serve` hands the settings to the worker processes it starts
KEYS_ENVIRONMENT = "EXACTK_API_KEYS"


@dataclass(frozen=True)
class Settings(Section):
    """What an operator may decide. Every limit is a promise to the clients that stay within it."""

    section = "service"

    model: Path | None = setting(None, "a model folder; none: the service solves, but has no model")
    challenger: Path | None = setting(None, "a second model folder, for an A/B split by user")
    challenger_share: float = setting(0.0, "share of users that the challenger serves", least=0, most=1)
    split_salt: str = setting("exactk", "another salt gives another split of the users")
    explore: float = setting(0.0, "share of cards drawn at random from a shortlist", least=0, most=1)
    seed: int | None = setting(None, "seed of exploration; none: another at every start")
    dataset: Path | None = setting(None, "a dataset folder whose requests the studio may show")
    log: Path | None = setting(None, "folder for the log of impressions and feedback; none: no log")
    log_rotate_bytes: int = setting(64 << 20, "bytes of a part of the log; then a new part begins", least=1)
    log_rotate_seconds: float = setting(
        3600.0, "seconds of a part of the log; then a new part begins", above=0
    )
    count_seconds: float = setting(1.0, "seconds between two looks into the log for rolling counts", above=0)
    key_hashes: tuple[str, ...] = setting((), "SHA-256 of API keys, in hex; none: no key is needed")
    cors_origins: tuple[str, ...] = setting((), "origins whose pages may call the service")
    max_body_bytes: int = setting(2 << 20, "most bytes of a body", least=1)
    max_candidates: int = setting(512, "most candidates of a request", least=1)
    max_requests: int = setting(64, "most requests in a body", least=1)
    max_text_letters: int = setting(
        1000, "most letters of a title or any other text in an item or a rule", least=1
    )
    max_item_fields: int = setting(64, "most fields of an item sent inline, and of a context", least=1)
    max_depth: int = setting(8, "most levels of lists and objects in an attribute or a rule", least=1)
    max_lists: int = setting(65_536, "most lists and objects in a body", least=1)
    max_waiting: int = setting(256, "most requests in the queue; one more is answered 429", least=1)
    max_batch: int = setting(32, "most requests that are decided together", least=1)
    threads: int = setting(
        4,
        "threads for what is too slow for the event loop; half of them never take more than the default budget",
        least=2,
    )
    max_connections: int = setting(1000, "most connections that are open at once, per worker", least=1)
    head_timeout_s: float = setting(10.0, "seconds for the head of a request to arrive", above=0)
    body_timeout_s: float = setting(10.0, "seconds for the body of a request to arrive", above=0)
    unread_timeout_s: float = setting(30.0, "seconds for the client to read an answer", above=0)
    budget_ms: float = setting(100.0, "milliseconds for an answer, if the request does not say", above=0)
    max_budget_ms: float = setting(5000.0, "most milliseconds that a request may ask for", above=0)
    reload_seconds: float = setting(2.0, "seconds between two looks for a newer model", above=0)
    hang_seconds: float = setting(
        5.0, "a worker is replaced after this many seconds without a sign of life", above=0
    )
    shutdown_seconds: float = setting(
        10.0, "most seconds from SIGTERM to the end, whatever the workers do", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.challenger_share and self.challenger is None:
            raise ConfigError("challenger_share needs a challenger: name its model folder")
        if self.challenger is not None and self.model is None:
            raise ConfigError("a challenger needs a model to be compared with")
        for digest in self.key_hashes:
            if not is_hash(digest):
                raise ConfigError(
                    f"API key hash {digest[:8]}... is not a SHA-256 in lower-case hex (64 digits); "
                    "keep hashes here, never the keys themselves"
                )

    def to_json(self) -> str:
        return json.dumps({k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()})

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The inverse of `to_json`; an unknown setting is refused by name."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_environment(cls) -> Settings:
        """What `serve` left for this process, or the defaults; key hashes from their own variable where given."""
        return cls.from_json(os.environ.get(ENVIRONMENT, "{}"))


def is_hash(digest: str) -> bool:
    """Whether it may be a SHA-256 in lower-case hex."""
    return len(digest) == 64 and not set(digest) - set("0123456789abcdef")


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
            if not is_hash(digest):
                raise ConfigError(
                    f"{where}: an entry is not a SHA-256 in hex (64 digits), as `name:hash` or `hash`"
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
        except UnicodeDecodeError as error:
            raise ConfigError(f"the key file {keys_file} is not text: {error}") from error
        if not hashes:
            raise ConfigError(f"key file {keys_file} holds no key hash, so anyone could use the service")
    return hashes


CHAMPION = "champion"
CHALLENGER = "challenger"


def arm_of(user_id: int | str | None, challenger_share: float, salt: str) -> str:
    """The arm of a user. A larger share moves users to the challenger, never one of them back.

    A new salt shuffles everyone anew. The number 7 and the text "7" are two users. A request of nobody draws its own.
    """
    if challenger_share <= 0:
        return CHAMPION
    if user_id is None:
        return CHALLENGER if random.random() < challenger_share else CHAMPION
    mark = "i" if isinstance(user_id, int) else "s"
    digest = hashlib.blake2b(f"{salt}\0{mark}{user_id}".encode(), digest_size=8).digest()
    return CHALLENGER if int.from_bytes(digest) / 2**64 < challenger_share else CHAMPION
