"""The exported graph decodes as PyTorch does, in onnxruntime, for any batch and number of candidates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from exactk.errors import ConfigError
from exactk.learning.onnx import CardGraph, export_onnx, onnx_inputs
from exactk.models.policy import Policy
from exactk.problem.graph import is_valid_card
from exactk.search import Feasible, beam
from exactk.settings.config import InputSizes, PolicyConfig
from exactk.tensors import TensorBatch
from exactk_lab.bench.engine.made import made_batch, made_policy, ruled_batch

onnxruntime = pytest.importorskip("onnxruntime", reason="the export is checked with onnxruntime")
# So many items that none comes twice in a request: equal items tie, and sums in another order break ties otherwise.
SMALL = InputSizes(num_users=50, num_items=100_000)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Path]:
    policy = made_policy(0, PolicyConfig(), SMALL)
    return policy, export_onnx(policy, tmp_path_factory.mktemp("onnx") / "cards.onnx", card_size=4)


def run(path: Path, policy: Policy, batch: TensorBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    card, log_prob, found = session.run(["card", "log_prob", "found"], onnx_inputs(policy, batch))
    return torch.from_numpy(card), torch.from_numpy(log_prob), torch.from_numpy(found)


def safe(batch: TensorBatch) -> TensorBatch:
    return batch.rows(Feasible.of(batch).safe)


@pytest.mark.parametrize(
    ("num", "num_candidates", "density"), [(1, 50, 0.98), (1500, 20, 0.96), (700, 37, 0.95)]
)
def test_cards_and_their_probability_are_pytorchs(
    exported: tuple[Policy, Path], num: int, num_candidates: int, density: float
) -> None:
    policy, path = exported
    batch = safe(made_batch(num, num_candidates, 4, density, 7, SMALL))
    assert len(batch) > num // 2
    with torch.no_grad():
        wanted = beam(policy.steps(batch), Feasible.of(batch), 3)
    card, log_prob, found = run(path, policy, batch)
    assert found.all()
    assert torch.equal(card, wanted.cards[:, 0])
    torch.testing.assert_close(log_prob, wanted.log_prob[:, 0], atol=1e-4, rtol=1e-4)


def test_absent_candidates_are_left_out_and_found_cards_are_valid(exported: tuple[Policy, Path]) -> None:
    policy, path = exported
    ruled = ruled_batch(300, 15, 4, 5, SMALL)
    plain = (ruled.card_size == 4) & ~ruled.pinned.any(1) & (ruled.cap[:, 0] == 4)
    batch = ruled.rows(plain)
    card, _, found = run(path, policy, batch)
    assert 0.5 < found.double().mean() <= 1
    requests = batch.requests()
    for b in found.nonzero().squeeze(1).tolist():
        assert is_valid_card(requests, b, card[b].numpy())


@pytest.mark.parametrize(
    "settings",
    [{"affinity": 4}, {"beam": 1}, {"beam": 9, "attention": "qkv"}, {"inputs": "features"}],
    ids=str,
)
@torch.no_grad()
def test_the_graph_is_the_models_for_other_networks(settings: dict[str, Any]) -> None:
    sizes = InputSizes(num_users=50, num_items=100_000, user_feature_size=3, item_feature_size=2)
    policy = made_policy(1, PolicyConfig(**settings), sizes)
    plain = made_batch(30, 5, 3, 1.0, 0, SMALL)
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    generator = torch.Generator().manual_seed(0)
    fields["user_features"] = torch.randn(30, 3, generator=generator)
    fields["item_features"] = torch.randn(30, 5, 2, generator=generator)
    batch = TensorBatch(**fields)
    graph = CardGraph(policy, 3)
    card, _, _ = graph(*(getattr(batch, name) for name in graph.names))
    wanted = beam(policy.steps(batch), Feasible.of(batch), policy.config.beam).cards[:, 0]
    assert torch.equal(card, wanted)


def test_the_example_needs_nothing_but_the_file(exported: tuple[Policy, Path]) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "onnx_cards.py"
    code = f"import sys; sys.modules['torch'] = None; sys.argv = ['x', {str(exported[1])!r}]; " + (
        f"exec(open({str(example)!r}).read())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.count("positions") == 3
    for line in told.splitlines():
        chosen = eval(line.split("positions ")[1].split("]")[0] + "]")
        assert len(set(chosen)) == 4
        assert not {0, 1} <= set(chosen)


def test_a_policy_alone_must_be_told_the_card_size(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="card_size"):
        export_onnx(made_policy(0, PolicyConfig(), SMALL), tmp_path / "x.onnx")
