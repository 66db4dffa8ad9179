"""Can a card begun here still be completed? Cheap answers for most, the exact engine for the rest.

Knows no models; on a machine without numba everything here but `ask_engine` works.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exactk.problem.graph import Requests


def cheap_bounds(
    open: Bool[Tensor, "B S N"], graph: Float[Tensor, "B N N"], needed: Int[Tensor, "B 1 1"]
) -> tuple[Bool[Tensor, "B S N"], Bool[Tensor, "B S N"]]:
    """(possible, sure): after choosing j, may there be, is there certainly, a clique of `needed` more?

    possible: j has at least `needed` open neighbours. sure: by Caro and Wei, a graph holds a clique of at least
    the sum over its nodes v of 1 / (1 + strangers of v); strangers counted among all open positions are no
    fewer than among j's open neighbours, so two matrix products serve every j. Exact for `needed` <= 1.
    """
    nodes = open.to(graph.dtype)
    neighbours = nodes @ graph  # B S N
    strangers = nodes.sum(-1, keepdim=True) - 1 - neighbours
    bound = (nodes / (1 + strangers.clamp(min=0))) @ graph
    possible = neighbours >= needed
    sure = (bound > needed - 1 + 1e-3) | (
        needed <= 0
    )  # a whole number above needed - 1; the margin is rounding's
    return possible, sure


def ask_engine(
    requests: Requests, chosen: Bool[Tensor, "B S N"], rows: Bool[Tensor, "B S"]
) -> Bool[Tensor, "B S N"]:
    """`cliques.completable` for the marked rows (else False); rows that chose the same set are asked once."""
    from exactk.problem.exact import cliques  # numba is needed only where doubt remains

    request, row = (index.cpu().numpy() for index in rows.nonzero(as_tuple=True))
    sets = chosen[rows].cpu().numpy()
    keys = np.concatenate(
        [request[:, None].astype(np.int64).view(np.uint8), np.packbits(sets, axis=1)], axis=1
    )
    _, first, copies = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    b = request[first]
    asked = requests.rows(b)
    answers = cliques.completable(asked, sets[first])[copies.reshape(-1)]
    result = np.zeros(chosen.shape, bool)
    result[request, row] = answers
    return torch.from_numpy(result).to(chosen.device)


def kept_sets(
    requests: Requests, sets: Bool[Tensor, "B S N"], asked: Bool[Tensor, "B S"]
) -> Bool[Tensor, "B S"]:
    """Which of the full cards asked about are valid under a brief: they can be completed, as they are complete."""
    from exactk.problem.exact import cliques

    wanted = asked.cpu().numpy()
    kept = np.zeros_like(wanted)
    for b in range(len(wanted)):
        tried = np.flatnonzero(wanted[b])
        held = sets[b].cpu().numpy()[tried]
        kept[b, tried] = cliques.can_complete(requests.rows(np.full(len(tried), b)), held)
    return torch.from_numpy(kept).to(asked.device)
