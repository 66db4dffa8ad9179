"""A world in figures: what its cards are worth, how often its rule bites, what ignoring pairs or themes costs.

Knows the truth (evaluation may). `python -m exactk_lab.world_summary strength=0 seed=8` prints them as JSON.
"""

import json
import sys
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from exactk.data.world import World, WorldRequests
from exactk.data.world.log import record, show, visitors
from exactk.data.world.recipe import WorldConfig, stream
from exactk.problem.exact import cliques
from exactk.problem.graph import Requests

NUM_REQUESTS = 2_000


def asked_and_shown(world: World, num: int = NUM_REQUESTS) -> tuple[WorldRequests, Int64[np.ndarray, "B K"]]:
    """Requests as production meets them, and the cards it shows (positions)."""
    rng = stream(world.config.seed, "summary")
    users = visitors(rng, world.people, num)
    shown = record(rng, world.shop, world.config, users)
    return WorldRequests(users, shown.items, Requests.of(shown.graph, world.config.k)), shown.card


def any_cards(world: World, asked: WorldRequests) -> Int64[np.ndarray, "B K"]:
    """Valid cards drawn without any preference."""
    rng = stream(world.config.seed, "any cards")
    return show(rng, np.zeros(asked.items.shape), asked.requests.graph, world.config.k).card


def card_values(
    world: World, asked: WorldRequests, card: Int64[np.ndarray, "B K"]
) -> Float64[np.ndarray, "B"]:
    """True click probabilities of cards given as positions."""
    return world.value(asked.users, np.take_along_axis(asked.items, card, axis=1))


def pair_optimum(world: World, asked: WorldRequests) -> Int64[np.ndarray, "B K"]:
    """The best cards for one who knows items and pairs exactly, and no themes."""
    return cliques.best(asked.requests, *world.node_pair(asked.users, asked.items)).card


def summary(world: World, num: int = NUM_REQUESTS) -> dict[str, Any]:
    """Mean true values and shares over `num` requests."""
    asked, shown = asked_and_shown(world, num)
    best = world.optimum(*asked).value.mean()
    N = world.config.n
    reached = {
        "any_valid_card": card_values(world, asked, any_cards(world, asked)).mean(),
        "logged": card_values(world, asked, shown).mean(),
        "best_singles": world.best_singles(*asked).value.mean(),
        "pair_optimum": card_values(world, asked, pair_optimum(world, asked)).mean(),
        "optimum": best,
    }
    return {
        "config": world.config.to_dict(),
        "requests": num,
        "bias": world.bias,
        "value": {name: round(float(value), 4) for name, value in reached.items()},
        "share_of_optimum": {name: round(float(value / best), 4) for name, value in reached.items()},
        "forbidden_pairs": round(float(1 - asked.requests.graph.mean() * N / (N - 1)), 4),
    }


if __name__ == "__main__":
    settings = dict(word.split("=", 1) for word in sys.argv[1:])
    chosen = WorldConfig.from_dict({name: json.loads(value) for name, value in settings.items()})
    sys.stdout.write(json.dumps(summary(World(chosen)), indent=2) + "\n")
