"""A trained model as one ONNX graph: a policy's whole decode, or the scores and pair scores of a learned value.

Knows no rules but graph and presence of a policy's step: what caps, pins and briefs ask is for `exactk.solve` to keep.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from exactk.atomic import atomic_file
from exactk.data.requests import Request
from exactk.errors import ConfigError
from exactk.learning.phases import Models
from exactk.models.gattn import EncodedRequests, State
from exactk.models.pairvalue import SearchableValue
from exactk.models.policy import Policy
from exactk.problem.batch import CANDIDATE_AXES, Batch
from exactk.search.decoding import log_probabilities
from exactk.tensors import Facts, TensorBatch

OPSET = 18


class BegunCards(NamedTuple):
    """Cards begun: rows [B, W, ...], likeliest first; a row whose total is -inf stands for none."""

    total: Tensor  # B W
    open: Tensor  # B W N
    chosen: Tensor  # B W N
    cards: Tensor  # B W t


class CardGraph(nn.Module):
    """Cards of `card_size` by beam search, written without loops over data so that it can be exported.

    Equal to `search.beam` on requests in which no choice is a dead end. Elsewhere a position is open only if it has
    enough open neighbours left, which is exact for the last two choices.
    """

    def __init__(self, policy: Policy, card_size: int) -> None:
        super().__init__()
        self.policy = policy
        self.card_size = card_size
        self.names = input_names(policy)

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(card [B, K] in order of choice, log_prob [B], found [B]) of inputs in the order of `names`."""
        named = dict(zip(self.names, given, strict=True))
        present, graph = named["present"], named["graph"]
        N = graph.shape[2]
        places = torch.arange(N, device=graph.device)
        graph = graph & (places.unsqueeze(0) != places.unsqueeze(1))
        encoded = self.encoded(named)
        pointer = self.policy.pointer
        zero = torch.zeros_like(encoded.nodes[:, :1, :]).unsqueeze(2).repeat(1, 1, pointer.num_layers, 1)
        state = self.advance(torch.zeros_like(encoded.nodes[:, :1, :]), State(zero, zero))
        beams = BegunCards(
            torch.zeros_like(encoded.nodes[:, :1, 0]),
            present.unsqueeze(1),
            torch.zeros_like(present).unsqueeze(1),
            torch.zeros_like(graph[:, :1, :0], dtype=torch.int64),
        )
        for t in range(self.card_size):
            final = t + 1 == self.card_size
            width = 1 if final else self.policy.config.beam
            beams, parent, place = self.best(beams, encoded, state, graph, t, width)
            if not final:
                kept = State(
                    *(take(part.flatten(2), parent).reshape(*parent.shape, *part.shape[2:]) for part in state)
                )
                state = self.advance(take(encoded.nodes, place), kept)
        return beams.cards[:, 0], beams.total[:, 0], beams.total[:, 0] > -torch.inf

    def encoded(self, named: dict[str, Tensor]) -> EncodedRequests:
        """Input layer and encoder (eq. 4 to 8); what steers Python is given, so that nothing is read from the data."""
        present, nothing = named["present"], named["present"].long()
        rules = {
            "card_size": nothing[:, 0],
            "pinned": present,
            "group": nothing[:, None][:, :0],
            "cap": nothing[:, :0],
        }
        given: dict[str, Any] = {"user": nothing[:, 0], "item": nothing, **rules, **named}
        return self.policy.encode(TensorBatch(**given, facts=Facts(longest=self.card_size)))

    def best(
        self, beams: BegunCards, encoded: EncodedRequests, state: State, graph: Tensor, t: int, width: int
    ) -> tuple[BegunCards, Tensor, Tensor]:
        """`width` likeliest expansions, distinct sets first, then further orders; beside them parents and places."""
        neighbours = beams.open.float() @ graph.float()  # B W N
        allowed = beams.open & (neighbours >= self.card_size - t - 1)
        scores = self.policy.pointer.point(encoded, state.hidden[:, :, -1])
        worth = beams.total.unsqueeze(2) + log_probabilities(scores, allowed)  # B W N
        again = torch.full_like(worth, -torch.inf)
        places = torch.arange(worth.shape[2], device=worth.device)
        rows = torch.arange(worth.shape[1], device=worth.device)
        taken = []
        for _ in range(width):
            none = worth.amax((1, 2)) == -torch.inf  # all sets are taken: further orders of them
            best, at = again.where(none[:, None, None], worth).max(2)  # B W
            best, parent = best.max(1)
            place = at.gather(1, parent.unsqueeze(1)).squeeze(1)
            picked = places == place.unsqueeze(1)  # B N
            chosen = take(beams.chosen, parent.unsqueeze(1))[:, 0] | picked
            # A row reaches this set at the one position it lacks, if it lacks but one.
            lacking = chosen.unsqueeze(1) & ~beams.chosen  # B W N
            repeated = lacking & (lacking.long().sum(2, keepdim=True) == 1)
            itself = (rows == parent.unsqueeze(1)).unsqueeze(2) & picked.unsqueeze(1)
            again = torch.where(repeated, worth, again).maximum(again).masked_fill(itself, -torch.inf)
            worth = worth.masked_fill(repeated, -torch.inf)
            taken.append((best, parent, place, chosen))
        total, parent, place, chosen = (torch.stack(parts, 1) for parts in zip(*taken, strict=True))
        cards = torch.cat([take(beams.cards, parent), place.unsqueeze(2)], 2)
        return BegunCards(total, take(beams.open, parent) & take(graph, place), chosen, cards), parent, place

    def advance(self, below: Tensor, state: State) -> State:
        """The recurrent cells, gate by gate: the fused cells of torch have no ONNX counterpart."""
        pointer, hidden, cell = self.policy.pointer, [], []
        for layer, weights in enumerate(pointer.recurrent.all_weights):
            before, kept = state.hidden[:, :, layer], state.cell[:, :, layer]
            from_input = nn.functional.linear(below, weights[0], weights[2])
            from_hidden = nn.functional.linear(before, weights[1], weights[3])
            i, f, g, o = (from_input + from_hidden).chunk(4, -1)
            kept = f.sigmoid() * kept + i.sigmoid() * g.tanh()
            below = o.sigmoid() * kept.tanh()
            hidden.append(below)
            cell.append(kept)
        return State(torch.stack(hidden, 2), torch.stack(cell, 2))


