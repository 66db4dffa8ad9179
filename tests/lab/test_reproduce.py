"""The paper's evaluation made again: data to rows to tables and pictures, on files like the authors' own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from exactk.data.dataset import Dataset
from exactk.data.sources.movielens import build_movielens
from exactk.errors import InputError
from exactk.evaluation import metrics
from exactk.evaluation.judging import Scores, judged
from exactk.rivals.contract import Budget, Logs
from exactk.rivals.selection import Exact
from exactk.settings.presets import ABLATIONS
from exactk.tensors import TensorBatch
from exactk_lab.bench.pages import reproduced
from exactk_lab.reproduce import PARTS, bayes, figures, main_table, methods, paper
from exactk_lab.reproduce.attention import most_attended, most_telling, tidy
from exactk_lab.reproduce.cells import Cell, Options, Result, difference, run_cells
from exactk_lab.reproduce.cells import figures as figures_of
from exactk_lab.reproduce.factors import Factored
from exactk_lab.reproduce.graded import Graded, ridge
from exactk_lab.reproduce.sources import Place, source

USERS, ITEMS = 8, 60


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in the authors' layout, K=4 and N=20: items 1 to 15 are liked by everyone, the others by nobody."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("authors") / "k4-n20"
    folder.mkdir()
    for part, samples in (("train", 80), ("test", 24)):
        rerank, dis = [], []
        for number in range(samples):
            user, liked = number % USERS + 1, rng.integers(1, 16)
            others = rng.permutation(np.arange(16, ITEMS + 1))[:19]
            candidates = rng.permutation([liked, *others])
            card, worse = [liked, *others[:3]], others[4:8]
            rerank.append(f"{user}\t{_joined(card)}\t{_joined(candidates)}")
            dis += [f"{user}\t{_joined(card)}\t1", f"{user}\t{_joined(worse)}\t0"]
        (folder / f"rerank_data_{part}.txt").write_text("\n".join(rerank) + "\n")
        (folder / f"dis_data_{part}.txt").write_text("\n".join(dis) + "\n")
    (folder / "user_ids.txt").write_text("\n".join(map(str, range(1, USERS + 1))))
    (folder / "item_ids.txt").write_text("\n".join(map(str, range(1, ITEMS + 1))))
    return folder.parent


def _joined(items: object) -> str:
    return ",".join(map(str, items))  # type: ignore[call-overload]


def test_cells_are_run_once_and_found_again(published: Path, tmp_path: Path) -> None:
    told: list[str] = []
    options = Options((0,), 2, True, told.append)
    cells = [Cell("k4-n20", "popularity")]
    place = Place(tmp_path, published)
    found = run_cells(cells, place, options)["k4-n20", "popularity"]
    assert found.per_seed("precision") == [1.0]  # only liked items were ever clicked
    assert len(found.user) == 24
    assert told[0].startswith("1 of 1 jobs to run")
    again = run_cells(cells, place, options)["k4-n20", "popularity"]
    assert "0 of 1 jobs to run" in told[-1]
    np.testing.assert_array_equal(again.per_request("hit_ratio"), found.per_request("hit_ratio"))


def test_a_training_offers_its_decoding_its_beams_and_its_curve(published: Path, tmp_path: Path) -> None:
    train, valid, test = Logs.of(*source("k4-n20", Place(tmp_path, published), quick=True).views())
    fitted = methods.TrainingChoice("tiny", ("training.target=clicked",), beams=True)(
        train, valid, Budget(epochs=1)
    )
    assert list(fitted.ways) == ["as set", *(f"beam {width}" for width in methods.BEAMS), "first step"]
    assert [told["epoch"] for told in fitted.chosen["curve"]] == [1]
    assert 0 <= fitted.chosen["curve"][0]["precision"] <= 1
    cards = {way: judged(fitted.ways[way], test, None).cards for way in ("as set", "beam 3")}
    np.testing.assert_array_equal(cards["as set"], cards["beam 3"])  # the preset's own width


def test_the_seven_rows_of_the_paper_are_its_ablations_in_order() -> None:
    rows = [methods.ablation_1, methods.ablation_2, methods.ablation_3, methods.ablation_4]
    rows += [methods.ablation_5, methods.ablation_6, methods.paper]
    assert [row.overrides for row in rows] == list(ABLATIONS.values())
    assert len(paper.ABLATION) == len(rows)
    assert paper.ABLATION[-1] == paper.MAIN["k4-n20"]["GAttN + RLfD, paper"]


def test_every_part_has_a_module_and_a_picture() -> None:
    assert set(figures.PICTURES) == set(PARTS)


def test_data_that_was_not_given_is_asked_for_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--movielens PATH"):
        source("leak-free", Place(tmp_path), quick=True)
    with pytest.raises(InputError, match="--published PATH"):
        source("k10-n50", Place(tmp_path), quick=True)


def test_files_of_one_release_do_not_promise_the_other(published: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, published)
    assert place.has("k4-n20")
    assert not place.has("k10-n50")


def result(*precision: list[float]) -> Result:
    """One way, one row of precisions per seed; requests 0 and 1 are one user's."""
    scores = tuple(
        Scores(
            np.arange(len(row)), np.zeros((len(row), 1), np.int64), np.array(row), np.array(row) / 2,
            np.full(len(row), np.nan), np.ones(len(row)), np.full(len(row), np.nan), np.full(len(row), np.nan),
            1.0, 0.5, 1.0,
        )
        for row in precision
    )  # fmt: skip
    user = np.array([0, 0, *range(1, len(precision[0]) - 1)])
    headers = tuple({"train_seconds": 2.0} for _ in precision)
    return Result(Cell("k4-n20", "x"), tuple(range(len(precision))), {"only": scores}, headers, user)


