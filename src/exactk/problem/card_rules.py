"""Rules that are functions of whole cards: asked of the best cards, one after the other, until enough keep them all.

Knows the exact engine; what it costs is how many better cards are refused.
"""

from __future__ import annotations

import time

import numpy as np
from jaxtyping import Float64

from exactk.problem.exact.cliques import Ranking, best_n
from exactk.problem.graph import Requests
from exactk.problem.rules.columns import Columns
from exactk.problem.rules.pairs import Rule

FIRST_ASKED, MOST_ASKED, TIMES_MORE = 8, 32_768, 8


def best_under_card_rules(
    requests: Requests,
    scores: Float64[np.ndarray, "1 N"],
    pairs: Float64[np.ndarray, "1 N N"] | None,
    rules: tuple[Rule, ...],
    columns: Columns,
    n: int = 1,
    time_limit: float | None = None,
) -> Ranking:
    """The n best cards of one request that keep every rule; fewer where time, or the most that are asked, ran out.

    `optimal` is False then; with nothing found it proves, where True, that no card keeps them.
    """
    deadline = None if time_limit is None else time.monotonic() + time_limit
    wanted = max(n, FIRST_ASKED)
    verdicts: dict[tuple[int, ...], bool] = {}
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 1e-4)
        ranking = best_n(requests, scores, pairs, n=wanted, time_limit=left)
        listed = int(ranking.num_found[0])
        kept: list[int] = []
        for rank in range(listed):
            if len(kept) == n or (deadline is not None and time.monotonic() > deadline):
                break
            card = tuple(p for p in ranking.card[0, rank].tolist() if p >= 0)
            if card not in verdicts:
                verdicts[card] = all(rule.allows_card(columns, 0, card) for rule in rules)
            kept += [rank] if verdicts[card] else []
        late = deadline is not None and time.monotonic() > deadline
        all_listed = listed < wanted and bool(ranking.optimal[0])
        if len(kept) == n or all_listed or late or wanted >= MOST_ASKED or not ranking.optimal[0]:
            break
        wanted = min(wanted * TIMES_MORE, MOST_ASKED)
    proven = bool(ranking.optimal[0]) and (len(kept) == n or all_listed)
    last = float(ranking.weight[0, kept[-1]]) if kept else -np.inf
    bound = float(ranking.bound[0]) if not proven else last if len(kept) == n else -np.inf
    chosen, weight = np.full((1, n, ranking.card.shape[2]), -1, np.int64), np.full((1, n), -np.inf)
    chosen[0, : len(kept)] = ranking.card[0, kept]
    weight[0, : len(kept)] = ranking.weight[0, kept]
    bound = max(bound, last) if len(kept) == n else bound
    return Ranking(chosen, weight, np.array([len(kept)]), np.array([bound]), np.array([proven]))
