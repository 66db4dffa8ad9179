"""`exactk data`: build a dataset folder from a source, describe it, audit it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from exactk.cli import app
from exactk.cli.output import download_bar, emit, emit_json, emit_table, plain
from exactk.errors import InputError

if TYPE_CHECKING:
    from exactk.data.dataset import Dataset
    from exactk.problem.constraints import Constraints

data = typer.Typer(help="Build, describe and audit dataset folders.", no_args_is_help=True)
build = typer.Typer(help="Build a dataset folder from a source.", no_args_is_help=True)
app.add_typer(data, name="data")
data.add_typer(build, name="build")

OUT = typer.Option(..., "--out", help="The dataset folder to write.")
SOURCE = typer.Option(None, "--source", help="Folder with the files; downloaded where not given.")
RULES = typer.Option(None, "--rules", help="Rules every card must keep, as TOML or JSON.")
JSON = typer.Option(False, "--json", help="Print exactly one JSON object.")


@build.command("published")
def build_published(
    out: Path = OUT,
    source: Path | None = SOURCE,
    release: Literal["k4-n20", "k10-n50"] | None = typer.Option(
        None, "--release", help="Which of the two sets."
    ),
    as_json: bool = JSON,
) -> None:
    """The authors' own files, exactly as they are; `exactk data audit` says what they leak."""
    from exactk.data import published

    with download_bar() as progress:
        _say_built(published.build_published(out, source, release, progress=progress), as_json)


@build.command("movielens")
def build_movielens(
    out: Path = OUT,
    source: Path | None = SOURCE,
    release: str = typer.Option(
        "ml-100k", "--release", help="ml-100k, ml-1m, ml-10m or ml-25m, to download."
    ),
    k: int = typer.Option(4, "--k", "-k", help="Items on a card."),
    n: int = typer.Option(20, "--n", "-n", help="Candidates of a request."),
    protocol: Literal["leak-free", "paper"] = typer.Option(
        "leak-free", "--protocol", help="leak-free: ratings are parted before cards are made; paper: after."
    ),
    seed: int = typer.Option(0, "--seed"),
    rules: Path | None = RULES,
    as_json: bool = JSON,
) -> None:
    """Cards made of MovieLens ratings: 5 stars are the click, the user's other ratings the companions."""
    from exactk.data import movielens

    with download_bar() as progress:
        built = movielens.build_movielens(
            out, source, K=k, N=n, protocol=protocol, seed=seed, constraints=_rules(rules),
            release=release, progress=progress,
        )  # fmt: skip
    _say_built(built, as_json)


@data.command("stats")
def stats(
    folder: Path = typer.Argument(help="A dataset folder."),
    as_json: bool = JSON,
) -> None:
    """Count what a folder holds; beside the paper's dataset table for the authors' files."""
    from exactk.data.dataset import Dataset
    from exactk.data.stats import stats as count

    counted = count(Dataset.open(folder))
    if as_json:
        emit_json(counted)
        return
    beside = counted.pop("paper", None)
    emit_table(("figure", "value"), [(name, _inline(value)) for name, value in counted.items()])
    if beside:
        rows = [
            (name, row["paper"], row["here"], "yes" if row["equal"] else "NO") for name, row in beside.items()
        ]
        emit_table(("figure", "paper", "here", "equal"), rows)


@data.command("audit")
def audit(
    folder: Path = typer.Argument(help="A dataset folder."),
    split: Literal["recorded", "random", "user", "time", "pair"] | None = typer.Option(
        None, "--split", help="How to split; as recorded in the folder, else random."
    ),
    seed: int = typer.Option(0, "--seed"),
    as_json: bool = JSON,
) -> None:
    """Measure what could fool you: leaks between splits, popularity, labels, invalid cards, propensities."""
    from exactk.data.audit import audit as measure
    from exactk.data.dataset import Dataset

    found = measure(Dataset.open(folder), split, seed)
    if as_json:
        emit_json(found)
        return
    rows = [
        (name, figures["precision"], figures["hit_ratio"])
        for name in ("least_seen", "popularity", "chance")
        if (figures := found[name])
    ]
    if rows:
        emit_table(("what finds the click", "P@K", "HR@K"), rows)
    for sentence in found["verdict"]:
        emit(sentence)


def _rules(path: Path | None) -> Constraints | None:
    from exactk.problem.constraints import load_rules

    return None if path is None else load_rules(path)


def _inline(value: Any) -> object:
    """Nested figures on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_inline(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return plain(value)


def _say_built(dataset: Dataset, as_json: bool) -> None:
    if as_json:
        emit_json(
            {"out": str(dataset.path), "impressions": len(dataset), "K": dataset.meta.K, "N": dataset.meta.N}
        )
        return
    emit(f"written: {dataset.path} ({len(dataset):,} impressions, K={dataset.meta.K}, N={dataset.meta.N})")


def column_map(pairs: list[str]) -> dict[str, str]:
    """`user_id=uid` as given with --map."""
    mapping = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise InputError(f"--map reads our_column=your_column, got {pair!r}")
        mapping[ours] = theirs
    return mapping
