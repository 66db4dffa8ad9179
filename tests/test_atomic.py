"""Files and folders of one user that others may read, and disks that fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from exactk.atomic import atomic_file, atomic_folder, check_place, write_text
from exactk.cli.output import kept_file
from exactk.data.dataset import Dataset
from exactk.errors import DataError, InputError
from exactk.learning import optimiser
from exactk.recommender import Recommender
from rival_logs import planted_log


@pytest.fixture(params=[0o022, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


def test_whatever_writes_a_file_it_may_be_read_by_whom_the_umask_lets_read(
    umask: int, tmp_path: Path
) -> None:
    with atomic_folder(tmp_path / "folder") as draft:
        save_file({"x": np.ones(1)}, draft / "private.safetensors")  # safetensors makes files of mode 600
        (draft / "plain").write_text("x")
    with atomic_file(tmp_path / "file") as draft:
        save_file({"x": np.ones(1)}, draft)
    optimiser.write_checkpoint(tmp_path / "run.safetensors", {"x": torch.ones(1)}, {})
    assert modes(tmp_path) == {0o666 & ~umask}
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_dataset_and_a_model_may_be_read_by_others(umask: int, tmp_path: Path) -> None:
    planted_log(tmp_path / "log", num=20)
    model = Recommender.load("tests/fixtures/model-1-pair_value")
    model.save(tmp_path / "model")
    assert modes(tmp_path) == {0o666 & ~umask}
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o777 & ~umask}


def test_a_disk_that_fails_is_said_with_the_place_and_leaves_what_stood_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "kept", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match="kept could not be written .*No space left"):
        write_text(tmp_path / "kept", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "old"


def test_a_place_below_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="could not be written"):
        write_text(tmp_path / "file" / "below", "x")
    with pytest.raises(DataError, match="could not be written"), atomic_folder(tmp_path / "file" / "below"):
        pass


def test_an_index_that_may_not_be_read_is_built_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    planted_log(tmp_path / "log", num=20)
    refused = str(tmp_path / "log" / ".index")
    real_access, real_mkdir = os.access, os.mkdir

    def forbid(path: object, *more: int, **others: object) -> None:
        if str(path).startswith(refused):
            raise PermissionError(13, "Permission denied")
        real_mkdir(path, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(
        os, "access", lambda path, mode: not str(path).startswith(refused) and real_access(path, mode)
    )
    monkeypatch.setattr(os, "mkdir", forbid)
    assert len(Dataset.open(tmp_path / "log")) > 0
    assert any((tmp_path / "cache").rglob("index.json"))
    monkeypatch.setenv("XDG_CACHE_HOME", refused)
    with pytest.raises(DataError, match="no place to keep the index .*Permission denied"):
        Dataset.open(tmp_path / "log")


def test_what_is_no_file_or_no_folder_is_never_replaced(tmp_path: Path) -> None:
    """As root, a rename over /dev/null would leave the machine without it."""
    pipe, file, folder = tmp_path / "pipe", tmp_path / "file", tmp_path / "folder"
    os.mkfifo(pipe)
    file.write_text("kept")
    folder.mkdir()
    for place in (pipe, folder):
        with pytest.raises(DataError, match="is not a file, so it is not overwritten"):
            write_text(place, "text")
    for place in (pipe, file):
        with (
            pytest.raises(DataError, match="is not a folder, so it is not overwritten"),
            atomic_folder(place),
        ):
            pass
    assert (pipe.is_fifo(), file.read_text(), folder.is_dir()) == (True, "kept", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "pipe"]
    with pytest.raises(DataError, match="/dev/stdout is not a file"):  # also where a file stands behind it
        check_place(Path("/dev/stdout"), "file", fits=True)


def test_a_link_is_followed_and_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "file").symlink_to("real file")
    with atomic_folder(tmp_path / "folder") as draft:
        (draft / "new").write_text("new")
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "real" / "new").read_text() == (tmp_path / "real file").read_text() == "new"
    assert (tmp_path / "folder").is_symlink()
    assert (tmp_path / "file").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "real", "real file"]


def test_links_that_lead_nowhere_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(DataError, match="could not be written"):
        write_text(tmp_path / "a", "text")
    with pytest.raises(DataError, match="could not be written"), atomic_folder(tmp_path / "a"):
        pass
    with pytest.raises(InputError, match="cannot be written"), kept_file(tmp_path / "a"):
        pass
    assert (tmp_path / "a").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_model_takes_the_place_of_a_model_alone(tmp_path: Path) -> None:
    """Training with the dataset's own folder as --out once left a model where the dataset had been."""
    planted_log(tmp_path / "log", num=20)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "config.json").write_text("mine")
    (tmp_path / "empty").mkdir()
    model = Recommender.load("tests/fixtures/model-1-pair_value")
    for place in ("log", "letters"):
        with pytest.raises(DataError, match=f"{place} exists and is not a model; it will not be overwritten"):
            model.save(tmp_path / place)
    assert len(Dataset.open(tmp_path / "log")) == 20
    for place in ("empty", "new", "new"):
        model.save(tmp_path / place)
        Recommender.load(tmp_path / place)
    with pytest.raises(DataError, match="exists and is not a dataset"):
        planted_log(tmp_path / "new", num=20)
