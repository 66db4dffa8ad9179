"""`exactk demo`, `serve`, `key`, `settings`: the commands that are few lines each.

Know no logic: the demo is told by `exactk.demo`, the service is `exactk.serving`, settings list themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from exactk.cli import app
from exactk.cli.output import ADDRESS, JSON, RAY, emit, emit_json, emit_table, talk
from exactk.errors import InputError


@app.command("demo")
def demo(
    out: Path = typer.Option(Path("demo"), "--out", help="Folder for the world, the model and the plots."),
    impressions: int = typer.Option(
        60_000, "--impressions", help="How many logged cards of the world to learn from."
    ),
    only_requests: bool = typer.Option(
        False, "--only-requests", help="Only solve the built-in requests: no world, no training."
    ),
) -> None:
    """See what exactk does: solve a few requests, train on a small simulated world, judge the cards by its truth."""
    from exactk.demo import examples

    for example in examples():
        emit(f"\n{example.name}. {example.lesson}")
        emit(f"Rules: {'; '.join(example.rules)}")
        emit_table(
            ("method", "card", "value", "valid"),
            [(s.method, "\n".join(s.titles), s.value, "yes" if s.valid else "NO") for s in example.shown],
        )
        for reason in example.best.reasons[:2]:
            emit(f"  why not {reason}")
    if not only_requests:
        _show_story(out, impressions)


def _show_story(out: Path, impressions: int) -> None:
    from exactk.demo import draw, story_of

    out.mkdir(parents=True, exist_ok=True)
    story = story_of(out, talk, impressions)
    emit("\nA simulated world: what cards are really worth, on a day that was not used for training.")
    emit_table(
        ("method", "true click probability", "share of the optimum"),
        [("the optimum", story.optimum, "100%")]
        + [(j.name, j.value, f"{j.share:.1%}") for j in story.judged],
    )
    shown = story.explained
    emit(
        f"One card, for user {shown.user_id}: true value {shown.value:.3f}, best possible {shown.optimum:.3f}."
    )
    for item in shown.card.items:
        emit(f"  {shown.titles[item]}")
    for reason in shown.card.reasons[:3]:
        emit(f"  why not {shown.titles[reason.item]!r}: {str(reason).partition(': ')[2]}")
    for path in draw(story, out):
        talk(f"written: {path}")
    emit(
        f"Next: exactk compare {out / 'world'} --quick, or exactk serve {out / 'model'} and open its address."
    )


@app.command("serve")
def serve(
    model: Path | None = typer.Argument(
        None, help="A model folder. Without one, the service takes scores and returns exact cards."
    ),
    host: str = typer.Option(
        "127.0.0.1", "--host", help="The address to listen on; by default only this machine can connect."
    ),
    port: int = typer.Option(8000, "--port", help="The port to listen on."),
    workers: int = typer.Option(1, "--workers", help="Processes that answer (with --ray: replicas)."),
    on_ray: bool = RAY,
    address: str | None = ADDRESS,
    dataset: Path | None = typer.Option(
        None, "--data", help="A dataset folder from which the studio can show requests."
    ),
    challenger: Path | None = typer.Option(
        None, "--challenger", help="A second model, for an A/B split by user."
    ),
    share: float | None = typer.Option(
        None, "--share", help="Share of users that the challenger serves. [default: 0.5]"
    ),
    log: Path | None = typer.Option(None, "--log", help="Folder for the log of impressions and feedback."),
    explore: float = typer.Option(
        0.0,
        "--explore",
        help="Share of cards drawn at random from the best eight, so that the log can judge other models.",
    ),
    keys: Path | None = typer.Option(
        None, "--keys", help="A file with a hashed API key per line (exactk key makes one)."
    ),
) -> None:
    """Answer over HTTP until stopped. The studio is at /, the API at /v1, its description at /openapi.json."""
    from exactk.serving import serve as run

    settings: dict[str, Any] = {"dataset": dataset, "explore": explore}
    if challenger is not None:
        settings |= {"challenger": challenger, "challenger_share": 0.5 if share is None else share}
    elif share is not None:
        raise InputError("--share parts the users between two models: name the second one (--challenger)")
    if log is not None:
        settings["log"] = log
    if on_ray:
        from exactk.scale.cluster import Placement, serve_until_stopped
        from exactk.serving.settings import Settings, read_key_hashes

        chosen = Settings(model=model and model.absolute(), key_hashes=read_key_hashes(keys), **settings)
        serve_until_stopped(chosen, Placement(True, address, workers), host, port)
        return
    run(model, host, port, workers, keys, **settings)


@app.command("key")
def key() -> None:
    """Make an API key. Give the first line to the client; put the second into the file for `serve --keys`."""
    from exactk.serving.http.security import new_key

    for line in new_key():
        emit(line)


@app.command("settings")
def settings(
    preset: str | None = typer.Option(None, "--preset", help="Show only what this preset changes."),
    as_json: bool = JSON,
) -> None:
    """List the settings of training, of `compare`, of the simulated world and of the service.

    Give those of training to `exactk train` as --set policy.beam=5 or as TOML; the others have options of their own.
    """
    rows = listed(preset)
    if as_json:
        emit_json({"preset": preset, "settings": rows})
        return
    for row in rows:
        value = in_words(row["default"])
        if preset is not None:
            value = f"{in_words(row['changed'])} (default {value})"
        emit(f"{row['setting']} = {value}\n    {row['meaning']} ({row['values']})")


def listed(preset_name: str | None = None) -> list[dict[str, Any]]:
    """All settings with default, values and meaning; with a preset, those it changes, and to what."""
    from exactk.data.world.recipe import WorldConfig
    from exactk.serving.settings import Settings
    from exactk.settings.config import Budget, Config
    from exactk.settings.presets import preset
    from exactk.settings.sections import Section

    chosen = Config() if preset_name is None else preset(preset_name)
    training = [chosen, *(value for value in vars(chosen).values() if isinstance(value, Section))]
    rows: list[dict[str, Any]] = []
    groups: list[Any] = training if preset_name else [*training, Budget, WorldConfig, Settings]
    for group in groups:
        for row in group.listed():
            value = getattr(group, row.name.rpartition(".")[2])
            changed = {} if preset_name is None else {"changed": value}
            if preset_name is None or value != row.default:
                described = {"setting": row.name, "default": row.default, **changed}
                rows.append({**described, "values": row.values, "meaning": row.meaning})
    return rows


def in_words(value: Any) -> str:
    """A setting's value as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == () else str(value)