def test_means_and_spreads_are_over_seeds() -> None:
    told = figures_of(result([1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]))
    assert told["P"] == pytest.approx(0.625)
    assert told["P_sd"] == pytest.approx(0.125 * 2**0.5)
    assert told["P_per_seed"] == [0.5, 0.75]
    assert told["HR"] == pytest.approx(0.3125)
    assert "value" not in told  # nobody knows the truth of a film's card


def test_differences_are_paired_by_request_and_flipped_by_user() -> None:
    ours, theirs = result([1.0, 1.0, 1.0, 1.0]), result([0.0, 0.0, 0.0, 1.0])
    told = difference(ours, theirs)
    assert told["difference"] == pytest.approx(0.75)
    assert told["p"] == pytest.approx(0.5)  # users differ by 2, 1, 0: of 4 sign patterns 2 are as extreme


def test_ridge_is_the_closed_form() -> None:
    # One row, rated columns with factors 1 and 2, rests 3 and 5: (3 + 10) / (1 + 4 + 5) with penalty 5.
    solved = ridge(
        np.array([[1.0, 1.0, 0.0]]),
        np.array([[3.0, 5.0, 0.0]]),
        np.array([[1.0], [2.0], [9.0]]),
        np.array([5.0]),
    )
    assert solved == pytest.approx(np.array([[1.3]]))


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Ratings in the layout of MovieLens-100K: even users love even films (a genre of their own), odd ones odd."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("films")
    lines = [
        f"{u}\t{i}\t{5 if (u + i) % 2 == 0 and rng.random() < 0.7 else rng.integers(1, 5)}\t{u}"
        for u in range(1, 41)
        for i in range(1, 61)
    ]
    (folder / "u.data").write_text("\n".join(lines) + "\n")
    genre = "|".join(["0"] * 17)
    (folder / "u.item").write_text(
        "".join(f"{i}|Film {i} (1990)|01-Jan-1990||x|{i % 2}|{1 - i % 2}|{genre}\n" for i in range(1, 61))
    )
    (folder / "u.user").write_text("".join(f"{u}|30|M|writer|1\n" for u in range(1, 41)))
    (folder / "u.genre").write_text("".join(f"g{g}|{g}\n" for g in range(19)))
    (folder / "u.occupation").write_text("writer\n")
    return build_movielens(folder.parent / "cards", folder, K=2, N=6)


