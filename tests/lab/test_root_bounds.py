"""Bounds at the root beside brute force, and the split of pairs beside the linear program it stands for."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from exactk_lab.bench.solving.root_bounds import matrix_bound, shared_bound, split_bound

SEEDS = range(6)


def request_of(seed: int, N: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, N])
    upper = np.triu(rng.integers(-500, 501, (N, N)), 1)
    return rng.integers(0, 1001, N).astype(float), (upper + upper.T).astype(float)


def best_worth(node: np.ndarray, pair: np.ndarray, K: int) -> float:
    cards = combinations(range(len(node)), K)
    worths = [
        sum(node[i] for i in card) + sum(pair[i, j] for i, j in combinations(card, 2)) for card in cards
    ]
    return float(max(worths))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("N", "K"), [(7, 2), (9, 3), (10, 5)])
def test_no_card_is_worth_more_than_any_bound(seed: int, N: int, K: int) -> None:
    node, pair = request_of(seed, N)
    best = best_worth(node, pair, K)
    bounds = [shared_bound(node, pair, K, share) for share in (0.0, 0.25, 0.5)]
    bounds += [split_bound(node, pair, K, best, steps) for steps in (1, 7, 200)]
    bounds += [matrix_bound(node, pair, K, steps) for steps in (25, 200)]
    assert min(bounds) >= best - 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_split_is_the_linear_program_over_items_and_pairs(seed: int) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    N, K = 9, 4
    node, pair = request_of(seed, N)
    ends = list(permutations(range(N), 2))
    weights = np.concatenate([node, [pair[i, j] / 2 for i, j in ends]])
    equal, right = [np.concatenate([np.ones(N), np.zeros(len(ends))])], [float(K)]
    for i in range(N):
        row = np.zeros(len(weights))
        row[i] = -(K - 1)
        row[N:] = [e[0] == i for e in ends]
        equal.append(row)
        right.append(0.0)
    for i, j in combinations(range(N), 2):
        row = np.zeros(len(weights))
        row[N + ends.index((i, j))], row[N + ends.index((j, i))] = 1, -1
        equal.append(row)
        right.append(0.0)
    within = np.zeros((len(ends), len(weights)))
    for number, (i, _) in enumerate(ends):
        within[number, N + number], within[number, i] = 1, -1
    answer = optimize.linprog(
        -weights, A_ub=within, b_ub=np.zeros(len(ends)), A_eq=np.array(equal), b_eq=right, bounds=(0, 1)
    )
    program = -answer.fun
    assert program - 1e-6 <= split_bound(node, pair, K, program, 4000) <= program * 1.005


@pytest.mark.parametrize("seed", SEEDS)
def test_where_all_are_taken_every_bound_is_the_one_card(seed: int) -> None:
    node, pair = request_of(seed, 6)
    worth = best_worth(node, pair, 6)
    assert shared_bound(node, pair, 6, 0.5) == pytest.approx(worth)
    assert split_bound(node, pair, 6, worth) == pytest.approx(worth)
    assert matrix_bound(node, pair, 6) == pytest.approx(worth, abs=1.0)
