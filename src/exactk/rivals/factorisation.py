"""Matrix factorisation: BPR-MF, MF with a softmax over the candidates, and implicit's ALS and BPR.

Know no lists: a score is of one user and one item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Generator, Tensor, nn

from exactk.errors import MissingExtraError
from exactk.models.affinity import summed
from exactk.models.inputs import initialise
from exactk.rivals.contract import Budget, Logs, Setting, TrainedMethod, tuned
from exactk.rivals.losses import bpr_loss, shown_items, softmax_loss
from exactk.rivals.selection import Greedy, Judge, by_weight
from exactk.rivals.training import ItemWeights, settings_for, train_scorer
from exactk.settings.config import Inputs, InputSizes
from exactk.tensors import TensorBatch

RANK = 32


class Factors(nn.Module):
    """<p_u, q_i> + b_i; features, where there are some, add a linear part to each, as in LightFM."""

    def __init__(self, inputs: Inputs, sizes: InputSizes, rank: int, generator: Generator) -> None:
        super().__init__()
        with_ids, with_features = inputs != "features", inputs != "ids"
        self.users = nn.Embedding(sizes.num_users, rank) if with_ids else None
        self.items = (
            nn.Embedding(sizes.num_items, rank + 1) if with_ids else None
        )  # the last column is the bias
        fu, fi = (sizes.user_feature_size, sizes.item_feature_size) if with_features else (0, 0)
        self.from_user = nn.Linear(fu, rank) if fu else None
        self.from_item = nn.Linear(fi, rank + 1) if fi else None
        initialise(self, generator)
        with (
            torch.no_grad()
        ):  # products of two sums of many features start large; they should start near nothing
            for linear in (self.from_user, self.from_item):
                if linear is not None:
                    linear.weight *= 0.1

    def forward(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """Scores of all candidates."""
        user = summed(self.users, batch.user, self.from_user, batch.user_features)  # B r
        item = summed(self.items, batch.item, self.from_item, batch.item_features)  # B N r+1
        return (item[..., :-1] @ user.unsqueeze(-1)).squeeze(-1) + item[..., -1]


def fit_bpr(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """BPR-MF, the paper's pairwise baseline; the others are the rest of the card, or of the candidates."""
    settings = [
        {**setting, "variant": others}
        for setting in settings_for(train.sizes)
        for others in ("candidates", "shown")
    ]

    def loss(network: Factors, setting: Setting, batch: TensorBatch) -> Float[Tensor, ""]:
        assert batch.card is not None
        assert batch.clicked_position is not None
        shown = shown_items(batch.card, batch.item.shape[1])
        return bpr_loss(
            network(batch), shown if setting["variant"] == "shown" else batch.present, batch.clicked_position
        )

    network, chosen, score = train_scorer(
        "bpr",
        settings,
        lambda setting, generator: Factors(setting["inputs"], train.sizes, RANK, generator),
        lambda network: ItemWeights(network, "sigmoid"),
        loss,
        train.clicked_only(),
        valid.clicked_only(),
        budget,
    )
    return TrainedMethod(by_weight("BPR", ItemWeights(network, "sigmoid")), chosen, score)


def fit_mf_softmax(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """The clicked item in a softmax over the candidates: the plainest strong baseline."""

    def loss(network: Factors, setting: Setting, batch: TensorBatch) -> Float[Tensor, ""]:  # noqa: ARG001
        assert batch.clicked_position is not None
        return softmax_loss(network(batch), batch.present, batch.clicked_position)

    network, chosen, score = train_scorer(
        "mf",
        settings_for(train.sizes),
        lambda setting, generator: Factors(setting["inputs"], train.sizes, RANK, generator),
        lambda network: ItemWeights(network, "softmax"),
        loss,
        train.clicked_only(),
        valid.clicked_only(),
        budget,
    )
    return TrainedMethod(by_weight("MF softmax", ItemWeights(network, "softmax")), chosen, score)


@dataclass(frozen=True)
class Dot:
    """Scores from given factors; row 0, the unknown, is zero."""

    user: Float32[np.ndarray, "U r"]
    item: Float32[np.ndarray, "I r"]

    def __call__(self, batch: TensorBatch) -> Float[Tensor, "B N"]:
        """<p_u, q_i> of all candidates."""
        user, item = self.user[batch.user.numpy()], self.item[batch.item.numpy()]
        return torch.from_numpy(np.einsum("br,bnr->bn", user, item, dtype=np.float64))


def click_matrix(train: Logs) -> Any:
    """Users by items, how often each user clicked each item; unknowns left out."""
    from scipy import sparse

    users, items = [], []
    for batch in train.clicked_only().batches(4096):
        assert batch.clicked_position is not None
        at = batch.clicked_position
        known = at >= 0
        users.append(batch.user[known])
        items.append(batch.item[np.arange(len(at)), at.clip(0)][known])
    user = np.concatenate([*users, np.empty(0, np.int64)])
    item = np.concatenate([*items, np.empty(0, np.int64)])
    keep = (user > 0) & (item > 0)
    shape = (train.vocabulary.num_users, train.vocabulary.num_items)
    return sparse.csr_matrix((np.ones(keep.sum(), np.float32), (user[keep], item[keep])), shape=shape)


def implicit_library() -> Any:
    """The library, or the reason it is not there."""
    try:
        import implicit  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise MissingExtraError(
            "the rivals ALS and BPR of 'implicit' need it: pip install 'exactk[rivals]'"
        ) from error
    return implicit


def fit_implicit_als(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """Alternating least squares on the clicks (Hu, Koren and Volinsky 2008)."""
    settings = [
        {"factors": factors, "regularization": regularization, "alpha": alpha}
        for factors, regularization, alpha in [
            (32, 1.0, 5.0),
            (16, 10.0, 5.0),
            (64, 0.1, 1.0),
            (32, 10.0, 20.0),
        ]
    ]

    def model(setting: Setting) -> Any:
        return implicit_library().als.AlternatingLeastSquares(
            **setting, iterations=budget.epochs, num_threads=1, random_state=budget.seed
        )

    return _implicit("implicit ALS", settings, model, train, valid, budget)


def fit_implicit_bpr(train: Logs, valid: Logs, budget: Budget) -> TrainedMethod:
    """BPR on the clicks with negatives from the whole catalogue."""
    settings = [
        {"factors": factors, "learning_rate": rate, "regularization": 0.01}
        for factors, rate in [(32, 0.05), (16, 0.01), (64, 0.05), (32, 0.1)]
    ]

    def model(setting: Setting) -> Any:
        return implicit_library().bpr.BayesianPersonalizedRanking(
            **setting, iterations=10 * budget.epochs, num_threads=1, random_state=budget.seed
        )

    return _implicit("implicit BPR", settings, model, train, valid, budget)


def _implicit(
    name: str, settings: list[dict[str, Any]], model: Any, train: Logs, valid: Logs, budget: Budget
) -> TrainedMethod:
    implicit_library()
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    clicks, judge = click_matrix(train), Judge.of(valid, budget)

    def attempt(setting: Setting) -> tuple[Dot, float]:
        with threadpool_limits(
            1, "blas"
        ):  # implicit is slow beside a thread pool of BLAS, and says so loudly
            learned = model(setting)
            learned.fit(clicks, show_progress=False)
        user, item = (np.asarray(f, np.float32) for f in (learned.user_factors, learned.item_factors))
        user[0] = item[0] = 0.0
        scorer = Dot(user, item)
        return scorer, judge(Greedy(scorer))

    scorer, chosen, score = tuned(settings, budget, attempt)
    return TrainedMethod(by_weight(name, scorer), chosen, score)