@pytest.mark.parametrize(
    "method", [Graded(rank=4), Graded(rank=2, shrink_tastes=5.0)], ids=["factors", "tastes"]
)
def test_graded_ratings_find_who_likes_what(rated: Dataset, method: Graded) -> None:
    train, valid, test = Logs.of(*rated.split())
    way = method(train, valid, Budget()).ways["exact"]
    found = metrics.mean(judged(way, test, None).precision)
    assert found > 0.55  # chance is 2 of 6


def test_factors_alone_find_what_everyone_likes(published: Path, tmp_path: Path) -> None:
    train, valid, test = Logs.of(*source("k4-n20", Place(tmp_path, published), quick=True).views())
    for method in (Factored(rank=4), Factored(rank=4, smoothing=0.3)):
        ways = method(train, valid, Budget(epochs=8)).ways
        found = [metrics.mean(judged(way, test, None).precision) for way in ways.values()]
        assert found == [1.0, 1.0]  # greedy and exact


def test_a_factorisation_machine_sums_every_pair_of_features_once() -> None:
    rng = np.random.default_rng(3)
    w, V = rng.normal(size=5), rng.normal(size=(5, 2))
    users, items = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    told = bayes.scores(w, V, sparse.csr_matrix(users), sparse.csr_matrix(items))
    for u in range(2):
        for i in range(3):
            x = np.r_[users[u], items[i]]
            pairs = sum(V[a] @ V[b] * x[a] * x[b] for a in range(5) for b in range(a))
            assert told[u, i] == pytest.approx(w @ x + pairs)


def test_a_side_holds_ids_company_of_length_one_and_features() -> None:
    own, other = np.array([1, 1, 2]), np.array([0, 3, 3])
    side = bayes.Side.of(own, other, np.array([[0.0], [7.0], [8.0]]), 4)
    assert side.groups == (3, 4, 1)
    half = 0.5**0.5
    np.testing.assert_allclose(
        side.rows.toarray(),
        [[1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, half, 0, 0, half, 7], [0, 0, 1, 0, 0, 0, 1, 8]],
    )


def test_likings_and_a_bayesian_machine_blended_find_who_likes_what(rated: Dataset) -> None:
    pytest.importorskip("myfm", reason="the extra 'ratings'", exc_type=ImportError)
    train, valid, test = Logs.of(*rated.split())
    method = bayes.Blended(Graded(rank=2, shrink_tastes=5.0), bayes.Probit(2, 30, 20), starts=2)
    way = method(train, valid, Budget()).ways["exact"]
    assert metrics.mean(judged(way, test, None).precision) > 0.55  # chance is 2 of 6
    batch = next(test.batches(4))
    search = way.way  # type: ignore[attr-defined]  # within what makes the order of candidates irrelevant
    assert isinstance(search, Exact)
    assert isinstance(search.scorer, bayes.Blend)
    chance = search.scorer.parts[1](TensorBatch.of(batch))
    assert 0 < float(chance.min()) < float(chance.max()) < 1
    ids = pa.array(np.arange(1, 61))
    odd_users, odd_items = np.zeros(41, bool), np.zeros(61, bool)
    odd_users[train.vocabulary.index_users(ids[:40])] = odd_items[train.vocabulary.index_items(ids)] = True
    odd_users[train.vocabulary.index_users(ids[1:40:2])] = odd_items[
        train.vocabulary.index_items(ids[1::2])
    ] = False
    likes = odd_users[batch.user][:, None] == odd_items[batch.item]
    assert chance[likes].mean() > 0.1 + chance[~likes].mean()


def test_standardising_leaves_out_what_is_not_there(rated: Dataset) -> None:
    (test,) = Logs.of(rated.split()[2])
    batch = TensorBatch.of(next(test.batches(2)))
    present = batch.present.clone()
    present[0, 4:] = False
    told = torch.arange(12.0, dtype=torch.float64).reshape(2, 6)
    made = bayes.standardised(told, replace(batch, present=present))
    np.testing.assert_allclose(made[0, :4], (np.arange(4) - 1.5) / np.std(np.arange(4)))
    assert made[0, 4:].tolist() == [0.0, 0.0]
    assert made[1].std(correction=0).item() == pytest.approx(1.0)