def take(rows: Tensor, which: Tensor) -> Tensor:
    """rows[b, which[b, w]] for every b and w."""
    return rows.gather(1, which.unsqueeze(2).expand(-1, -1, rows.shape[2]))


def input_names(policy: Policy) -> tuple[str, ...]:
    """What the graph of this policy asks for, in order."""
    vectors = policy.inputs.vectors
    ids = ("user", "item") if vectors.items is not None else ()
    features = [name for name in ("user", "item") if getattr(vectors, f"{name}_feature_size")]
    return (*ids, *(f"{name}_features" for name in features), "present", "graph")


def onnx_inputs(policy: Policy, batch: TensorBatch) -> dict[str, np.ndarray]:
    """A batch as the exported graph takes it."""
    return {name: getattr(batch, name).numpy() for name in input_names(policy)}


def export_onnx(model: Any, path: Path | str, card_size: int | None = None) -> Path:
    """Write one file that decodes whole cards; `model` is a policy, or a fitted recommender that has one.

    Inputs: ids or features as the model reads them, present [B, N], graph [B, N, N]. Outputs: card [B, K],
    log_prob [B], found [B] (False: the masks alone met a dead end).
    """
    policy, size = model, card_size
    if not isinstance(model, Policy):
        policy, size = (
            Models.of(model.fitted).policy,
            model.fitted.card_size if card_size is None else card_size,
        )
    if policy is None:
        raise ConfigError(
            "export_onnx writes what a policy does; this model has none: export_value writes what it weighs cards by"
        )
    if policy.guide is not None:
        raise ConfigError("ONNX export cannot write guided policies: train with policy.guided=false")
    if size is None:
        raise ConfigError("ONNX export writes cards of one size: give it as card_size")
    module = CardGraph(policy, size).eval()
    example = tuple(tensor.cpu() for tensor in example_inputs(policy, max(size + 2, 5)))
    axes = {name: {0: "batch"} for name in ("user", "user_features", "card", "log_prob", "found")}
    axes |= {name: {0: "batch", 1: "candidates"} for name in ("item", "item_features", "present")}
    axes["graph"] = {0: "batch", 1: "candidates", 2: "candidates"}
    outputs = ["card", "log_prob", "found"]
    with atomic_file(path) as part, torch.no_grad(), _quiet():
        # The older exporter traces this graph in seconds. What it warns of (sizes as constants) is meant.
        torch.onnx.export(
            module, example, str(part), input_names=list(module.names), output_names=outputs,
            dynamic_axes={name: axes[name] for name in (*module.names, *outputs)}, opset_version=OPSET, dynamo=False,
        )  # fmt: skip
    return Path(path)


def example_inputs(policy: Policy, num_candidates: int) -> list[Tensor]:
    """Two requests of the right shapes for tracing."""
    B, N, vectors = 2, num_candidates, policy.inputs.vectors
    tensors = {
        "user": torch.zeros(B, dtype=torch.long),
        "item": torch.zeros(B, N, dtype=torch.long),
        "user_features": torch.zeros(B, vectors.user_feature_size),
        "item_features": torch.zeros(B, N, vectors.item_feature_size),
        "present": torch.ones(B, N, dtype=torch.bool),
        "graph": torch.ones(B, N, N, dtype=torch.bool),
    }
    return [tensors[name] for name in input_names(policy)]


OUTPUTS = ("bias", "node", "pair")
OF_RULES = ("graph", "card_size", "pinned", "group", "cap", "tie_key")


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
        raise ConfigError(f"a graph needs at least 2 candidates, got {num_candidates}")
    fitted = recommender.fitted
    value = Models.of(fitted).value
    if not isinstance(value, SearchableValue) or fitted.config.pair_value.triples:
        raise ConfigError("ONNX export knows items and pairs only, and this model has pair_value.triples")
    as_id: Any = fitted.vocabulary.item_type or str
    request = Request(None, tuple(map(as_id, range(num_candidates))), 1)
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
    found = {name: t.numpy() for name, t in TensorBatch.of(batch).named().items() if name not in OF_RULES}
    for name, axes in CANDIDATE_AXES.items():
        if name in found:
            widths = [(0, missing * (axis in axes)) for axis in range(found[name].ndim)]
            found[name] = np.pad(found[name], widths)
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
