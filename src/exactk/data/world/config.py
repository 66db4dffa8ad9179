"""What a world is asked to be: its size, its two knobs, its seed; and the words it is told in (categories, themes).

Knows no numbers drawn from the seed: `world_latents.py` draws them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from zlib import crc32

import numpy as np

from exactk.errors import ConfigError

VERSION = 1  # of the recipe: another recipe makes another world from the same seed, and must say so

CATEGORIES = (
    "hat", "scarf", "gloves", "coat", "dress", "handbag", "heels", "jeans", "sneakers", "backpack",
    "tent", "thermos", "teapot", "teacup", "blanket", "lamp",
)  # fmt: skip
THEMES = ("winter", "wedding", "campus", "camping", "teatime", "cosy")

# How much two categories help each other on one card, in units of `Effects.complement`; clashes are negative.
COMPLEMENTS: Mapping[tuple[str, str], float] = {
    ("hat", "scarf"): 1.0, ("hat", "gloves"): 0.7, ("hat", "coat"): 0.6, ("scarf", "gloves"): 1.0,
    ("scarf", "coat"): 0.8, ("gloves", "coat"): 0.7, ("scarf", "handbag"): 0.6, ("hat", "dress"): 0.5,
    ("dress", "handbag"): 1.0, ("dress", "heels"): 1.0, ("handbag", "heels"): 0.8, ("coat", "handbag"): 0.5,
    ("coat", "jeans"): 0.6, ("jeans", "sneakers"): 1.0, ("jeans", "backpack"): 0.6, ("hat", "sneakers"): 0.5,
    ("sneakers", "backpack"): 0.8, ("backpack", "tent"): 0.9, ("backpack", "thermos"): 0.8,
    ("tent", "thermos"): 0.7, ("tent", "lamp"): 0.7, ("gloves", "thermos"): 0.6, ("tent", "blanket"): 0.5,
    ("teapot", "teacup"): 1.0, ("teacup", "blanket"): 0.8, ("teapot", "lamp"): 0.6, ("teapot", "blanket"): 0.6,
    ("blanket", "lamp"): 0.9, ("teacup", "lamp"): 0.6, ("thermos", "teacup"): 0.5,
    ("scarf", "sneakers"): -0.5, ("dress", "sneakers"): -0.6, ("heels", "backpack"): -0.6,
    ("heels", "tent"): -0.6, ("handbag", "tent"): -0.5, ("coat", "teapot"): -0.4, ("jeans", "teapot"): -0.4,
    ("dress", "thermos"): -0.4, ("gloves", "lamp"): -0.4, ("hat", "teacup"): -0.4,
}  # fmt: skip


@dataclass(frozen=True)
class WorldConfig:
    """Size and knobs of a world; everything in it follows from these and nothing else.

    `strength` scales the effect of pairs: at 0 the best single items are the best card. `theme` is what a card gains,
    in log-odds, when at least three of its items share a theme. `click_rate` is the mean click probability of the
    logged cards; the constant term of the click model is set to meet it.
    """

    users: int = 2_000
    items: int = 5_000
    impressions: int = 30_000
    k: int = 4
    n: int = 50
    strength: float = 1.0
    theme: float = 0.0
    click_rate: float = 0.13
    min_distance: float = 0.5
    seed: int = 7

    def __post_init__(self) -> None:
        least = {"users": 1, "items": 1, "impressions": 1, "k": 1, "n": 1, "seed": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ConfigError(f"a world's {name} must be at least {bound}, not {getattr(self, name)}")
        if self.k > self.n:
            raise ConfigError(f"a card of k={self.k} cannot come from n={self.n} candidates")
        if self.k > 12:
            raise ConfigError(
                f"k={self.k}: exact propensities are summed over all 2^k prefixes, k may be at most 12"
            )
        if self.items < 2 * self.n:
            raise ConfigError(
                f"{self.items} items are too few for n={self.n} candidates; at least {2 * self.n}"
            )
        if self.strength < 0 or self.theme < 0:
            raise ConfigError(f"strength={self.strength} and theme={self.theme} must not be negative")
        if not 0 < self.click_rate < 1:
            raise ConfigError(f"click_rate={self.click_rate} must lie between 0 and 1")
        if not 0 <= self.min_distance <= 1:
            raise ConfigError(f"min_distance={self.min_distance} must lie in [0, 1], as NED does")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> "WorldConfig":
        """The other way; an unknown name is refused."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(held) - known)
        if unknown:
            raise ConfigError(f"unknown world setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
        return cls(**held)


def stream(seed: int, name: str, index: int = 0) -> np.random.Generator:
    """The generator of one named part of a world: parts never share draws, so none depends on who ran first."""
    return np.random.default_rng([seed, crc32(name.encode()), index])


def complement_table() -> np.ndarray:
    """[C, C] symmetric: `COMPLEMENTS` by category number, zero elsewhere."""
    table = np.zeros((len(CATEGORIES), len(CATEGORIES)))
    for (first, second), weight in COMPLEMENTS.items():
        i, j = CATEGORIES.index(first), CATEGORIES.index(second)
        table[i, j] = table[j, i] = weight
    return table
