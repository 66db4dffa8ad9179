"""The GPU kernels, run by Triton's interpreter: the same cards as the model, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from exactk.bench.made import made_policy
from exactk.config import PolicyConfig
from exactk.engine.cuda import CudaDecoder
from exactk.errors import ConfigError

CODE = """
import torch
from exactk.bench.made import made_batch, made_policy
from exactk.config import PolicyConfig
from exactk.engine.cuda import CudaDecoder
from exactk.search import Feasible, beam

for config, N, K, density in ((PolicyConfig(), 20, 4, 0.97), (PolicyConfig(beam=2, decoder_layers=1), 35, 3, 0.95)):
    policy = made_policy(0, config)
    batch = made_batch(12, N, K, density, 1)
    batch = batch.rows(Feasible.of(batch).safe).rows(slice(0, 3))
    assert len(batch) == 3
    with torch.no_grad():
        wanted = beam(policy.steps(batch), Feasible.of(batch), config.beam).cards[:, 0]
    assert CudaDecoder(policy).recommend(batch).tolist() == wanted.tolist()
"""


def test_kernels_decode_as_the_model_does() -> None:
    pytest.importorskip("triton", reason="the GPU kernels need triton")
    told = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr[-2000:]


@pytest.mark.parametrize(
    ("settings", "named"),
    [(PolicyConfig(cell="gru"), "cell"), (PolicyConfig(beam=5), "beam"), (PolicyConfig(width=48), "width")],
    ids=["gru", "wide beam", "odd width"],
)
def test_a_network_the_kernels_do_not_know_is_refused_by_setting(settings: PolicyConfig, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        CudaDecoder(made_policy(0, settings))


def test_requests_that_need_more_than_masks_go_the_models_way() -> None:
    from exactk.bench.made import ruled_batch
    from exactk.search import Feasible, beam

    policy, batch = made_policy(0), ruled_batch(20, 15, 4, 3)
    with torch.no_grad():
        wanted = beam(policy.steps(batch), Feasible.of(batch), 3).cards[:, 0]
    assert torch.equal(CudaDecoder(policy).recommend(batch), wanted)
