"""Texts as vectors and word overlap, and what pairs of candidates say."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exactk.data.columns import Columns, PairFeature
from exactk.data.columns.items import MISSING_GAP, PairInputs, derived_pairs, pair_values
from exactk.data.columns.texts import BUCKETS, TextTransform, overlaps, words_of

TITLES = ["red wool scarf", "red wool hat", "steel kettle", "copper kettle", "wool socks", "steel pan"] * 3


def test_near_titles_have_near_vectors_and_misspelt_ones_too() -> None:
    transform = TextTransform.fitted(TITLES, size=8)
    red, near, misspelt, far = transform(["red wool scarf", "wool hat red", "red woool scarfs", "steel pan"])
    assert red @ misspelt > 0.7 > red @ near > 0.3
    assert abs(red @ far) < 0.1
    np.testing.assert_allclose(np.linalg.norm(red), 1, rtol=1e-5)


def test_vectors_are_the_same_every_time_and_zero_without_known_terms() -> None:
    one, two = TextTransform.fitted(TITLES, size=8), TextTransform.fitted(TITLES, size=8)
    np.testing.assert_array_equal(one.directions, two.directions)
    assert not one(["", None, "zzz"]).any()
    assert TextTransform.fitted([], size=8)(["a"]).tolist() == [[0.0] * 8]


def test_directions_are_those_of_a_plain_svd() -> None:
    transform = TextTransform.fitted(TITLES, size=3)
    full = TextTransform.fitted(TITLES, size=len(TITLES))
    # All directions keep every angle; three keep those that carry most.
    rank = int((np.abs(full.directions).sum(axis=0) > 1e-4).sum())
    gram = full(TITLES) @ full(TITLES).T
    assert 3 < rank <= 6
    values = np.linalg.eigvalsh(full.directions[:, :rank].T @ full.directions[:, :rank])
    np.testing.assert_allclose(values, 1, atol=1e-4)
    assert np.abs(transform.directions[:, 0] @ full.directions[:, 0]) > 0.999
    np.testing.assert_allclose(np.diag(gram), 1, rtol=1e-5)


@given(st.lists(st.text(max_size=20) | st.none() | st.lists(st.text(max_size=8), max_size=3), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_text_has_a_finite_vector_of_length_one_or_zero(texts: list[str | list[str] | None]) -> None:
    vectors = TextTransform.fitted(texts, size=4)(texts)
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.isfinite(vectors).all()
    assert (np.isclose(lengths, 1, atol=1e-4) | (lengths == 0)).all()


def test_overlap_is_the_share_of_rare_words_in_common() -> None:
    texts = ["red wool scarf", "Red wool, hat!", "kettle", None]
    words = words_of(texts)
    rarity = np.ones(BUCKETS, np.float32)
    found = overlaps(words.start, words.terms, rarity, np.array([[0, 1, 2, 3, -1]]))[0]
    assert found[0, 1] == found[1, 0] == np.float32(2 / 4)
    assert found[0, 2] == found[0, 3] == found[0, 4] == found[0, 0] == 0
    fitted = TextTransform.fitted(["red wool scarf", "red wool hat", "red cup"], size=2)
    weight = {"red": math.log(4 / 4) + 1, "wool": math.log(4 / 3) + 1, "scarf": math.log(4 / 2) + 1}
    words = words_of(["red wool", "red scarf"])
    shared = overlaps(words.start, words.terms, fitted.idf, np.array([[0, 1]]))[0, 0, 1]
    np.testing.assert_allclose(shared, weight["red"] / sum(weight.values()), rtol=1e-5)


def test_members_of_a_list_of_texts_count_as_words() -> None:
    words = words_of([["Home & Garden", "Lamps"], ["Garden Home"], "home garden"])
    rarity = np.ones(BUCKETS, np.float32)
    found = overlaps(words.start, words.terms, rarity, np.array([[0, 1, 2]]))[0]
    # {home, garden, lamps, home_garden} and {garden, home, garden_home}
    assert found[0, 1] == np.float32(2 / 5)
    assert found[0, 2] == np.float32(2 / 4)


def inputs(N: int) -> PairInputs:
    rng = np.random.default_rng(0)
    words = words_of(["red scarf", "red hat", "blue hat"])
    return PairInputs(
        codes={"maker": np.array([[1, 1, 2, 0, 0]], np.int32)},
        vectors={"look": rng.normal(size=(1, N, 3)).astype(np.float32)},
        levels={"price": np.array([[0.2, 0.5, 1.0, np.nan, 0.0]], np.float32)},
        words={"title": (words, np.ones(BUCKETS, np.float32))},
        text_rows=np.array([[0, 1, 2, -1, 0]]),
    )


def test_pair_features_say_what_a_rule_could_read() -> None:
    present = np.array([[True, True, True, True, False]])
    pairs = tuple(
        PairFeature(*pair)
        for pair in (("same", "maker"), ("cosine", "look"), ("overlap", "title"), ("gap", "price"))
    )
    given_inputs = inputs(5)
    found = pair_values(pairs, given_inputs, present)[0]
    assert found[0, 1, 0] == 1
    assert found[0, 2, 0] == found[3, 4, 0] == 0  # two missing values are not the same
    a, b = given_inputs.vectors["look"][0, 0], given_inputs.vectors["look"][0, 1]
    np.testing.assert_allclose(found[0, 1, 1], a @ b / np.linalg.norm(a) / np.linalg.norm(b), rtol=1e-5)
    assert found[1, 2, 2] == np.float32(1 / 3)
    np.testing.assert_allclose(found[0, 1, 3], 0.3, rtol=1e-6)
    assert found[0, 3, 3] == np.float32(MISSING_GAP)
    np.testing.assert_array_equal(found, found.transpose(1, 0, 2))
    assert not found[4].any()
    assert not found[np.arange(5), np.arange(5)].any()


def test_padding_beside_longer_lists_changes_no_pair() -> None:
    """Lists of 3 to 200 candidates side by side are read in parts of like length; each is as it is alone."""
    rng = np.random.default_rng(3)
    lengths = np.array([40, 3, 200, 64, 65, 33, 199])
    B, N = len(lengths), int(lengths.max())
    pairs = tuple(
        PairFeature(*pair)
        for pair in (("same", "maker"), ("cosine", "look"), ("overlap", "title"), ("gap", "price"))
    )
    words = words_of(["red scarf", "red hat", "blue hat"])
    batch = PairInputs(
        codes={"maker": rng.integers(0, 4, (B, N)).astype(np.int32)},
        vectors={"look": rng.normal(size=(B, N, 3)).astype(np.float32)},
        levels={"price": rng.random((B, N)).astype(np.float32)},
        words={"title": (words, np.ones(BUCKETS, np.float32))},
        text_rows=rng.integers(0, 3, (B, N)),
    )
    present = np.arange(N) < lengths[:, None]
    batch = batch._replace(text_rows=np.where(present, batch.text_rows, -1))
    found = pair_values(pairs, batch, present)
    for b, length in enumerate(lengths.tolist()):
        alone = pair_values(pairs, batch.of(slice(b, b + 1), length), present[b : b + 1, :length])
        np.testing.assert_allclose(found[b, :length, :length], alone[0], atol=1e-6)
        assert not found[b, length:].any()
        assert not found[b, :, length:].any()


def test_sensible_pair_features_follow_from_the_columns_there_are() -> None:
    columns = Columns.from_dict(
        {
            "candidate": {"numbers": ["price", "price_rank", "touches"], "categories": ["offer"]},
            "item": {"categories": ["maker"], "texts": ["title"], "vectors": ["image"]},
        }
    )
    assert [str(pair) for pair in derived_pairs(columns)] == [
        "same:maker", "same:offer", "cosine:title", "overlap:title", "cosine:image", "gap:price",
    ]  # fmt: skip
    none = Columns.from_dict({"item": {"texts": ["title"]}, "pair_features": []})
    assert derived_pairs(none) == ()
