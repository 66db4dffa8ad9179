"""A log's own columns, from one row per shown candidate to the fields of a batch, and nothing lost on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.data import Dataset, Vocabulary
from exactk.data.audit import stats
from exactk.data.columns import ROLES, ROLLING, Columns, PairFeature
from exactk.data.logs.draft import draft_columns
from exactk.data.logs.frame import build_frame, from_frame
from exactk.data.sample import sample_log
from exactk.errors import ConfigError, DataError, InputError
from exactk.problem.batch import Batch
from exactk.problem.rules.constraints import Distinct

SAMPLE = sample_log(requests=120, seed=1)
COLUMNS = Columns.from_dict(
    {
        "roles": {name: name for name in ("request_id", "user_id", "item_id", "position", "score", "on_card", "clicked",
                                          "timestamp")} | {"reward": "dwell"},
        "candidate": {"numbers": ["price", "touches"], "categories": ["offer"]},
        "context": {"numbers": ["nights"], "categories": ["device"]},
        "item": {"numbers": ["usual_price"], "categories": ["maker"], "texts": ["title"]},
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_frame(
        SAMPLE.rows, COLUMNS, items=SAMPLE.items, path=tmp_path_factory.mktemp("columns") / "log"
    )


def whole(dataset: Dataset) -> tuple[Batch, Vocabulary]:
    vocabulary = dataset.vocabulary()
    return dataset.batch(vocabulary), vocabulary


def flat(batch: Batch, values: np.ndarray | None) -> np.ndarray:
    """The values of real candidates end to end, as the rows of the log stand."""
    assert values is not None
    return np.asarray(values[batch.present])


def decoded(codes: np.ndarray, values: pa.Array) -> list[str | None]:
    names = [None, *values.to_pylist()]
    return [names[code] for code in codes.tolist()]


def test_every_column_of_the_log_comes_out_of_its_batches(dataset: Dataset) -> None:
    batch, vocabulary = whole(dataset)
    fitted, rows = vocabulary.columns, SAMPLE.rows.to_pydict()
    assert fitted.candidate_numbers.names == (
        "price",
        "touches",
        "clicks_so_far",
        "shown_so_far",
        "rate_so_far",
    )
    numbers = flat(batch, batch.candidate_numbers)
    np.testing.assert_array_equal(numbers[:, 0], np.array(rows["price"], np.float32))
    np.testing.assert_array_equal(numbers[:, 1], np.array(rows["touches"], np.float32))
    codes = flat(batch, batch.candidate_categories)[:, 0]
    assert decoded(codes, fitted.candidate_categories.values[0]) == rows["offer"]
    np.testing.assert_array_equal(flat(batch, batch.position), np.array(rows["position"], np.float32))
    np.testing.assert_array_equal(flat(batch, batch.score), np.array(rows["score"], np.float32))
    np.testing.assert_array_equal(flat(batch, batch.reward), np.array(rows["dwell"], np.float32))
    np.testing.assert_array_equal(flat(batch, batch.clicks) > 0, rows["clicked"])
    assert np.isnan(batch.candidate_numbers[~batch.present]).all()  # type: ignore[index]
    first = np.unique(rows["request_id"], return_index=True)[1]
    by_request = [rows["device"][place] for place in np.sort(first)]
    assert decoded(batch.context_categories[:, 0], fitted.context_categories.values[0]) == by_request  # type: ignore[index]
    assert batch.context_numbers[:, 0].tolist() == [rows["nights"][place] for place in np.sort(first)]  # type: ignore[index]
    makers = dict(zip(SAMPLE.items["item_id"].to_pylist(), SAMPLE.items["maker"].to_pylist(), strict=True))
    found = decoded(flat(batch, batch.item_categories)[:, 0], fitted.item_categories.values[0])
    assert found == [makers[item] for item in rows["item_id"]]


def test_a_batch_says_what_the_external_rows_say_in_any_order(dataset: Dataset) -> None:
    batch, vocabulary = whole(dataset)
    places = np.array([7, 3, 90])
    some = dataset.batch(vocabulary, places)
    for name in ("candidate_numbers", "candidate_categories", "item_vectors", "clicks", "score"):
        held, all_of_them = getattr(some, name), getattr(batch, name)
        for b, place in enumerate(places.tolist()):
            size = int(some.present[b].sum())
            np.testing.assert_array_equal(held[b, :size], all_of_them[place, :size])


def test_a_draft_tells_roles_features_and_what_it_would_ignore() -> None:
    rows = SAMPLE.rows.append_column("row", pa.array(np.arange(len(SAMPLE.rows))))
    rows = rows.append_column("always", pa.array(["x"] * len(rows)))
    draft = draft_columns(rows, SAMPLE.items)
    columns = draft.columns
    assert columns.roles == {name: name for name in ("request_id", "user_id", "item_id", "on_card", "clicked", "score",
                                                     "position", "timestamp")} | {"reward": "dwell"}  # fmt: skip
    assert columns.candidate.numbers == ("price", "touches")
    assert columns.candidate.categories == ("offer",)
    assert (columns.context.numbers, columns.context.categories) == (("nights",), ("device",))
    assert (columns.item.texts, columns.item.categories) == (("title",), ("maker",))
    assert columns.item.numbers == ("usual_price",)
    reasons = {fact.column: fact.reason for fact in draft.facts if not fact.use}
    assert reasons == {"row": "its name says it is bookkeeping", "always": "it holds one value only"}
    price = next(fact for fact in draft.facts if fact.column == "price")
    assert price.missing == pytest.approx(np.isnan(SAMPLE.rows["price"].to_numpy()).mean())


def test_a_column_known_only_after_the_click_is_never_drafted_as_a_feature() -> None:
    clicked = SAMPLE.rows["clicked"].to_numpy(zero_copy_only=False)
    rows = SAMPLE.rows.append_column("booked_for", pa.array(np.where(clicked, 99.0, 0.0)))
    draft = draft_columns(rows)
    (fact,) = [fact for fact in draft.facts if fact.column == "booked_for"]
    assert fact.use == ""
    assert "outcome" in fact.reason


def test_a_columns_file_that_names_no_features_leaves_them_to_be_guessed() -> None:
    """`k = 3` and nothing else once built a log without a single feature."""
    rows = SAMPLE.rows.drop_columns(["on_card"])
    guessed = from_frame(rows, items=SAMPLE.items).folder.columns
    said = from_frame(rows, {"k": 3, "ignored": ["price"], "rolling": []}, items=SAMPLE.items)
    assert "price" in guessed.candidate.numbers
    assert said.meta.K == 3
    assert {*said.folder.columns.candidate.numbers} == {*guessed.candidate.numbers} - {"price"} - {*ROLLING}
    assert said.folder.columns.context == guessed.context
    assert said.folder.columns.item == guessed.item


def test_a_columns_file_that_names_a_feature_is_the_whole_of_it() -> None:
    said = from_frame(SAMPLE.rows, {"candidate": {"numbers": ["price"]}, "rolling": []}, items=SAMPLE.items)
    assert said.folder.columns.candidate.names == ("price",)
    assert said.folder.columns.context.names == ()


def test_a_columns_file_reads_back_as_it_was_drafted(tmp_path: Path) -> None:
    columns = draft_columns(SAMPLE.rows, SAMPLE.items).columns
    (tmp_path / "columns.toml").write_text(columns.to_toml())
    assert Columns.load(tmp_path / "columns.toml") == columns


NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name not in ROLES
)
NAMES = st.lists(NAME, unique=True)


@given(names=NAMES, k=st.none() | st.integers(1, 9), data=st.data())
@settings(max_examples=60, deadline=None)
def test_columns_survive_their_plain_form_and_toml(
    names: list[str], k: int | None, data: st.DataObject
) -> None:
    import tomllib

    dealt = data.draw(st.lists(st.integers(0, 5), min_size=len(names), max_size=len(names)))
    parts: list[list[str]] = [
        [name for name, part in zip(names, dealt, strict=True) if part == n] for n in range(6)
    ]
    described: dict[str, Any] = {
        "candidate": {"numbers": parts[0], "categories": parts[1]}, "context": {"categories": parts[2]},
        "item": {"texts": parts[3], "categories": parts[4]}, "ignored": parts[5],
        "pair_features": [f"same:{name}" for name in parts[4]],
    }  # fmt: skip
    if k is not None:
        described["k"] = k
    columns = Columns.from_dict(described)
    assert Columns.from_dict(tomllib.loads(columns.to_toml())) == columns
    assert Columns.from_dict(columns.to_dict()) == columns


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"candidates": {}}, r"no entry 'candidates' .did you mean .candidate"),
        ({"roles": {"clickd": "c"}}, r"no role 'clickd' .did you mean .clicked"),
        ({"roles": {"score": "x", "position": "x"}}, "'x' has two roles"),
        ({"candidate": {"number": []}}, r"candidate has no 'number' .did you mean .numbers"),
        ({"candidate": {"numbers": "price"}}, "candidate.numbers must be a list"),
        ({"candidate": {"numbers": ["a"]}, "context": {"numbers": ["a"]}}, "'a' is named twice"),
        ({"context": {"categories": ["timestamp"]}}, "'timestamp' is the name of a role"),
        ({"pair_features": ["same"]}, "must be written"),
        ({"pair_features": ["near:title"]}, "no kind 'near'"),
        ({"pair_features": ["same:brand"]}, "'brand' is none"),
        ({"rolling": ["clicks"]}, "no count 'clicks'"),
        ({"k": 0}, "k must be a whole number"),
        ({"positives_only": 1}, "positives_only must be true or false"),
    ],
)
def test_mistakes_in_a_columns_file_name_the_place_and_what_would_be_right(
    described: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Columns.from_dict(described, "my.toml")
    assert str(caught.value).startswith("my.toml: ")


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    for carrier in ("candidate", "context", "item"):
        with pytest.raises(DataError, match=r"no column 'prise'.*price"):
            from_frame(SAMPLE.rows, {carrier: {"numbers": ["prise"]}}, path=tmp_path / "log")
    with pytest.raises(InputError, match="columns must be a mapping"):
        from_frame(SAMPLE.rows, 7, path=tmp_path / "log")
    with pytest.raises(DataError, match="row 0, column 'offer': 'sale' cannot be read as float"):
        from_frame(SAMPLE.rows.slice(0, 30).set_column(7, "offer", pa.array(["sale"] * 30)),
                   {"candidate": {"numbers": ["offer"]}}, path=tmp_path / "log")  # fmt: skip


def test_the_report_says_what_every_column_was_used_as_or_why_not(tmp_path: Path) -> None:
    rows = SAMPLE.rows.append_column("note", pa.array([f"seen {n}" for n in range(len(SAMPLE.rows))]))
    report = build_frame(tmp_path / "log", rows, items=SAMPLE.items).to_dict()
    used = {name for names in report["used"].values() for name in names}
    assert set(rows.column_names) <= used | set(report["ignored"])
    assert report["used"]["candidate numbers"] == ["price", "touches"]
    assert report["used"]["reward"] == ["dwell"]
    assert report["ignored"] == {"note": "nearly every value is different"}


def test_columns_of_items_may_come_with_the_rows(tmp_path: Path, dataset: Dataset) -> None:
    by_item = {row["item_id"]: row for row in SAMPLE.items.to_pylist()}
    rows = SAMPLE.rows
    for name in ("title", "maker", "usual_price"):
        rows = rows.append_column(
            name, pa.array([by_item[item][name] for item in rows["item_id"].to_pylist()])
        )
    alone = from_frame(rows, COLUMNS, path=tmp_path / "alone")
    one, two = (whole(each)[0] for each in (alone, dataset))
    np.testing.assert_allclose(one.pair_features, two.pair_features, atol=1e-5)  # type: ignore[arg-type]
    np.testing.assert_array_equal(one.item_features, two.item_features)
    beside = from_frame(
        rows, COLUMNS, items=SAMPLE.items.select(["item_id", "title"]), path=tmp_path / "beside"
    )
    np.testing.assert_array_equal(whole(beside)[0].item_features, two.item_features)
    assert beside.items["maker"].null_count == len(by_item) - len(pc.unique(rows["item_id"]))


def as_lists(rows: pa.Table) -> pa.Table:
    """The same log with one row per request and lists of candidates and of their columns."""
    grouped: dict[str, dict[str, Any]] = {}
    for row in rows.to_pylist():
        one = grouped.setdefault(
            row["request_id"], {name: [] for name in ("candidates", "card", "clicked_items")}
        )
        one["candidates"].append(row["item_id"])
        one["card"] += [row["item_id"]] if row["on_card"] else []
        one["clicked_items"] += [row["item_id"]] if row["clicked"] else []
        for name in ("position", "score", "price", "touches", "offer", "dwell"):
            one.setdefault(name, []).append(row[name])
        one |= {name: row[name] for name in ("request_id", "user_id", "timestamp", "device", "nights")}
    return pa.Table.from_pylist(list(grouped.values()))


def test_lists_per_impression_say_the_same_as_rows(tmp_path: Path, dataset: Dataset) -> None:
    lists = as_lists(SAMPLE.rows)
    drafted = from_frame(lists, {"reward": "dwell"}, items=SAMPLE.items, path=tmp_path / "lists")
    assert drafted.folder.columns.candidate == dataset.folder.columns.candidate
    one, two = whole(drafted)[0], whole(dataset)[0]
    for name in ("candidate_numbers", "candidate_categories", "clicks", "reward", "card", "clicked", "clicked_position",
                 "context_numbers", "context_categories", "pair_features"):  # fmt: skip
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


def test_a_list_of_another_length_is_dropped_with_its_reason(tmp_path: Path) -> None:
    rows = as_lists(SAMPLE.rows.slice(0, 200)).to_pylist()
    rows[2]["price"] = rows[2]["price"][:-1]
    columns = COLUMNS.to_dict() | {"roles": {"reward": "dwell"}}
    report = build_frame(tmp_path / "log", pa.Table.from_pylist(rows), columns, items=SAMPLE.items)
    (reason,) = report.dropped
    assert "not as long as that of the candidates" in reason
    assert report.dropped[reason]["examples"][0]["column"] == "price"
    assert report.impressions == len(rows) - 1


@given(seed=st.integers(0, 1000), piece=st.integers(5, 60))
@settings(max_examples=10, deadline=None)
def test_a_log_read_in_pieces_is_the_log_read_whole(
    tmp_path_factory: pytest.TempPathFactory, seed: int, piece: int
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    sample = sample_log(requests=25, seed=seed)
    pq.write_table(sample.rows, folder / "rows.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exactk.data.logs.files.ROWS", piece)
        build_frame(folder / "pieces", folder / "rows.parquet", COLUMNS, items=sample.items)
    build_frame(folder / "whole", sample.rows, COLUMNS, items=sample.items)
    one, two = (whole(Dataset.open(folder / name))[0] for name in ("pieces", "whole"))
    for name, value in vars(two).items():
        np.testing.assert_array_equal(getattr(one, name), value, err_msg=name)


def test_candidate_features_are_stored_once_within_their_own_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    requests, size, wide = 400, 50, 20
    rows = {
        "request_id": np.repeat(np.arange(requests), size),
        "user_id": np.repeat(np.arange(requests) % 40, size),
        "item_id": np.concatenate([rng.choice(900, size, replace=False) for _ in range(requests)]),
        "clicked": np.tile(np.arange(size) == 3, requests),
        "on_card": np.tile(np.arange(size) < 4, requests),
    } | {f"f{n}": rng.normal(size=requests * size).astype(np.float32) for n in range(wide)}
    dataset = from_frame(pa.table(rows), path=tmp_path / "log")
    assert len(dataset.folder.columns.candidate.numbers) == wide
    on_disk = sum(file.stat().st_size for file in (tmp_path / "log").rglob("*") if file.is_file())
    assert on_disk < 1.3 * requests * size * wide * 4


def test_a_list_shown_whole_has_no_card_and_its_clicks_count(tmp_path: Path) -> None:
    rows = SAMPLE.rows.drop_columns(["on_card"])
    dataset = from_frame(rows, COLUMNS.with_roles({}).to_dict() | {"k": 3, "roles": {"reward": "dwell"}},
                         items=SAMPLE.items, path=tmp_path / "log")  # fmt: skip
    batch = whole(dataset)[0]
    assert (dataset.meta.K, set(batch.card_size.tolist())) == (3, {3})
    assert (batch.card == -1).all()  # type: ignore[union-attr]
    assert dataset.signal.names == ("item of the list", "rewards")
    assert batch.clicked.all()  # type: ignore[union-attr]


def test_clicks_outside_the_card_lose_no_request(dataset: Dataset) -> None:
    rows = SAMPLE.rows.to_pydict()
    outside = sum(click and not shown for click, shown in zip(rows["clicked"], rows["on_card"], strict=True))
    assert dataset.signal.outside_clicks == outside > 0
    assert len(dataset) == len(set(rows["request_id"]))
    assert dataset.signal.names == ("card clicked", "item of the list", "rewards")
    some = set(dataset.take(slice(10, 30)).impressions()["request_id"].to_pylist())
    rewarded = sum(r in some and d > 0 for r, d in zip(rows["request_id"], rows["dwell"], strict=True))
    assert dataset.take(slice(10, 30)).signal.rewards == rewarded > 0


def test_signals_tell_logs_apart(tmp_path: Path) -> None:
    chosen = pa.table({"user_id": [1, 2], "candidates": [[1, 2, 3], [2, 3, 4]], "card": [[1, 2], [3, 4]]})
    bundles = from_frame(chosen, {"roles": {}, "positives_only": True}, path=tmp_path / "bundles")
    assert bundles.signal.names == ("positives only",)
    silent = from_frame(chosen, path=tmp_path / "silent")
    assert silent.signal.names == ()
    shown = chosen.append_column("clicked_item", pa.array([1, None]))
    assert from_frame(shown, path=tmp_path / "cards").signal.names == ("card clicked", "item of the card")


def test_a_split_of_a_dated_log_is_by_time_unless_recorded(tmp_path: Path, dataset: Dataset) -> None:
    train, valid, test = (part.folder.index.timestamp[part.rows] for part in dataset.split())
    assert train.max() < valid.min() <= valid.max() < test.min()
    names = np.array(["train", "test"])[(np.arange(len(SAMPLE.rows)) // 40) % 2]
    first: dict[str, str] = {}
    for request, name in zip(SAMPLE.rows["request_id"].to_pylist(), names.tolist(), strict=True):
        first.setdefault(request, name)
    column = pa.array([first[request] for request in SAMPLE.rows["request_id"].to_pylist()])
    recorded = from_frame(SAMPLE.rows.append_column("split", column), path=tmp_path / "log")
    assert set(recorded.split()[2].impressions()["split"].to_pylist()) == {"test"}


def test_values_never_met_and_rare_ones_are_unknown(dataset: Dataset) -> None:
    few = dataset.take(slice(0, 1))
    vocabulary = few.vocabulary()
    counts = pc.value_counts(
        SAMPLE.items["maker"].take(pa.array(np.unique(few.impressions()["candidates"][0].values)))
    )
    kept = {entry["values"].as_py() for entry in counts if entry["counts"].as_py() >= 2}
    assert set(vocabulary.columns.item_categories.values[0].to_pylist()) == kept
    batch = dataset.batch(vocabulary)
    assert batch.item_categories.max() == len(kept)  # type: ignore[union-attr]
    assert (batch.item_categories == 0).any()  # type: ignore[union-attr]


def test_a_vocabulary_with_columns_comes_back_as_it_was_kept(tmp_path: Path, dataset: Dataset) -> None:
    batch, vocabulary = whole(dataset)
    vocabulary.save(tmp_path)
    loaded = Vocabulary.load(tmp_path)
    assert loaded.columns.columns == dataset.folder.columns
    again = dataset.batch(loaded)
    for name, value in vars(batch).items():
        np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)
    fitted = vocabulary.columns
    for kind in ("candidate_numbers", "measured", "item_numbers"):
        np.testing.assert_array_equal(
            getattr(loaded.columns, kind).quantiles, getattr(fitted, kind).quantiles
        )
    assert fitted.pair_features == (PairFeature("same", "maker"), PairFeature("same", "offer"),
                                    PairFeature("cosine", "title"), PairFeature("overlap", "title"),
                                    PairFeature("gap", "price"), PairFeature("gap", "usual_price"))  # fmt: skip
    (tmp_path / "vocabulary-columns.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="vocabulary-columns"):
        Vocabulary.load(tmp_path)


def test_rules_recorded_in_a_folder_leave_its_columns_as_they_were(tmp_path: Path, dataset: Dataset) -> None:
    ruled = from_frame(
        SAMPLE.rows, COLUMNS, items=SAMPLE.items, constraints=Distinct("maker"), path=tmp_path / "log"
    )
    assert ruled.folder.has_graphs
    one, two = whole(ruled)[0], whole(dataset)[0]
    for name in ("candidate_numbers", "candidate_categories", "pair_features", "clicks", "score"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    Dataset.open(tmp_path / "log", verify=True)
    matrix = tmp_path / "log" / "candidate_numbers.npy"
    matrix.write_bytes(matrix.read_bytes()[:-4] + b"1234")
    with pytest.raises(DataError, match=r"candidate_numbers\.npy is damaged"):
        Dataset.open(tmp_path / "log", verify=True)


def test_stats_count_columns_and_signals(dataset: Dataset) -> None:
    counted = stats(dataset)
    assert counted["columns"] == {
        "candidate numbers": 2, "candidate categories": 1, "context numbers": 1, "context categories": 1,
        "item numbers": 1, "item categories": 1, "item texts": 1, "rolling numbers": 3,
    }  # fmt: skip
    assert counted["signal"] == ["card clicked", "item of the list", "rewards"]


def test_numbers_know_how_train_spread() -> None:
    from exactk.data.columns.vocabulary import FittedNumbers

    values = np.array([[1.0, np.nan], [1, np.nan], [1, np.nan], [3, np.nan]], np.float32)
    found = FittedNumbers.fitted(("a", "b"), values)
    assert (found.mean[0], found.missing.tolist()) == (1.5, [0.0, 1.0])
    assert found.deviation.tolist() == pytest.approx([np.sqrt(0.75), 1.0])
    assert (found.quantiles[0, 0], found.quantiles[0, -1]) == (1.0, 3.0)
    level = found.level(0, np.array([0.0, 1.0, 2.0, 3.0, 9.0, np.nan]))
    assert level[0] == level[1] < level[2] < level[3] == level[4] == 1.0
    assert np.isnan(level[5])


def test_a_folder_of_the_first_format_still_opens(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(Path(__file__).parent.parent / "fixtures" / "dataset-1", tmp_path / "old")
    dataset = Dataset.open(tmp_path / "old", verify=True)
    batch, vocabulary = whole(dataset)
    assert not vocabulary.columns
    clicked = batch.clicked_position >= 0  # type: ignore[operator]
    np.testing.assert_array_equal(batch.clicks.sum(axis=1), clicked)  # type: ignore[union-attr]
    assert batch.candidate_numbers is None
