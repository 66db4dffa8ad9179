"""The authors' files read exactly as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactk.data.audit import stats
from exactk.data.sources import RELEASES, build_published
from exactk.errors import DataError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "exactk-published"

TINY = {
    "item_ids.txt": "1\n2\n3\n4\n5\n6\n",
    "user_ids.txt": "7\n8\n",
    "rerank_data_train.txt": "7\t3,1\t1,2,3,4\n8\t2,4\t4,3,2,5\n",
    "rerank_data_test.txt": "7\t6,5\t6,5,1,2\n",
    "dis_data_train.txt": "7\t3,1\t1\n7\t2,4\t0\n8\t2,4\t1\n8\t5,2\t0\n",
    "dis_data_test.txt": "7\t6,5\t1\n7\t1,2\t0\n",
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = tmp_path / "authors"
    folder.mkdir()
    for name, text in TINY.items():
        (folder / name).write_text(text)
    return folder


def test_each_sample_becomes_a_clicked_card_and_an_unclicked_one(tiny: Path, tmp_path: Path) -> None:
    rows = build_published(tmp_path / "log", tiny).impressions().to_pylist()
    assert rows[2] == {
        "request_id": "train-1", "user_id": 8, "candidates": [4, 3, 2, 5], "card": [2, 4],
        "clicked": True, "clicked_item": 2, "split": "train",
    }  # fmt: skip
    assert rows[3] == rows[2] | {"card": [5, 2], "clicked": False, "clicked_item": None}
    assert [row["request_id"] for row in rows] == ["train-0"] * 2 + ["train-1"] * 2 + ["test-0"] * 2


def test_files_that_are_not_the_authors_are_named_in_the_provenance(tiny: Path, tmp_path: Path) -> None:
    provenance = build_published(tmp_path / "log", tiny).meta.provenance
    assert provenance["altered_files"] == sorted(TINY)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("rerank_data_train.txt", "7\t3,1\n", "line 1 has 2 tab-separated fields, not 3"),
        ("rerank_data_train.txt", "7\t3,x\t1,2,3\n", "line 1: .*'x'"),
        (
            "dis_data_train.txt",
            TINY["dis_data_train.txt"].replace("2,4\t0", "2,4\t1"),
            "line 2 is not the card",
        ),
        ("dis_data_train.txt", TINY["dis_data_train.txt"].replace("3,1", "1,3"), "line 1 is not the card of"),
        ("dis_data_train.txt", TINY["dis_data_train.txt"] + "7\t1,2\t0\n", "5 cards, 4 were expected"),
        ("dis_data_test.txt", "7\t6,5\t1\n", "line 2 is not the card"),
    ],
)
def test_files_that_do_not_fit_together_are_refused_by_line(
    tiny: Path, tmp_path: Path, file: str, text: str, message: str
) -> None:
    (tiny / file).write_text(text)
    with pytest.raises(DataError, match=message):
        build_published(tmp_path / "log", tiny)
    assert not (tmp_path / "log").exists()


def test_missing_files_and_unknown_releases_are_named(tiny: Path, tmp_path: Path) -> None:
    (tiny / "dis_data_test.txt").unlink()
    with pytest.raises(DataError, match=r"dis_data_test\.txt missing"):
        build_published(tmp_path / "log", tiny)
    with pytest.raises(DataError, match="none of the authors' files"):
        build_published(tmp_path / "log", tmp_path)
    with pytest.raises(DataError, match="choose k4-n20 or k10-n50"):
        build_published(tmp_path / "log", tiny, "k5-n30")


@pytest.mark.parametrize(
    ("release", "train", "test"), [("k4-n20", 16_015, 4_003), ("k10-n50", 13_279, 3_319)]
)
def test_the_published_sets_have_the_sizes_of_the_papers_table(
    tmp_path: Path, release: str, train: int, test: int
) -> None:
    if not SHARED.is_dir():
        pytest.skip("the authors' files are not on this machine")
    dataset = build_published(tmp_path / "log", SHARED, release)
    assert dataset.meta.provenance["altered_files"] == []
    recorded = stats(dataset)
    assert recorded["recorded_split"] == {"train": 2 * train, "valid": 0, "test": 2 * test}
    compared = recorded["paper"]
    assert {name for name, entry in compared.items() if entry["equal"]} >= {"users", "cards", "items"}
    # The paper's table says 33198 samples for K=10, its own files hold 33196.
    assert compared["samples"]["here"] == 2 * (train + test)
    assert compared["samples"]["paper"] == RELEASES[release].paper["samples"]
    positives, _, held_out = (part.demonstrations() for part in dataset.split())
    assert len(held_out) == test
    assert len(positives) == round(0.9 * train)
