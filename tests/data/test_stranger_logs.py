"""Logs of other teams, read with no setting: every column is what it is, or is named with the reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exactk.data import Dataset
from exactk.data.audit.audit import audit
from exactk.data.logs.draft import draft_of_files
from exactk.data.logs.frame import build_frame, from_frame
from exactk.data.logs.report import ReadReport
from exactk.data.roles import Columns
from exactk.scale.building import Reading, build_parts
from stranger_logs import KINDS, StrangerLog


def build(log: StrangerLog, folder: Path, columns: Any, out: str) -> ReadReport:
    path, items = log.write(folder)
    if path.is_file():
        return build_frame(folder / out, path, columns, items=items)
    return build_parts(folder / out, path, Reading(str(folder / f".{out}"), columns), items=items)


@pytest.fixture(scope="module", params=KINDS)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[StrangerLog, Path, dict[str, Any]]:
    """A log, its folder and what the build said."""
    log = KINDS[request.param](requests=150)
    folder = tmp_path_factory.mktemp(request.param)
    return log, folder, build(log, folder, {}, "data").to_dict()


def test_roles_are_found_and_what_came_afterwards_is_no_feature(
    built: tuple[StrangerLog, Path, dict[str, Any]],
) -> None:
    log, _, said = built
    roles = {ours: names[0] for ours, names in said["used"].items() if len(names) == 1 and ours in log.roles}
    assert roles == log.roles
    assert log.ignored <= set(said["ignored"])
    for use, names in log.features.items():
        assert names <= set(said["used"].get(use, ())), (use, said["used"])


def test_every_column_and_row_was_used_or_is_named(built: tuple[StrangerLog, Path, dict[str, Any]]) -> None:
    log, _, said = built
    used = {name for names in said["used"].values() for name in names}
    assert set(log.log.column_names) <= used | set(said["ignored"])
    assert said["rows_read"] == len(log.log)
    assert said["rows_dropped"] == 0


def test_the_draft_builds_what_was_guessed(built: tuple[StrangerLog, Path, dict[str, Any]]) -> None:
    log, folder, _ = built
    path, items = log.write(folder)
    (folder / "columns.toml").write_text(draft_of_files(path, items, None, {}).text())
    build(log, folder, Columns.load(folder / "columns.toml"), "by-draft")
    one, two = (Dataset.open(folder / name) for name in ("data", "by-draft"))
    assert one.folder.columns == two.folder.columns
    first, second = (vars(each.batch(each.vocabulary())) for each in (one, two))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def test_its_splits_are_by_time_where_it_is_dated_and_it_can_be_audited(
    built: tuple[StrangerLog, Path, dict[str, Any]],
) -> None:
    log, folder, _ = built
    dataset = Dataset.open(folder / "data")
    assert dataset.signal.names
    train, _, test = (part.folder.index.timestamp[part.rows] for part in dataset.split())
    assert (train.max() < test.min()) == ("timestamp" in log.roles)
    found = audit(dataset)
    assert not any("nothing to learn" in line or line.startswith("LEAK") for line in found["verdict"])


def test_a_log_without_users_trains_what_an_unknown_user_is_served() -> None:
    graded = KINDS["graded"](requests=60)
    dataset = from_frame(graded.log)
    assert len(dataset.vocabulary().user_ids) == 0
    assert (dataset.batch(dataset.vocabulary()).user == 0).all()


@pytest.mark.parametrize(
    ("values", "same"),
    [
        (["Y", "N", "y", " n "], [True, False, True, False]),
        (["true", "FALSE", "True", "false"], [True, False, True, False]),
        ([1.0, 0.0, 1.0, 0.0], [True, False, True, False]),
        (["1", "0", "1", "0"], [True, False, True, False]),
    ],
)
def test_flags_may_be_words(values: list[Any], same: list[bool]) -> None:
    log = {"request_id": [1, 1, 2, 2], "user_id": [1, 1, 1, 1], "item_id": [1, 2, 1, 2], "clicked": values}
    dataset = from_frame(pa.table(log), {"k": 1})
    batch = dataset.batch(dataset.vocabulary())
    assert batch.clicks is not None
    assert (batch.clicks.ravel() > 0).tolist() == same
