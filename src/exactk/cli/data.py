"""`exactk data`: build a dataset folder from a source, describe it, audit it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from exactk.cli import app
from exactk.cli.output import (
    ADDRESS,
    DATASET,
    JSON,
    LOST,
    MAP,
    RAY,
    download_bar,
    emit,
    emit_json,
    emit_table,
    plain,
    progress_bar,
)
from exactk.errors import InputError

if TYPE_CHECKING:
    from exactk.data.columns import Columns
    from exactk.data.dataset import Dataset
    from exactk.problem.rules.constraints import Constraints

data = typer.Typer(help="Build a dataset folder from a log, describe it, and audit it.", no_args_is_help=True)
build = typer.Typer(help="Build a dataset folder from a source.", no_args_is_help=True)
app.add_typer(data, name="data")
data.add_typer(build, name="build")

OUT = typer.Option(..., "--out", help="The dataset folder to write.")
SOURCE = typer.Option(None, "--source", help="Folder with the files. Without it, they are downloaded.")
CARD_SIZE = typer.Option(4, "--k", "-k", help="Items on a card.")
RULES = typer.Option(None, "--rules", help="Rules that every card must keep (TOML or JSON).")


@build.command("published")
def build_published(
    out: Path = OUT,
    source: Path | None = SOURCE,
    release: Literal["k4-n20", "k10-n50"] | None = typer.Option(
        None, "--release", help="Which of the two sets: K=4 of N=20, or K=10 of N=50."
    ),
    as_json: bool = JSON,
) -> None:
    """Build from the files of the paper's authors, exactly as they are. `exactk data audit` shows how they leak."""
    from exactk.data import sources

    with download_bar() as progress:
        _say_built(sources.build_published(out, source, release, progress=progress), as_json)


