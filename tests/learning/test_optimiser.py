"""Checkpoints: whole or not at all, and nothing lost on the way."""

from pathlib import Path

import pytest
import torch

from exactk.errors import DataError
from exactk.learning import optimiser


def test_what_was_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = {
        "a/x": torch.tensor([1.5, -0.0, torch.inf]),
        "a/y": torch.arange(4).reshape(2, 2).T,
        "b/x": torch.ones(()),
    }
    optimiser.write_checkpoint(
        tmp_path / "run.safetensors", tensors, {"step": 7, "score": 0.1 + 0.2, "name": "ü"}
    )
    saved = optimiser.read_checkpoint(tmp_path / "run.safetensors")
    assert saved.facts == {"step": 7, "score": 0.1 + 0.2, "name": "ü"}
    assert set(saved.part("a")) == {"x", "y"}
    assert saved.part("a")["y"].tolist() == [[0, 2], [1, 3]]
    assert saved.part("a")["x"].view(torch.int32).tolist() == tensors["a/x"].view(torch.int32).tolist()


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    optimiser.write_checkpoint(path, {"x": torch.arange(1000)}, {})
    whole = path.read_bytes()
    for length in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="damaged"):
            optimiser.read_checkpoint(path)


def test_a_missing_file_and_a_later_format_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(DataError, match="no such checkpoint"):
        optimiser.read_checkpoint(path)
    optimiser.write_checkpoint(path, {"x": torch.ones(1)}, {})
    path.write_bytes(path.read_bytes().replace(b'"format":"1"', b'"format":"9"'))
    with pytest.raises(DataError, match="format '9'"):
        optimiser.read_checkpoint(path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.safetensors"
    optimiser.write_checkpoint(path, {"x": torch.zeros(1)}, {"step": 1})

    def no_space(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(DataError, match="no space"):
        optimiser.write_checkpoint(path, {"x": torch.ones(1)}, {"step": 2})
    assert optimiser.read_checkpoint(path).facts["step"] == 1


def test_an_optimiser_given_its_memory_back_steps_alike() -> None:
    def make() -> tuple[torch.nn.Linear, torch.optim.AdamW]:
        layer = torch.nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.arange(6).reshape(2, 3) / 10)
            layer.bias.zero_()
        return layer, torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)

    def step(layer: torch.nn.Linear, optimiser: torch.optim.AdamW, number: int) -> None:
        optimiser.zero_grad()
        (layer(torch.full((1, 3), float(number))) ** 2).sum().backward()
        optimiser.step()

    straight, first = make()
    for number in range(6):
        step(straight, first, number)
    half, second = make()
    for number in range(3):
        step(half, second, number)
    resumed, third = make()
    resumed.load_state_dict(half.state_dict())
    memory = {name: t.clone() for name, t in optimiser.optimiser_tensors(second).items()}
    optimiser.restore_optimiser(third, memory)
    for number in range(3, 6):
        step(resumed, third, number)
    assert torch.equal(straight.weight, resumed.weight)
    assert torch.equal(straight.bias, resumed.bias)
