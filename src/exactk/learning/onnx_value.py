"""A learned value as one ONNX graph: columns in, a score of each candidate and of every two out; batch free, N fixed.

Knows no rules and no search: the best card under them is exact search's business, `exactk.solve` with these numbers.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from exactk.atomic import atomic_file
from exactk.data.requests import Request
from exactk.errors import ConfigError
from exactk.learning.phases import Models
from exactk.models.pairvalue import SearchableValue
from exactk.problem.batch import Batch
from exactk.tensors import TensorBatch

OPSET = 18
OUTPUTS = ("bias", "node", "pair")
OF_RULES = ("graph", "card_size", "pinned", "group", "cap", "tie_key")
OF_REQUESTS = ("user", "user_features", "context_numbers", "context_categories", "user_categories")


class ValueGraph(nn.Module):
    """The value of any card is bias plus its nodes plus its pairs, each pair once; absent candidates have zeros."""

    def __init__(self, value: SearchableValue, example: TensorBatch) -> None:
        super().__init__()
        self.value, self.example = value, example
        self.names = tuple(name for name in example.named() if name not in OF_RULES)

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(bias [B], node [B, N], pair [B, N, N]) of inputs in the order of `names`."""
        named: dict[str, Any] = dict(zip(self.names, given, strict=True))
        found, present = self.value.values(replace(self.example, **named)), named["present"]
        both = present.unsqueeze(2) & present.unsqueeze(1)
        return found.bias, found.node * present, found.pair * both


def export_value(recommender: Any, path: Path | str, num_candidates: int) -> Path:
    """Write one file that weighs requests of up to `num_candidates`; shorter ones are padded, `present` False.

    Its inputs are the arrays of `recommender.fitted.builder.batch(requests)`, see `value_inputs`.
    """
    if num_candidates < 2:
        raise ConfigError(f"a graph weighs at least 2 candidates, got {num_candidates}")
    fitted = recommender.fitted
    value = Models.of(fitted).value
    if not isinstance(value, SearchableValue) or fitted.config.pair_value.triples:
        raise ConfigError(
            "export to ONNX weighs items and pairs; this model weighs three at a time (pair_value.triples)"
        )
    ids: Any = (
        range(num_candidates) if fitted.vocabulary.item_type is int else map(str, range(num_candidates))
    )
    request = Request(None, tuple(ids), 1)
    example = TensorBatch.of(fitted.builder.batch([request, request]))
    graph = ValueGraph(value.eval(), example).eval()
    batch = torch.export.Dim("batch")
    with atomic_file(path) as part, torch.no_grad(), _quiet():
        torch.onnx.export(
            graph, tuple(example.named()[name] for name in graph.names), str(part), input_names=list(graph.names),
            output_names=list(OUTPUTS), opset_version=OPSET, dynamo=True, external_data=False,
            dynamic_shapes={"given": tuple({0: batch} for _ in graph.names)},
        )  # fmt: skip
    return Path(path)


def value_inputs(batch: Batch, num_candidates: int) -> dict[str, np.ndarray]:
    """A batch as the exported graph takes it: every list padded to its N."""
    missing = num_candidates - batch.present.shape[1]
    found = {}
    for name, tensor in TensorBatch.of(batch).named().items():
        if name not in OF_RULES:
            array = tensor.numpy()
            lists = 0 if name in OF_REQUESTS else 2 if name == "pair_features" else 1
            widths = [(0, missing if 1 <= axis <= lists else 0) for axis in range(array.ndim)]
            found[name] = np.pad(array, widths)
    return found


@contextlib.contextmanager
def _quiet() -> Any:
    """The exporter tells of its progress, and of packages that nobody needs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
