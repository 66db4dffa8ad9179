"""Downloads against a real server: resumed, checked, and refused in plain words."""

from __future__ import annotations

import hashlib
import socket
import zipfile
from pathlib import Path

import numpy as np
import pytest

from exactk.data.sources import COMMIT, RELEASES, build_published, download, movielens, unpack
from exactk.data.sources.movielens import fetch_movielens
from exactk.errors import DataError
from web import Behaviour, serving

CONTENT = np.random.default_rng(0).bytes(300_000)
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def web(tmp_path: Path) -> Behaviour:
    root = tmp_path / "www"
    root.mkdir()
    (root / "file.bin").write_bytes(CONTENT)
    return Behaviour(root)


def test_a_file_arrives_whole_and_progress_rises_to_its_size(web: Behaviour, tmp_path: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    with serving(web) as address:
        path = download(
            f"{address}/file.bin", tmp_path / "got.bin", CHECKSUM, lambda n, of: heard.append((n, of))
        )
    assert path.read_bytes() == CONTENT
    assert heard[-1] == (300_000, 300_000)
    assert [n for n, _ in heard] == sorted(n for n, _ in heard)
    assert not path.with_name("got.bin.part").exists()


def test_md5_sums_serve_too(web: Behaviour, tmp_path: Path) -> None:
    with serving(web) as address:
        checksum = "md5:" + hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
        assert download(f"{address}/file.bin", tmp_path / "got.bin", checksum).read_bytes() == CONTENT


def test_a_broken_download_resumes_where_it_stopped(web: Behaviour, tmp_path: Path) -> None:
    web.break_after = 100_000
    with serving(web) as address:
        path = download(f"{address}/file.bin", tmp_path / "got.bin", CHECKSUM)
    assert path.read_bytes() == CONTENT
    assert [wanted for _, wanted in web.asked] == [None, "bytes=100000-", "bytes=200000-"]


def test_what_arrived_survives_giving_up_and_the_next_call_goes_on(web: Behaviour, tmp_path: Path) -> None:
    web.break_after = 50_000
    with serving(web) as address:
        with pytest.raises(DataError, match="broke off after 100,000 bytes, 2 times; run again"):
            download(f"{address}/file.bin", tmp_path / "got.bin", CHECKSUM, attempts=2)
        assert not (tmp_path / "got.bin").exists()
        web.break_after = None
        assert download(f"{address}/file.bin", tmp_path / "got.bin", CHECKSUM).read_bytes() == CONTENT
    assert web.asked[-1][1] == "bytes=100000-"


def test_a_server_without_ranges_starts_over(web: Behaviour, tmp_path: Path) -> None:
    web.ranges = False
    (tmp_path / "got.bin.part").write_bytes(b"something old")
    heard: list[int] = []
    with serving(web) as address:
        path = download(f"{address}/file.bin", tmp_path / "got.bin", CHECKSUM, lambda n, of: heard.append(n))
    assert path.read_bytes() == CONTENT
    assert heard[-1] == 300_000


def test_a_part_that_is_already_whole_is_taken(web: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "got.bin.part").write_bytes(CONTENT)
    with serving(web) as address:
        assert download(f"{address}/file.bin", tmp_path / "got.bin", CHECKSUM).read_bytes() == CONTENT


def test_a_file_that_is_there_is_not_fetched_again(web: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "got.bin").write_bytes(CONTENT)
    path = download("http://127.0.0.1:9/unreachable", tmp_path / "got.bin", CHECKSUM)
    assert path.read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_not_kept(web: Behaviour, tmp_path: Path) -> None:
    with serving(web) as address, pytest.raises(DataError, match="not the file it should be"):
        download(f"{address}/file.bin", tmp_path / "got.bin", "sha256:" + "0" * 64)
    assert list(tmp_path.glob("got*")) == []


def test_a_missing_file_is_reported_with_its_address(web: Behaviour, tmp_path: Path) -> None:
    with serving(web) as address, pytest.raises(DataError, match="answered 404"):
        download(f"{address}/nothing.zip", tmp_path / "got.zip", CHECKSUM)


def test_offline_the_message_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as free:  # bound but not listening: a port that refuses
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/ml-100k.zip"
        with pytest.raises(
            DataError, match=r"cannot reach 127\.0\.0\.1.*fetch .* elsewhere and give its path"
        ):
            download(url, tmp_path / "got.zip", CHECKSUM, attempts=1)


def test_a_place_that_cannot_be_written_is_not_taken_for_a_server_out_of_reach(
    web: Behaviour, tmp_path: Path
) -> None:
    (tmp_path / "got.zip.part").mkdir()
    with serving(web) as address, pytest.raises(DataError, match=r"got\.zip could not be written"):
        download(f"{address}/file.bin", tmp_path / "got.zip", CHECKSUM)
    (tmp_path / "file").touch()
    with serving(web) as address, pytest.raises(DataError, match=r"got\.zip could not be written"):
        download(f"{address}/file.bin", tmp_path / "file" / "got.zip", CHECKSUM)


def test_an_archive_of_one_folder_unpacks_to_that_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ml-tiny/ratings.csv", "userId,movieId,rating,timestamp\n")
    folder = unpack(tmp_path / "a.zip", tmp_path / "a")
    assert folder == tmp_path / "a" / "ml-tiny"
    assert unpack(tmp_path / "a.zip", tmp_path / "a") == folder
    (tmp_path / "b.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:40])
    with pytest.raises(DataError, match="damaged"):
        unpack(tmp_path / "b.zip", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_movielens_is_fetched_checked_and_unpacked_once(
    web: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(web.root / "ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t1\t5\t0\n")
    digest = hashlib.md5((web.root / "ml-100k.zip").read_bytes(), usedforsecurity=False).hexdigest()
    with serving(web) as address:
        with pytest.raises(
            DataError, match="not the file it should be"
        ):  # a made-up archive is not GroupLens's
            fetch_movielens("ml-100k", tmp_path / "cache", address)
        monkeypatch.setitem(movielens.CHECKSUMS, "ml-100k", f"md5:{digest}")
        folder = fetch_movielens("ml-100k", tmp_path / "cache", address)
        asked = len(web.asked)
        assert fetch_movielens("ml-100k", tmp_path / "cache", address) == folder
    assert (folder / "u.data").is_file()
    assert len(web.asked) == asked
    with pytest.raises(DataError, match="choose ml-100k, ml-1m, ml-10m, ml-25m"):
        fetch_movielens("ml-20m", tmp_path)


def test_the_published_files_are_fetched_from_the_pinned_commit(web: Behaviour, tmp_path: Path) -> None:
    shared = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "exactk-published" / "k4-n20"
    if not shared.is_dir():
        pytest.skip("the authors' files are not on this machine")
    home = web.root / COMMIT / "data" / "ml100k"
    home.mkdir(parents=True)
    for name in RELEASES["k4-n20"].sha256:
        (home / name).symlink_to(shared / name)
    with serving(web) as address:
        dataset = build_published(
            tmp_path / "log", release="k4-n20", repository=address, cache=tmp_path / "cache"
        )
    assert len(dataset) == 40_036
    assert dataset.meta.provenance["altered_files"] == []
