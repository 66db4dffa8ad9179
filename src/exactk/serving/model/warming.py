"""Compiled code made ready before the first request; `python -m exactk.serving.model.warming` does it for an image.

Knows which kernels serving calls, and their shapes only so far as the compiler asks: sizes are told at run time, but
the members of a pair value are part of a type.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from exactk.engine import shapes
from exactk.engine.card_value.values import CompiledCardValue
from exactk.engine.decode import CompiledDecoder
from exactk.engine.pair_tables import PairTables
from exactk.engine.pair_values import CompiledPairValues
from exactk.problem.batch import Batch
from exactk.problem.exact.cliques import arranged, completable
from exactk.problem.given import GivenRequests
from exactk.problem.graph import complete_graph
from exactk.problem.rules.constraints import Constraints, Forbid, Slots, TitleDistance, Variety
from exactk.problem.solving import solve
from exactk.serving.studio.sources import world_requests
from exactk.settings.config import InputSizes, PairValueConfig, PolicyConfig
from exactk.settings.presets import preset


def warm_engine() -> None:
    """Load what any request may need before the first one comes: with and without pairs, titles, reasons, a refusal."""
    titles = ["red wool", "red silk", "snow boots"]  # the first two need a programme of their own
    pairs = np.zeros((3, 3))
    briefs = Variety("item_id", at_least=2), Variety("item_id", at_least=3)  # of two items: the second blocks
    for ids in ([0, 1, 2], ["a", "b", "c"]):
        clash = Forbid([(ids[0], ids[1]), (ids[0], ids[2]), (ids[1], ids[2])])
        for rules in (TitleDistance(0.5), clash, *briefs):
            for weights in (None, pairs):
                solve(
                    [1.0, 2.0, 3.0], 2, weights, constraints=rules, items={"item_id": ids, "title": titles},
                    explain=True, infeasible="return", time_limit=60.0,
                )  # fmt: skip
    given = GivenRequests({"item_id": np.array([[0, 1, 2]])}, 2)
    places = Constraints.of(Slots(weights=(2.0, 1.0))).requests(given)
    arranged(places, np.array([[1, 2]]), np.ones((1, 3)))  # the studio puts others' cards into places
    completable(places, np.zeros((1, 3), bool))  # what writes a card step by step asks so under such rules


def warm_models() -> None:
    """Compile what trained models of the usual kinds need, into numba's cache on the disk."""
    sizes, batch, ids = InputSizes(num_users=3, num_items=5), _batch(), PairValueConfig(inputs="ids")
    for members in sorted({1, preset("best").pair_value.members}):
        config = replace(ids, members=members)
        value = shapes.blank(shapes.pair_value(config, sizes))
        values = CompiledPairValues(value, config, sizes)
        values(batch)
        tables = PairTables.of(value, config, values, np.arange(5), None)
        if tables is not None:
            tables.values(np.zeros(1, np.int64), None, np.arange(4)[None])
        shared = replace(config, triples=True)
        policy = PolicyConfig(inputs="ids", guided=True)
        guided = shapes.blank(shapes.policy(policy, sizes, shapes.pair_value(shared, sizes)))
        CompiledDecoder(guided, policy, sizes, shared, threads=1).recommend(batch)
    read = replace(sizes, candidate_numbers=1, items_recur=False, shown="list")
    best = preset("best")
    value = shapes.blank(shapes.card_value(best.card_value, best.pair_value, read))
    numbers = replace(batch, candidate_numbers=np.zeros((1, 4, 1), np.float32))
    CompiledCardValue(value, best, read, threads=1).values(numbers)
    policy = PolicyConfig(inputs="ids")
    blank = shapes.blank(shapes.policy(policy, sizes, {}))
    CompiledDecoder(blank, policy, sizes, ids, threads=1).recommend(batch)


def _batch() -> Batch:
    return Batch(
        user=np.zeros(1, np.int64),
        item=np.arange(4)[None],
        present=np.ones((1, 4), bool),
        graph=complete_graph(4)[None],
        card_size=np.array([2]),
        pinned=np.zeros((1, 4), bool),
        group=np.zeros((1, 0, 4), np.int32),
        cap=np.zeros((1, 0), np.int32),
    )


if __name__ == "__main__":
    warm_engine()
    warm_models()
    world_requests()