def test_a_table_puts_the_papers_figure_beside_ours() -> None:
    row = {
        "column": "k4-n20", "method": "BPR", "kind": "paper", "seeds": [0, 1], "P": 0.5, "P_sd": 0.01, "HR": 0.26,
        "HR_sd": 0.002, "paper_P": 0.304, "paper_HR": 0.205, "ours_minus_this": {"p": 0.0001},
    }  # fmt: skip
    told = reproduced.table("main", [row])
    assert "| BPR | 0.500 ± 0.010 | 0.260 ± 0.002 | 0.3040 | 0.2050 | < 0.001 | 2 |" in told


def test_a_worlds_table_shows_what_cards_are_truly_worth() -> None:
    row = {
        "column": "world", "method": "GAttN, guided", "kind": "ours", "seeds": [0, 1], "P": 0.5, "P_sd": 0.01,
        "HR": 0.26, "HR_sd": 0.002, "value": 0.55, "value_sd": 0.004, "share_of_optimum": 0.861,
    }  # fmt: skip
    told = reproduced.table("main", [row])
    assert "| GAttN, guided | 0.500 ± 0.010 | 0.260 ± 0.002 |  |  |  | 2 | 0.550 ± 0.004 | 86.1% |" in told


def test_on_a_world_methods_are_tested_by_true_value() -> None:
    def valued(found: Result, method: str, value: float) -> Result:
        scores = tuple(replace(s, value=np.full(len(s.request), value)) for s in found.ways["only"])
        return replace(found, cell=Cell("world", method), ways={"only": scores})

    clicks = [1.0, 0.0, 1.0, 0.0, 1.0]
    results = {
        "guided": valued(result([0.0] * 5), "guided", 0.6),  # guesses clicks worse, shows better cards
        "bpr": valued(result(clicks), "bpr", 0.5),
        "deeprank": valued(result(clicks), "deeprank", 0.4),
    }
    [ahead, sure] = main_table._goals("world", results)
    assert ahead.name == "world: ahead of the best baseline (BPR), difference in true value"
    assert ahead.measured == pytest.approx(0.1)
    assert ahead.met
    assert sure.measured == pytest.approx(2 / 16)  # four users, all one way: 2 of 16 sign patterns
    behind = {"guided": valued(result(clicks), "guided", 0.3), "bpr": results["bpr"]}
    assert [goal.met for goal in main_table._goals("world", behind)] == [False, False]


def test_pictures_are_drawn_from_the_rows_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    rows = [{"alpha": a, "P": a / 2, "P_sd": 0.01, "HR": 0.2, "HR_sd": 0.0} for a in (0.0, 0.5, 1.0)]
    png, svg = figures.draw("alpha", rows, tmp_path)
    assert png.read_bytes()[:4] == b"\x89PNG"
    first = svg.read_bytes()
    figures.draw("alpha", rows, tmp_path)
    assert svg.read_bytes() == first  # the same rows, the same file


@pytest.mark.parametrize(
    ("title", "short"), [("Rock, The (1996)", "The Rock"), ("Heat (1995)", "Heat"), ("Solo", "Solo")]
)
def test_film_titles_are_tidied(title: str, short: str) -> None:
    assert tidy(title) == short


def test_the_most_telling_attention_is_the_least_uniform() -> None:
    flat, sharp = np.full((2, 2), 0.5), np.array([[0.9, 0.1], [0.8, 0.2]])
    assert most_telling(np.stack([np.stack([flat, flat]), np.stack([flat, sharp])])) == (1, 1)
    assert most_attended(sharp, 2) == [0, 1]


def test_the_command_refuses_unknown_parts_and_names_the_known(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from exactk.cli import main; main()", "reproduce", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "there are: main, ablation, beam, alpha, curves, attention, all" in done.stderr


def test_beams_of_a_quick_run_print_one_object_marked_quick(published: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-c", "from exactk.cli import main; main()", "reproduce", "beam", "--quick", "--json",
        "--published", str(published), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "results"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["quick"]
    assert [row["beam"] for row in told["rows"]] == list(methods.BEAMS)
    assert json.loads((tmp_path / "results" / "reproduce-beam.json").read_text()) == told