@build.command("movielens")
def build_movielens(
    out: Path = OUT,
    source: Path | None = SOURCE,
    release: str = typer.Option(
        "ml-100k", "--release", help="Which release to download: ml-100k, ml-1m, ml-10m or ml-25m."
    ),
    k: int = CARD_SIZE,
    n: int = typer.Option(20, "--n", "-n", help="Candidates of a request."),
    protocol: Literal["leak-free", "paper"] = typer.Option(
        "leak-free",
        "--protocol",
        help="leak-free: split the ratings, then make cards; paper: make cards, then split.",
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of the random numbers."),
    rules: Path | None = RULES,
    as_json: bool = JSON,
) -> None:
    """Cards made of MovieLens ratings: 5 stars are the click, the user's other ratings the companions."""
    from exactk.data.sources import movielens

    with download_bar() as progress:
        built = movielens.build_movielens(
            out, source, K=k, N=n, protocol=protocol, seed=seed, constraints=_rules(rules),
            release=release, progress=progress,
        )  # fmt: skip
    _say_built(built, as_json)


@build.command("world")
def build_world(
    out: Path = OUT,
    users: int = typer.Option(2_000, "--users", help="How many users."),
    items: int = typer.Option(5_000, "--items", help="How many items."),
    impressions: int = typer.Option(
        30_000, "--impressions", help="How many logged cards: two days to train on, one to test on."
    ),
    strength: float = typer.Option(
        1.0, "--strength", help="How much pairs matter; at 0, single items decide."
    ),
    theme: float = typer.Option(
        0.0, "--theme", help="How much a card gains by three items of one theme, in log-odds."
    ),
    k: int = CARD_SIZE,
    n: int = typer.Option(50, "--n", "-n", help="Candidates of a request."),
    click_rate: float = typer.Option(0.13, "--click-rate", help="Share of logged cards that are clicked."),
    seed: int = typer.Option(7, "--seed", help="Seed of the random numbers."),
    workers: int | None = typer.Option(
        None, "--workers", help="How many threads; the data does not depend on it."
    ),
    as_json: bool = JSON,
) -> None:
    """Build a simulated log. The true value of every card is known, to evaluation only."""
    from exactk.data.world import world as built_world

    with progress_bar("building the world", impressions) as progress:
        built = built_world(
            out, workers, lambda done, _: progress(done), users=users, items=items, impressions=impressions,
            strength=strength, theme=theme, k=k, n=n, click_rate=click_rate, seed=seed,
        )  # fmt: skip
    _say_built(built, as_json)


@build.command("frame")
def build_frame(
    impressions: Path = typer.Option(
        ...,
        "--impressions",
        help="The log: CSV, JSON lines, Parquet, or a folder of these. One row per candidate, or per request.",
    ),
    out: Path = OUT,
    items: Path | None = typer.Option(None, "--items", help="A table of items: attributes and features."),
    users: Path | None = typer.Option(None, "--users", help="A table of users: features."),
    columns: list[str] = MAP,
    item_columns: list[str] = typer.Option([], "--map-items", help="The same for the table of items."),
    user_columns: list[str] = typer.Option([], "--map-users", help="The same for the table of users."),
    item_features: list[str] = typer.Option(
        [], "--item-feature", help="A column of numbers that is a feature of items."
    ),
    user_features: list[str] = typer.Option(
        [], "--user-feature", help="A column of numbers that is a feature of users."
    ),
    separator: str | None = typer.Option(
        None, "--separator", help="What separates the members of lists that are written as text."
    ),
    text_ids: bool = typer.Option(False, "--text-ids", help="Read ids as text, so that 007 stays 007."),
    columns_file: Path | None = typer.Option(
        None,
        "--columns",
        help="A file that says what each column is for (TOML). `exactk data columns` drafts one.",
    ),
    card_size: int | None = typer.Option(
        None,
        "--k",
        "-k",
        min=1,
        help="How many items a card has, if lists were shown whole and no column says. [default: 4]",
    ),
    bad_rows: Literal["drop", "error"] = typer.Option(
        "drop",
        "--bad-rows",
        help="drop: leave out rows that cannot be used, and count them; error: refuse the file.",
    ),
    strict: bool = typer.Option(
        False,
        "--strict",
        help=f"Exit with status {LOST} if more than 3% of the rows were lost, or nothing can be learned.",
    ),
    report: Path | None = typer.Option(
        None, "--report", help="Write what was dropped, and why, to this file (JSON)."
    ),
    rules: Path | None = RULES,
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave out files of a folder that cannot be read, and count them."
    ),
    on_ray: bool = RAY,
    address: str | None = ADDRESS,
    workers: int = typer.Option(1, "--workers", help="How many processes read files, with --ray."),
    as_json: bool = JSON,
) -> None:
    """Build from your own log: a row per shown candidate with any columns, or a row per request with lists."""
    from exactk.data.dataset import Dataset
    from exactk.data.logs import frame
    from exactk.data.logs.check import build_faults, build_lines

    entities: dict[str, Any] = {
        "item_columns": column_map(item_columns), "user_columns": column_map(user_columns),
        "item_features": item_features, "user_features": user_features,
    }  # fmt: skip
    given = _columns(columns_file, column_map(columns), card_size)
    if on_ray or impressions.is_dir():
        from exactk.scale.building import Reading, build_parts
        from exactk.scale.cluster import Placement

        draft = str(out.absolute().with_name(f".{out.name}.reading"))
        refuse = bad_rows == "error"
        reading = Reading(draft, given, separator, text_ids, refuse, skip_bad)
        with progress_bar("reading files", 100) as bar:
            found = build_parts(
                out, impressions.absolute(), reading, Placement(on_ray, address, workers), _rules(rules),
                lambda done, total: bar(100 * done // total), items=items, users=users, **entities,
            )  # fmt: skip
    else:
        found = frame.build_frame(
            out, impressions, given, items, users, _rules(rules), separator=separator, text_ids=text_ids,
            bad_rows=bad_rows, **entities,
        )  # fmt: skip
    dataset = Dataset.open(out)
    signal, made = dataset.signal.names, dataset.folder.made
    said = {**found.to_dict(), "made": made}
    if report is not None:
        report.write_text(json.dumps(plain(said), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    faults = build_faults(found, signal)
    if as_json:
        emit_json({"out": str(out), **said, "signal": signal, "faults": faults})
    else:
        emit(f"written: {out} ({found.impressions:,} impressions of {found.rows_read:,} rows)")
        for line in build_lines(found, signal, faults, made):
            emit(line)
    if strict and faults:
        raise typer.Exit(LOST)


@data.command("columns")
def draft_columns(
    log: Path = typer.Argument(help="The log: CSV, JSON lines, Parquet, or a folder of these."),
    items: Path | None = typer.Option(None, "--items", help="A table of items that belongs to it."),
    users: Path | None = typer.Option(None, "--users", help="A table of users that belongs to it."),
    columns: list[str] = MAP,
    as_json: bool = JSON,
) -> None:
    """Draft a columns file (TOML) from the beginning of a log: what each column seems to be for. Read it first."""
    from exactk.data.logs.draft import draft_of_files

    draft = draft_of_files(log, items, users, column_map(columns))
    if as_json:
        facts = [{"name": fact.column, **asdict(fact)} for fact in draft.facts]
        emit_json({"columns": draft.columns.to_dict(), "facts": facts})
        return
    emit(draft.text())


@build.command("log")
def build_log(
    folder: Path = typer.Argument(help="The log folder of a service (exactk serve --log)."),
    out: Path = OUT,
    model: Path | None = typer.Option(
        None, "--model", help="The model that served: the dataset gets its items, users and rules."
    ),
    rules: Path | None = RULES,
    as_json: bool = JSON,
) -> None:
    """Build from the log of a service: what it showed and what was clicked, with propensities."""
    from exactk.data.dataset import Dataset
    from exactk.recommender import Recommender
    from exactk.serving.log.collecting import collect

    served = None if model is None else Recommender.load(model).fitted
    written = _rules(rules) or (None if served is None else served.constraints)
    found = collect(folder, out, None if written is None else written.to_dict(), served)
    if as_json:
        emit_json({"out": str(out), **found._asdict(), **_sizes(Dataset.open(out))})
        return
    _say_built(Dataset.open(out), as_json)
    for use, names in found.columns.items():
        for kind, held in names.items() if isinstance(names, dict) else ():
            emit(f"used as {kind}: {held}" if use == "roles" else f"used as {use} {kind}: {', '.join(held)}")
    for what, count in found.left_out.items():
        emit(f"left out, {count:,} times: {what}")


@data.command("stats")
def stats(folder: Path = DATASET, as_json: bool = JSON) -> None:
    """Count what a dataset folder holds."""
    from exactk.data.audit import stats as count
    from exactk.data.dataset import Dataset

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
    folder: Path = DATASET,
    split: Literal["recorded", "random", "user", "time", "pair"] | None = typer.Option(
        None,
        "--split",
        help="How to split; by default as recorded, or else by time if rows have one, or else at random.",
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of the random numbers."),
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
        (name, figures["precision"], "-" if figures["hit_ratio"] is None else figures["hit_ratio"])
        for name in ("least_seen", "popularity", "chance")
        if (figures := found[name])
    ]
    if rows:
        emit_table(("what finds the click", "clicked item", "overlap"), rows)
    if found["lists"]:
        orders = found["lists"]["orders"].items()
        emit_table(
            (f"what holds the {found['lists']['judged_by']} of lists", "share"),
            [(name, held["precision"]) for name, held in orders],
        )
    if found["recovery"]:
        emit_table(("what finds whole cards", "share"), found["recovery"]["whole_card"].items())
    for sentence in found["verdict"]:
        emit(sentence)


def _columns(
    path: Path | None, roles: dict[str, str], card_size: int | None = None
) -> Columns | dict[str, str]:
    """A columns file, roles and K given beside it going first; or those alone."""
    from exactk.data.columns import Columns

    if path is None and card_size is None:
        return roles
    columns = (Columns() if path is None else Columns.load(path)).with_roles(roles)
    return columns if card_size is None else replace(columns, k=card_size)


def _rules(path: Path | None) -> Constraints | None:
    from exactk.problem.rules.constraints import load_rules

    return None if path is None else load_rules(path)


def _inline(value: Any) -> object:
    """Nested figures on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_inline(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return plain(value)


def _sizes(dataset: Dataset) -> dict[str, Any]:
    return {"impressions": len(dataset), "K": dataset.meta.K, "N": dataset.meta.N}


def _say_built(dataset: Dataset, as_json: bool) -> None:
    if as_json:
        emit_json({"out": str(dataset.path), **_sizes(dataset)})
        return
    emit(f"written: {dataset.path} ({len(dataset):,} impressions, K={dataset.meta.K}, N={dataset.meta.N})")


def column_map(pairs: list[str]) -> dict[str, str]:
    """`user_id=uid` as given with --map."""
    mapping = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise InputError(f"--map is written our_column=your_column, got {pair!r}")
        mapping[ours] = theirs
    return mapping
