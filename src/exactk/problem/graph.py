"""B requests side by side, as numpy arrays: who may share a card with whom, and how many make one.

Knows neither rules (`constraints.py` makes these) nor search (`cliques.py` solves them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32, Int64

from exactk.problem import brief as briefs
from exactk.problem.brief import Brief


@dataclass(frozen=True)
class Requests:
    """Everything that decides whether a card is valid, for B requests padded to one N.

    A card of request b is valid when it holds exactly `card_size[b]` distinct present positions, every pair of
    them allowed by `graph[b]`, all of `pinned[b]`, and, for each cap c, at most `cap[b, c]` positions of any
    one group `group[b, c]` (group -1: counted by no cap).

    Of valid cards that are worth the same, the one with the candidate of the largest `tie_key` in which they differ
    is taken (by rising position where there are no keys): keys made of ids make the order of candidates irrelevant.
    """

    graph: Bool[np.ndarray, "B N N"]
    present: Bool[np.ndarray, "B N"]
    card_size: Int32[np.ndarray, "B"]
    pinned: Bool[np.ndarray, "B N"]
    group: Int32[np.ndarray, "B C N"]
    cap: Int32[np.ndarray, "B C"]
    brief: Brief | None = None
    tie_key: Int64[np.ndarray, "B N"] | None = None

    def __len__(self) -> int:
        return len(self.graph)

    @classmethod
    def of(cls, graph: Bool[np.ndarray, "B N N"], card_size: int | Int32[np.ndarray, "B"]) -> Requests:
        """Everything present, nothing pinned, no caps; `dataclasses.replace` says otherwise."""
        B, N, _ = graph.shape
        return cls(
            graph=graph,
            present=np.ones((B, N), bool),
            card_size=np.broadcast_to(np.asarray(card_size, np.int32), (B,)).copy(),
            pinned=np.zeros((B, N), bool),
            group=np.empty((B, 0, N), np.int32),
            cap=np.empty((B, 0), np.int32),
        )

    def one(self, b: int) -> Requests:
        """The b-th request alone, still with a batch axis."""
        return self.rows(slice(b, b + 1))

    def rows(self, index: np.ndarray | slice) -> Requests:
        """Some of the requests, in the order asked for."""
        return type(self)(
            self.graph[index],
            self.present[index],
            self.card_size[index],
            self.pinned[index],
            self.group[index],
            self.cap[index],
            None if self.brief is None else self.brief.rows(index),
            None if self.tie_key is None else self.tie_key[index],
        )


def complete_graph(num_nodes: int) -> Bool[np.ndarray, "N N"]:
    """Everything may share a card with everything but itself."""
    return ~np.eye(num_nodes, dtype=bool)


def pairs_of(present: Bool[np.ndarray, "B N"]) -> Bool[np.ndarray, "B N N"]:
    """Every two different candidates that are both there."""
    both: np.ndarray = present[:, :, None] & present[:, None, :]
    return np.asarray(both & complete_graph(present.shape[1]))


def is_valid_card(requests: Requests, b: int, card: np.ndarray) -> bool:
    """Whether these positions are a valid card of request b. Written plainly: tests hold the engine against it."""
    chosen = [int(p) for p in card]
    N = requests.graph.shape[1]
    if len(chosen) != requests.card_size[b] or len(set(chosen)) != len(chosen):
        return False
    if any(not 0 <= p < N or not requests.present[b, p] for p in chosen):
        return False
    if any(not requests.graph[b, p, q] for p in chosen for q in chosen if p != q):
        return False
    if not set(np.flatnonzero(requests.pinned[b]).tolist()) <= set(chosen):
        return False
    for c in range(requests.cap.shape[1]):
        groups = [int(requests.group[b, c, p]) for p in chosen if requests.group[b, c, p] >= 0]
        if any(groups.count(g) > requests.cap[b, c] for g in set(groups)):
            return False
    return requests.brief is None or briefs.keeps(requests.brief, b, chosen)
