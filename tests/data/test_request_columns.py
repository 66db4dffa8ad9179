"""Requests with columns of their own: what trained is what serves, and nothing sent makes a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.data import Dataset
from exactk.data.columns import Columns
from exactk.data.columns.codes import category_text, category_texts
from exactk.data.logs.frame import from_frame
from exactk.data.requests import Request
from exactk.data.requests.builder import RequestBuilder
from exactk.data.requests.catalogue import Catalogue
from exactk.data.sample import sample_log
from exactk.errors import InputError

SAMPLE = sample_log(requests=60, seed=2)
COLUMNS = Columns.from_dict(
    {
        "roles": {"reward": "dwell"},
        "candidate": {"numbers": ["price", "touches"], "categories": ["offer"]},
        "context": {"numbers": ["nights"], "categories": ["device"]},
        "item": {
            "numbers": ["usual_price"],
            "categories": ["maker"],
            "texts": ["title"],
            "vectors": ["look"],
        },
        "user": {"numbers": ["age"], "categories": ["country"]},
    }
)
READ = (
    "candidate_numbers", "candidate_categories", "context_numbers", "context_categories", "item_categories",
    "user_categories", "item_vectors", "pair_features", "score", "position", "item_features", "user_features", "item",
)  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rng = np.random.default_rng(0)
    looks = [rng.normal(size=3).tolist() for _ in range(len(SAMPLE.items))]
    items = SAMPLE.items.append_column("look", pa.array(looks))
    users = sorted(set(SAMPLE.rows["user_id"].to_pylist()))
    told = {
        "user_id": users,
        "age": rng.integers(18, 80, len(users)),
        "country": [f"c{n % 3}" for n in range(len(users))],
    }
    return from_frame(
        SAMPLE.rows,
        COLUMNS,
        items=items,
        users=pa.table(told),
        path=tmp_path_factory.mktemp("requests") / "log",
    )


def requests_of(dataset: Dataset, inline: bool) -> list[Request]:
    """The log's requests as they would be sent; `inline`: with all that is known of items, too."""
    by_request: dict[str, list[dict[str, Any]]] = {}
    for row in SAMPLE.rows.to_pylist():
        by_request.setdefault(row["request_id"], []).append(row)
    known = {row["item_id"]: row for row in dataset.items.to_pylist()}
    batch = dataset.batch(dataset.vocabulary())
    assert batch.candidate_numbers is not None
    asked = []
    for b, rows in enumerate(by_request.values()):
        candidates = []
        for n, row in enumerate(rows):
            sent = {name: row[name] for name in ("item_id", "price", "touches", "offer", "score", "position")}
            rolled = batch.candidate_numbers[b, n, 2:].tolist()
            sent |= dict(zip(("clicks_so_far", "shown_so_far", "rate_so_far"), rolled, strict=True))
            if inline:
                sent |= {
                    name: known[row["item_id"]][name] for name in ("usual_price", "maker", "title", "look")
                }
            candidates.append(sent)
        context = {"nights": rows[0]["nights"], "device": rows[0]["device"]}
        asked.append(
            Request.from_dict(
                {"user_id": rows[0]["user_id"], "candidates": candidates, "k": 2, "context": context}
            )
        )
    return asked


@pytest.mark.parametrize("inline", [False, True])
def test_a_request_reads_as_the_logged_row_it_repeats(dataset: Dataset, inline: bool) -> None:
    vocabulary = dataset.vocabulary()
    logged = dataset.batch(vocabulary)
    catalogue = Catalogue.of(dataset)
    if inline:  # nothing is known of items but what is sent
        catalogue = Catalogue(catalogue.items.slice(0, 0), catalogue.users)
    asked = RequestBuilder(vocabulary, catalogue).batch(requests_of(dataset, inline))
    for name in READ:
        np.testing.assert_allclose(
            getattr(asked, name), getattr(logged, name), rtol=1e-6, atol=1e-7, err_msg=name
        )
    assert asked.reward is None
    assert asked.clicks is None


