"""`reproduce attention`: what the candidates of one request attend to in the encoder, by film names.

Knows how to read names from the user's own copy of MovieLens; the authors' item ids are MovieLens ids.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from exactk.data.sources.movielens import read_movielens
from exactk.errors import InputError
from exactk.learning.phases import Models
from exactk.recommender import Recommender
from exactk.tensors import TensorBatch
from exactk_lab.bench.report import Report
from exactk_lab.reproduce.cells import Options
from exactk_lab.reproduce.methods import paper
from exactk_lab.reproduce.sources import Place, source

COLUMN = "k4-n20"
MOST_SHOWN = 12  # candidates in the picture


def run(place: Place, options: Options) -> Report:
    """Train the paper's setting once, keep it, and look at the request whose attention says most."""
    place.need(COLUMN)
    if place.movielens is None:
        raise InputError(
            "names of films are read from your copy of MovieLens: say where, with --movielens PATH"
        )
    names = film_names(place.movielens)
    data = source(COLUMN, place, options.quick)
    train, valid, test = data.views()
    seed = options.seeds[0]
    model = _trained(data.rows.parent / f"attention-seed{seed}", train, valid, options, seed)
    policy = Models.of(model.fitted).policy
    assert policy is not None
    batch = test.batch(model.fitted.vocabulary, slice(0, 200))
    with torch.no_grad():
        weights = policy.attention(TensorBatch.of(batch))[:, -1]  # B H N N of the last layer
    b, head = most_telling(weights.numpy())
    row = test.impressions(slice(b, b + 1)).to_pylist()[0]
    titles = [names.get(item, f"item {item}") for item in row["candidates"]]
    shown = most_attended(weights[b, head].numpy(), MOST_SHOWN)
    rows: list[dict[str, Any]] = [
        {
            "film": titles[i],
            "chosen": i in model.recommend_batch(batch.rows(slice(b, b + 1)))[0].tolist(),
            "liked": row["candidates"][i] == row["clicked_item"],
            "attends_to": {titles[j]: round(float(weights[b, head, i, j]), 4) for j in shown},
        }
        for i in shown
    ]
    notes = [
        f"Test request {row['request_id']} of {COLUMN}, last layer, head {head + 1}: of the first 200 requests "
        "the one whose attention is furthest from uniform.",
        f"Shown are the {len(shown)} candidates attended to most; a row's weights over all candidates sum to 1.",
    ]
    return Report("reproduce attention", rows, (), notes, (seed,), options.quick)


def _trained(folder: Path, train: Any, valid: Any, options: Options, seed: int) -> Recommender:
    """The model of an earlier run, or a new one, resumed where training had stopped."""
    if (folder / "model").exists():
        return Recommender.load(folder / "model")
    config = paper.config(options.budget()).with_overrides([f"training.seed={seed}"])
    model = Recommender(config).fit(train, valid, folder / "run", resume=True, show=False)
    model.save(folder / "model")
    return model


def film_names(movielens: Path) -> dict[int, str]:
    """Titles by MovieLens id, without the year."""
    movies = read_movielens(movielens).movies
    titles = (str(title) for title in movies["title"].to_pylist())
    return dict(zip(movies["item_id"].to_pylist(), (tidy(title) for title in titles), strict=True))


def tidy(title: str) -> str:
    """ "Rock, The (1996)" becomes "The Rock"."""
    bare = title.rpartition(" (")[0] or title
    for article in (", The", ", A", ", An"):
        if bare.endswith(article):
            return f"{article[2:]} {bare.removesuffix(article)}"
    return bare


def most_telling(weights: np.ndarray) -> tuple[int, int]:
    """The request and head whose rows have the least entropy on average."""
    spread = -(weights * np.log(weights.clip(1e-12))).sum(-1).mean(-1)  # B H
    b, head = np.unravel_index(int(spread.argmin()), spread.shape)
    return int(b), int(head)


def most_attended(weights: np.ndarray, most: int) -> list[int]:
    """The positions with the largest column sums, largest first."""
    return [int(i) for i in np.argsort(-weights.sum(0), kind="stable")[:most]]
