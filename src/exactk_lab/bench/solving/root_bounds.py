"""What bounds of other kinds prove of requests whose pairs are all scored at random, before anything is searched.

Knows no rules and no search: node weights, pair weights and K are all there is. It says how far a better bound at the
root could bring a proof, and how long the known ones take. All are proven bounds; none has to be run to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64

SPLIT_STEPS, MATRIX_STEPS = 1000, 400
PATIENCE = 10  # steps without a better bound before they are shortened

Node = Float64[np.ndarray, "N"]
Pair = Float64[np.ndarray, "N N"]


def shared_bound(node: Node, pair: Pair, K: int, lent: float) -> float:
    """Half of each pair at either end, and a share of what an item adds lent to its K - 1 partners."""
    return _bound(node, pair / 2 + _lent(node, K, lent), K)[0]


def split_bound(node: Node, pair: Pair, K: int, target: float, steps: int = SPLIT_STEPS) -> float:
    """The best known way to split each pair between its ends, by subgradient steps towards `target`.

    With steps without end this is the linear program over x (items) and y (pairs), y_ij <= x_i, sum_j y_ij = (K-1) x_i.
    """
    ends = pair / 2 + _lent(node, K, 0.5)
    least, stale, pace = np.inf, 0, 1.0
    for _ in range(steps):
        bound, partners = _bound(node, ends, K)
        stale = 0 if bound < least - 1e-6 * abs(bound) else stale + 1
        least = min(least, bound)
        if stale == PATIENCE:
            stale, pace = 0, 0.7 * pace
        uneven = partners - partners.T  # the pairs that one end counts on and the other does not
        length = float((uneven * uneven).sum())
        if length == 0.0:
            break
        ends = ends - pace * max(bound - target, 0.0) / length * uneven
    return least


def matrix_bound(node: Node, pair: Pair, K: int, steps: int = MATRIX_STEPS) -> float:
    """The doubly non-negative relaxation: xx' becomes a matrix X >= 0 without negative eigenvalues, Xe = K diag(X).

    By alternating directions on its dual, max <C, X>: whatever multipliers u, t and S >= 0 are tried, with
    Z = t I + (ue' + eu')/2 - K Diag(u) - C - S the bound K (t - the least eigenvalue of Z, where below 0) is proven.
    """
    N = len(node)
    weights = pair / 2 + np.diag(node)
    size = float(np.abs(weights).max())
    weights = weights / size
    normal = np.full((N + 1, N + 1), 0.5)
    normal[0, 0], normal[0, 1:], normal[1:, 0] = N, 1 - K, 1 - K
    normal[1:, 1:] += np.diag(np.full(N, N / 2 - 2 * K + K * K))
    solve = np.linalg.inv(normal)
    wanted = np.zeros(N + 1)
    wanted[0] = K
    primal, positive, signs = np.eye(N) * K / N, np.zeros((N, N)), np.zeros((N, N))
    penalty, least = 1.0, np.inf
    for step in range(1, steps + 1):
        multipliers = solve @ (_rows(weights + positive + signs, K) - penalty * (wanted - _rows(primal, K)))
        rest = _transposed(multipliers, K) - weights
        values, vectors = np.linalg.eigh(rest - signs - penalty * primal)
        above = values > 0
        positive = (vectors[:, above] * values[above]) @ vectors[:, above].T
        signs = np.maximum(0.0, rest - positive - penalty * primal)
        off = rest - positive - signs
        primal = primal - off / penalty
        if step % 25 == 0:
            lowest = min(float(np.linalg.eigvalsh(rest - signs)[0]), 0.0)
            least = min(least, size * K * (float(multipliers[0]) - lowest))
            short = np.linalg.norm(_rows(primal, K) - wanted) / (1 + K)
            over = np.linalg.norm(off) / (1 + np.linalg.norm(weights))
            penalty *= 1 / 1.3 if short > 3 * over else 1.3 if over > 3 * short else 1.0
    return least


def measured(node: Node, pair: Pair, K: int, best: float) -> dict[str, Any]:
    """By how much each bound exceeds the best card's worth, as a share of it, and the seconds it took."""
    bounds: dict[str, Callable[[], float]] = {
        "halves": lambda: shared_bound(node, pair, K, 0.0),
        "lent halves": lambda: shared_bound(node, pair, K, 0.5),
        "best split": lambda: split_bound(node, pair, K, best),
        "doubly non-negative": lambda: matrix_bound(node, pair, K),
    }
    row: dict[str, Any] = {}
    for name, bound in bounds.items():
        started = time.perf_counter()
        row[name] = bound() / best - 1.0
        row[f"{name}, s"] = time.perf_counter() - started
    return row


def _lent(node: Node, K: int, share: float) -> Pair:
    """What each end gains and the other loses when items lend `share` of what they add; over a card it sums to 0."""
    shift: Pair = share * (node[None, :] - node[:, None]) / (K - 1)
    return shift


def _bound(node: Node, ends: Pair, K: int) -> tuple[float, Pair]:
    """The K largest worths, each an item and its K - 1 best ends; and which ends those are, 1 or 0."""
    ends = ends.copy()
    np.fill_diagonal(ends, -np.inf)
    best = np.argpartition(ends, -(K - 1), axis=1)[:, -(K - 1) :]
    worth = node + np.take_along_axis(ends, best, 1).sum(1)
    top = np.argpartition(worth, -K)[-K:]
    partners = np.zeros(ends.shape)
    partners[top[:, None], best[top]] = 1.0
    return float(worth[top].sum()), partners


def _rows(X: Pair, K: int) -> np.ndarray:
    """What the relaxation fixes: the trace (K), and Xe - K diag(X) (0)."""
    return np.concatenate([[np.trace(X)], X.sum(1) - K * np.diag(X)])


def _transposed(multipliers: np.ndarray, K: int) -> Pair:
    u = multipliers[1:]
    matrix: Pair = (u[:, None] + u[None, :]) / 2
    matrix[np.diag_indices(len(u))] += multipliers[0] - K * u
    return matrix