def test_what_is_sent_goes_before_the_catalogue(dataset: Dataset) -> None:
    vocabulary, catalogue = dataset.vocabulary(), Catalogue.of(dataset)
    maker, other = (vocabulary.columns.item_categories.values[0][place].as_py() for place in (0, 1))
    sent = {"item_id": 1, "maker": maker, "title": "plain lamp", "usual_price": 9.0}
    asked = [
        Request.from_dict({"user_id": "u1", "candidates": [one, 2, 3], "k": 2})
        for one in (1, sent, sent | {"maker": other})
    ]
    batch = RequestBuilder(vocabulary, catalogue).batch(asked)
    assert batch.item_categories is not None
    assert batch.item_categories[1:, 0, 0].tolist() == [1, 2]
    assert (batch.item_vectors[0, 0] != batch.item_vectors[1, 0]).any()  # type: ignore[index]
    np.testing.assert_array_equal(batch.item_vectors[0, 1:], batch.item_vectors[1, 1:])  # type: ignore[index]


def test_counts_so_far_are_looked_up_unless_they_are_sent(dataset: Dataset) -> None:
    counts = dataset.rolling_counts()
    assert counts is not None
    item = int(dataset.impressions()["candidates"][0][0].as_py())
    request = Request("u1", (item, 10**9), 1, attributes={10**9: {"shown_so_far": 77.0}})
    batch = RequestBuilder(dataset.vocabulary(), Catalogue.of(dataset), counts).batch([request])
    found = batch.candidate_numbers[0, :, 2:]  # type: ignore[index]
    np.testing.assert_array_equal(found[0], counts.lookup("u1", [item])[0])
    assert found[1, 1] == 77
    assert np.isnan(RequestBuilder(dataset.vocabulary()).batch([request]).candidate_numbers[0, 0, 2:]).all()  # type: ignore[index]


ODD = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(width=32) | st.text(max_size=5)


@given(values=st.lists(ODD, min_size=1, max_size=8), context=ODD)
@settings(max_examples=80, deadline=None)
def test_anything_sent_is_read_or_refused_by_name(dataset: Dataset, values: list[Any], context: Any) -> None:
    names = ("price", "touches", "offer", "maker", "title", "look", "score", "usual_price")
    sent = {1: dict(zip(names, values, strict=False)) | {"never heard of": 1}}
    request = Request("nobody", (1, 5), 1, attributes=sent, context={"device": context, "nights": context})
    refusal, batch = "", None
    try:
        batch = RequestBuilder(dataset.vocabulary(), Catalogue.of(dataset)).batch([request])
    except InputError as error:
        refusal = str(error)
    if batch is None:
        assert any(name in refusal for name in (*names, "device", "nights"))
        return
    for name in ("pair_features", "item_vectors"):
        assert np.isfinite(getattr(batch, name)).all()
    assert not np.isinf(batch.candidate_numbers).any()  # type: ignore[arg-type]


def test_a_category_reads_the_same_alone_and_in_a_column() -> None:
    for values in (
        [1, 2**60, None],
        [1.0, 2.5, 1e300, float("nan"), None],
        [True, False, None],
        ["a", "", "7", None],
    ):
        assert [category_text(value) for value in values] == category_texts(pa.array(values)).to_pylist()
    with pytest.raises(InputError, match="offer must be text"):
        category_text(["a"], "offer")


def test_a_mistaken_value_is_named(dataset: Dataset) -> None:
    vocabulary = dataset.vocabulary()
    for sent, message in (
        ({"price": "cheap"}, "request 0: price of item 1 must be a number, got 'cheap'"),
        ({"price": 1e300}, "request 0: price of item 1 must be a number"),
        ({"offer": {}}, "offer of item 1 must be text"),
        ({"title": 7}, "title must hold texts"),
        ({"look": "x"}, "look must hold vectors"),
    ):
        with pytest.raises(InputError, match=message):
            RequestBuilder(vocabulary).batch([Request("u1", (1,), 1, attributes={1: sent})])
    with pytest.raises(InputError, match="context must be an object"):
        Request.from_dict({"user_id": "u", "candidates": [1], "k": 1, "context": [1]})
