"""The GPU kernels, run by Triton's interpreter: the same cards as the model, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from exactk.bench.made import made_batch, made_policy, ruled_batch
from exactk.config import PolicyConfig
from exactk.engine.cuda import CudaDecoder, largest_input
from exactk.errors import ConfigError
from exactk.search import Feasible, beam

CODE = """
from dataclasses import replace

import torch
from exactk.bench.made import made_batch, made_policy
from exactk.config import PolicyConfig
from exactk.engine.cuda import CudaDecoder
from exactk.search import Feasible, beam

for config, N, K, density in (
    (PolicyConfig(), 20, 4, 0.97),
    (PolicyConfig(beam=2, decoder_layers=1, encoder_layers=1), 35, 3, 0.95),
    (PolicyConfig(beam=4), 4, 2, 1.0),  # fewer cards begun than the beam is wide
):
    policy = made_policy(0, config)
    batch = made_batch(12, N, K, density, 1)
    batch = replace(batch, present=torch.arange(N) < N - torch.arange(12)[:, None] % 4)  # fewer in some
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
    policy, batch = made_policy(0), ruled_batch(20, 15, 4, 3)
    with torch.no_grad():
        wanted = beam(policy.steps(batch), Feasible.of(batch), 3).cards[:, 0]
    assert torch.equal(CudaDecoder(policy).recommend(batch), wanted)


def test_numbers_beyond_float16_go_the_models_way() -> None:
    policy, batch = made_policy(0), made_batch(4, 20, 4, 1.0, 1)
    assert CudaDecoder(policy).known
    with torch.no_grad():
        policy.inputs.item_weight.weight *= 1e6
        wanted = beam(policy.steps(batch), Feasible.of(batch), 3).cards[:, 0]
    decoder = CudaDecoder(policy)
    assert not decoder.known
    assert torch.equal(decoder.recommend(batch), wanted)


def test_the_largest_input_is_what_the_first_products_can_hold() -> None:
    policy = made_policy(0)
    with torch.no_grad():
        for parameter in policy.encoder.embed.parameters():
            parameter.zero_()
        policy.encoder.embed.weight[0, 0] = 3.0
        layers: Any = policy.encoder.layers
        layers[0].attention.project.weight.zero_()
        layers[0].attention.project.weight[0, 0] = 2.0
        assert largest_input(policy) == pytest.approx(60_000 / 2 / 3)
        layers[1].widen.weight[0] = 1e5  # in any case too large
        assert largest_input(policy) < 0


HOPPER = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from exactk.engine import cuda
from exactk.engine.triton_decode import choose_kernel
from exactk.engine.triton_encode import encode_kernel


def compiled(kernel, pointers, sizes, **options):
    kinds = {name: "constexpr" if name in sizes else pointers.get(name, "i32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in sizes.items()}
    return triton.compile(ASTSource(kernel, kinds, places), target=GPUTarget("cuda", 90, 32), options=options).asm


floats = dict.fromkeys(("item_table", "user_table", "weights", "encoded", "queries", "totals", "margins"), "*fp32")
longs = dict.fromkeys(("item_index", "user_index", "opened", "chosen_sets", "cards"), "*i64")
others = {"split": "*fp16", "links": "*i32", "present_mask": "*i1", "graph": "*i1"}
pointers = {**floats, **longs, **others}
encode = compiled(
    encode_kernel, pointers, dict(NP=64, D=32, H=2, FF=32, L=2, POINTER=9632),
    num_warps=cuda.ENCODER_WARPS, num_stages=1,
)
choose = compiled(
    choose_kernel, pointers, dict(NP=64, D=32, K=4, W=3, POINTER=9632, FIRST=False, LAST=False, FAST=True),
    num_warps=cuda.CHOICE_WARPS, maxnreg=cuda.CHOICE_REGISTERS,
)
assert "mma.sync" in encode["ptx"]
assert "wgmma" not in encode["ptx"], "its reads leave the shared memory"
assert "tt.reduce" in choose["ttgir"]
assert "allow_reorder" not in choose["ttgir"], "an index after a reordered reshape names the wrong place"
"""


def test_compiled_for_hopper_the_kernels_avoid_what_triton_gets_wrong() -> None:
    pytest.importorskip("triton", reason="the GPU kernels need triton")
    told = subprocess.run([sys.executable, "-c", HOPPER], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr[-2000:]
