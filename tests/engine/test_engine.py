"""The compiled decoder gives the model's own cards, for every kind of request and every size of network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numba import njit

from exactk.engine import aligned
from exactk.engine.arithmetic import additive, normed, product, raised, softmax
from exactk.errors import InfeasibleError, InputError
from exactk.learning.phases import compiled_decoder
from exactk.models.policy import Policy
from exactk.search import Feasible, beam, log_prob
from exactk.settings.config import InputSizes, PolicyConfig
from exactk.tensors import TensorBatch
from exactk_lab.bench.engine.made import made_batch, made_policy, ruled_batch
from small_batches import batch_of, cards_by, graph_of

SMALL = InputSizes(num_users=50, num_items=200)


@torch.no_grad()
def by_model(policy: Policy, batch: TensorBatch) -> torch.Tensor:
    return beam(policy.steps(batch), Feasible.of(batch), policy.config.beam).cards[:, 0]


def small_policy(seed: int = 0, **settings: Any) -> Policy:
    return made_policy(seed, PolicyConfig(**settings), SMALL)


@pytest.mark.parametrize(("num_candidates", "longest"), [(9, 3), (20, 4), (50, 10), (70, 6)])
def test_cards_are_the_models_own_whatever_the_rules(num_candidates: int, longest: int) -> None:
    policy = made_policy(3)
    batch = ruled_batch(150, num_candidates, longest, seed=longest)
    assert len(batch) > 120
    assert torch.equal(cards_by(compiled_decoder(policy), batch), by_model(policy, batch))


@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "qkv"},
        {"width": 24, "heads": 3, "feed_forward_size": 40},
        {"width": 64, "heads": 1, "decoder_layers": 1, "encoder_layers": 0},
        {"decoder_layers": 3, "encoder_layers": 3, "embedding_size": 5},
        {"beam": 1},
        {"beam": 6},
        {"affinity": 4},
    ],
    ids=str,
)
def test_networks_of_other_sizes_decode_alike(settings: dict[str, Any]) -> None:
    policy = small_policy(**settings)
    batch = ruled_batch(60, 18, 4, seed=1, sizes=SMALL)
    assert torch.equal(cards_by(compiled_decoder(policy), batch), by_model(policy, batch))


def test_affinity_is_added_to_the_scores_of_every_step() -> None:
    policy = small_policy(affinity=4)
    assert policy.affinity is not None
    assert policy.affinity.items is not None
    batch = batch_of(~torch.eye(4, dtype=torch.bool)[None], 2, item=torch.tensor([[5, 9, 1, 7]]))
    with torch.no_grad():
        policy.affinity.items.weight[:, -1] = 100.0 * torch.arange(200)  # the higher the id, the better liked
    assert cards_by(compiled_decoder(policy), batch).tolist() == [[1, 3]]
    beyond = batch_of(graph_of(3, [(0, 1)])[None], 2, item=torch.tensor([[1, 2, 200]]))
    with pytest.raises(InputError, match=r"items 0\.\.199"):
        cards_by(compiled_decoder(policy), beyond)


@pytest.mark.parametrize("affinity", [0, 8], ids=["network alone", "with affinity"])
@pytest.mark.parametrize("inputs", ["features", "both"])
def test_features_are_read_as_the_model_reads_them(inputs: str, affinity: int) -> None:
    sizes = InputSizes(num_users=50, num_items=200, user_feature_size=3, item_feature_size=7)
    policy = made_policy(0, PolicyConfig(inputs=inputs, affinity=affinity), sizes)  # type: ignore[arg-type]
    plain = made_batch(40, 21, 4, 0.9, 0, SMALL)
    generator = torch.Generator().manual_seed(0)
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    fields["user_features"] = torch.randn(40, 3, generator=generator)
    fields["item_features"] = torch.randn(40, 21, 7, generator=generator)
    batch = TensorBatch(**fields)
    assert torch.equal(cards_by(compiled_decoder(policy), batch), by_model(policy, batch))
    with pytest.raises(InputError, match="features"):
        cards_by(compiled_decoder(policy), plain)


def test_a_beam_wider_than_the_sets_takes_their_other_orders() -> None:
    # Four candidates and cards of three: four sets, so a beam of nine must keep further orders of the same set.
    for seed in range(8):
        policy = small_policy(seed, beam=9)
        batch = made_batch(8, 4, 3, 1.0, seed, SMALL)
        assert torch.equal(cards_by(compiled_decoder(policy), batch), by_model(policy, batch))


def test_equal_scores_go_to_the_lower_position() -> None:
    policy = small_policy()
    alike = batch_of(~torch.eye(6, dtype=torch.bool)[None], 3, item=torch.full((1, 6), 4))
    assert cards_by(compiled_decoder(policy), alike).tolist() == [[0, 1, 2]]


def test_threads_and_batches_change_nothing() -> None:
    policy = small_policy()
    batch = ruled_batch(40, 20, 4, seed=2, sizes=SMALL)
    alone = compiled_decoder(policy, threads=1)
    together = cards_by(compiled_decoder(policy, threads=2), batch)
    assert torch.equal(cards_by(alone, batch), together)
    for b in range(0, len(batch), 5):
        card = cards_by(alone, batch.rows(slice(b, b + 1)))[0]
        assert card.tolist() == together[b][: len(card)].tolist()


def test_a_request_without_a_card_is_refused_by_number() -> None:
    feasible, triangle_free = (
        graph_of(4, [(0, 1), (1, 2), (0, 2)]),
        graph_of(4, [(0, 1), (1, 2), (2, 3), (0, 3)]),
    )
    batch = batch_of(torch.stack([feasible, triangle_free]), 3)
    with pytest.raises(InfeasibleError, match=r"request 1 .* no 3 of its 4"):
        cards_by(compiled_decoder(small_policy()), batch)
    assert sorted(cards_by(compiled_decoder(small_policy()), batch.rows(slice(0, 1)))[0].tolist()) == [
        0,
        1,
        2,
    ]


def test_an_id_beyond_the_tables_is_refused_not_read() -> None:
    batch = batch_of(graph_of(3, [(0, 1)])[None], 2, item=torch.tensor([[1, 2, 200]]))
    with pytest.raises(InputError, match=r"items 0\.\.199"):
        cards_by(compiled_decoder(small_policy()), batch)


def test_weights_too_large_for_the_fast_tanh_decode_alike() -> None:
    policy = small_policy()
    with torch.no_grad():
        policy.pointer.keys.weight *= 200
    batch = ruled_batch(30, 12, 4, seed=3, sizes=SMALL)
    assert torch.equal(cards_by(compiled_decoder(policy), batch), by_model(policy, batch))


@torch.no_grad()
@pytest.mark.parametrize("large", [False, True])
def test_scores_of_the_first_and_of_later_choices_are_the_models_own(large: bool) -> None:
    policy = small_policy(affinity=3)
    if large:
        policy.pointer.keys.weight *= 200
    batch = made_batch(7, 12, 4, 1.0, 0, SMALL)
    steps, before = policy.steps(batch), torch.arange(7)
    first = steps.step(steps.start(1))[:, 0]
    state = steps.advance(steps.start(1), before[:, None])
    second = steps.step(state)[:, 0]
    after = torch.stack([before, (before + 3) % 12], 1)
    third = steps.step(steps.advance(state, after[:, 1:]))[:, 0]
    decoder, asked = compiled_decoder(policy), batch.arrays()
    # Raw scores are of one meaning up to a constant: a softmax takes them.
    for found, wanted in (
        (decoder.scores(asked), first),
        (decoder.scores(asked, before.numpy()[:, None]), second),
        (decoder.scores(asked, after.numpy()), third),
    ):
        torch.testing.assert_close(
            torch.from_numpy(found).log_softmax(-1), wanted.log_softmax(-1), atol=1e-4, rtol=1e-4
        )


@torch.no_grad()
@pytest.mark.parametrize("attention", ["shared", "qkv"])
def test_attention_is_the_models_own(attention: str) -> None:
    policy = small_policy(attention=attention)
    batch = ruled_batch(20, 12, 4, seed=3, sizes=SMALL)
    found = torch.from_numpy(compiled_decoder(policy).attention(batch.arrays()))
    torch.testing.assert_close(found, policy.attention(batch), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_the_likeliest_cards_are_those_of_the_models_beam() -> None:
    policy = small_policy(beam=8)
    batch = ruled_batch(60, 9, 3, seed=5, sizes=SMALL)
    wanted = beam(policy.steps(batch), Feasible.of(batch), 8)
    found = compiled_decoder(policy).write(batch.arrays(), kept=8)
    assert found.num_found.tolist() == torch.isfinite(wanted.log_prob).sum(1).tolist()
    assert set(found.num_found.tolist()) > {8}  # some requests have fewer cards than that
    # Cards as likely as each other may change places, so it is the likelihoods that are held against each other.
    likely = log_prob(policy.steps(batch), Feasible.of(batch), torch.from_numpy(found.cards))
    real = torch.isfinite(wanted.log_prob)
    torch.testing.assert_close(likely[real], wanted.log_prob[real], atol=1e-4, rtol=1e-4)
    assert (found.cards[~real.numpy()] == -1).all()


def test_a_decoder_takes_the_weights_as_they_are_now() -> None:
    policy, other = small_policy(0), small_policy(1)
    batch = made_batch(50, 20, 4, 0.95, 0, SMALL)
    before = cards_by(compiled_decoder(policy), batch)
    policy.load_state_dict(other.state_dict())
    after = cards_by(compiled_decoder(policy), batch)
    assert not torch.equal(after, before)
    assert torch.equal(after, by_model(other, batch))


def test_exponentials_are_good_to_seven_digits() -> None:
    x = aligned(4096)
    x[:] = np.linspace(-79.9, 79.9, 4096)
    wanted = np.exp(x.astype(np.float64))

    @njit
    def call(values):  # type: ignore[no-untyped-def]
        return raised(values, 0, len(values))

    assert call(x)
    np.testing.assert_allclose(x, wanted, rtol=3e-7)
    x[5] = 81.0
    assert not call(x)


def test_arithmetic_agrees_with_numpy() -> None:
    rng = np.random.default_rng(0)
    x, w, keys = rng.normal(size=(8, 20)), rng.normal(size=(20, 48)), rng.normal(size=(32, 16))
    query, vector = rng.normal(size=32), rng.normal(size=32)

    @njit
    def call(a, b, bias, row, k, q, v):  # type: ignore[no-untyped-def]
        out, scores = np.zeros(8 * 48, np.float32), np.zeros(16, np.float32)
        product(a, 0, 20, 8, 20, b, 0, 48, 48, bias, 0, out, 0, 48)
        raised(k, 0, len(k))
        raised(q, 0, len(q))
        additive(k, 0, 16, q, 0, v, 0, 32, scores, 0)
        zeros = np.zeros(64, np.float32)
        shares = row.copy()
        softmax(shares, 0, 16, np.float32(0.5), zeros, 0)
        ones = np.ones(64, np.float32)
        row = np.concatenate((row, zeros))
        normed(row, 0, 32, 1, 16, 16, np.concatenate((ones, zeros)), 0, 16, 64)
        return out, scores, shares, row[:16]

    def flat(values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(values, np.float32).reshape(-1)

    bias, row = rng.normal(size=48), rng.normal(size=16)
    out, scores, shares, norm = call(
        flat(x), flat(w), flat(bias), flat(row), flat(2 * keys), flat(2 * query), flat(-2 * vector)
    )
    np.testing.assert_allclose(out.reshape(8, 48), x @ w + bias, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(scores + vector.sum(), vector @ np.tanh(keys + query[:, None]), atol=1e-5)
    np.testing.assert_allclose(shares, np.exp(row / 2) / np.exp(row / 2).sum(), rtol=1e-5)
    np.testing.assert_allclose(norm, (row - row.mean()) / np.sqrt(row.var() + 1e-5), rtol=1e-4, atol=1e-5)
