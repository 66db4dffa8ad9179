"""Requests and policies made up for measuring: random ids, random graphs, weights drawn from a seed.

Knows no files.
"""

from __future__ import annotations

import torch

from exactk.models.policy import Policy
from exactk.settings.config import InputSizes, PolicyConfig
from exactk.tensors import TensorBatch

SIZES = InputSizes(num_users=10_000, num_items=100_000)
MOVIELENS = InputSizes(num_users=818, num_items=1631)  # the paper's, and a row for strangers


def made_batch(
    num_requests: int,
    num_candidates: int,
    card_size: int,
    density: float,
    seed: int,
    sizes: InputSizes = SIZES,
) -> TensorBatch:
    """Random requests whose pairs are allowed with probability `density`."""
    generator = torch.Generator().manual_seed(seed)
    B, N = num_requests, num_candidates
    forbidden = (torch.rand(B, N, N, generator=generator) > density).triu(1)
    return TensorBatch(
        user=torch.randint(sizes.num_users, (B,), generator=generator),
        item=torch.randint(sizes.num_items, (B, N), generator=generator),
        present=torch.ones(B, N, dtype=torch.bool),
        graph=~(forbidden | forbidden.transpose(1, 2)),
        card_size=torch.full((B,), card_size),
        pinned=torch.zeros(B, N, dtype=torch.bool),
        group=torch.zeros(B, 0, N, dtype=torch.long),
        cap=torch.zeros(B, 0, dtype=torch.long),
    )


def ruled_batch(
    num_requests: int, num_candidates: int, longest: int, seed: int, sizes: InputSizes = SIZES
) -> TensorBatch:
    """Solvable requests of every kind: sparse and dense graphs, ragged N and K, caps on some, pins on some."""
    from exactk.problem.exact import cliques  # numba is needed only here

    generator = torch.Generator().manual_seed(seed)
    B, N = num_requests, num_candidates

    def chance(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    density = 0.55 + 0.45 * chance(B, 1, 1)
    forbidden = (chance(B, N, N) > density).triu(1)
    present = (chance(B, N) < 0.6 + 0.4 * chance(B, 1)) | (chance(B, 1) < 0.5)
    pinned = (chance(B, N) < 1.5 / N) & present & (chance(B, 1) < 0.2)
    capped = torch.where(chance(B, 1) < 0.3, torch.randint(1, 4, (B, 1), generator=generator), longest)
    batch = TensorBatch(
        user=torch.randint(sizes.num_users, (B,), generator=generator),
        item=torch.randint(sizes.num_items, (B, N), generator=generator),
        present=present,
        graph=~(forbidden | forbidden.transpose(1, 2)),
        card_size=torch.randint(1, longest + 1, (B,), generator=generator),
        pinned=pinned,
        group=torch.randint(-1, 5, (B, 1, N), generator=generator),
        cap=capped,
    )
    return batch.rows(torch.from_numpy(cliques.exists(batch.requests())))


def made_policy(seed: int, config: PolicyConfig | None = None, sizes: InputSizes = SIZES) -> Policy:
    """A policy of the paper's size, its weights doubled so that its choices are as decided as a trained one's."""
    policy = Policy(config or PolicyConfig(), sizes, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(2.0)
    return policy.eval()


def logged_batch(
    size: int, generator: torch.Generator, sizes: InputSizes = MOVIELENS, N: int = 20, K: int = 4
) -> TensorBatch:
    """Clicked requests of the paper's shape: who and what is on them does not change the work."""
    item = torch.rand(size, sizes.num_items - 1, generator=generator).argsort(dim=1)[:, :N] + 1
    card = torch.rand(size, N, generator=generator).argsort(dim=1)[:, :K]
    return TensorBatch(
        user=torch.randint(1, sizes.num_users, (size,), generator=generator),
        item=item,
        present=torch.ones(size, N, dtype=torch.bool),
        graph=~torch.eye(N, dtype=torch.bool).repeat(size, 1, 1),
        card_size=torch.full((size,), K),
        pinned=torch.zeros(size, N, dtype=torch.bool),
        group=torch.zeros(size, 0, N, dtype=torch.long),
        cap=torch.zeros(size, 0, dtype=torch.long),
        card=card,
        clicked=torch.ones(size, dtype=torch.bool),
        clicked_position=card[:, 0],
    )
