"""What a world is asked to be: its size, its two knobs, its seed; and the words it is told in (categories, themes).

Knows no numbers drawn from the seed: `latents.py` draws them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

import numpy as np

from exactk.errors import ConfigError
from exactk.settings.sections import Section, setting

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
class WorldConfig(Section):
    """Size and knobs of a world; everything in it follows from these and nothing else."""

    section = "world"

    users: int = setting(2_000, "how many there are", least=1)
    items: int = setting(5_000, "how many there are; at least twice n", least=1)
    impressions: int = setting(30_000, "logged cards", least=1)
    k: int = setting(
        4, "items on a card; exact propensities are summed over all 2^k prefixes", least=1, most=12
    )
    n: int = setting(50, "candidates of a request", least=1)
    strength: float = setting(
        1.0, "of the effect of pairs; 0: the best single items are the best card", least=0
    )
    theme: float = setting(0.0, "what three items of one theme gain a card, in log-odds", least=0)
    click_rate: float = setting(0.13, "mean click probability of the logged cards", above=0, below=1)
    min_distance: float = setting(0.5, "of two titles on one card, as NED", least=0, most=1)
    seed: int = setting(7, "of everything", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > self.n:
            raise ConfigError(f"setting world.k must be at most world.n, got {self.k} and {self.n}")
        if self.items < 2 * self.n:
            raise ConfigError(
                f"setting world.items must be at least twice world.n, got {self.items} and {self.n}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


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
