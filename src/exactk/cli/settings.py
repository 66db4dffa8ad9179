"""`exactk settings`: every setting there is, what it means, its default, and what a preset makes of it."""

from __future__ import annotations

from typing import Any

import typer

from exactk.cli import app
from exactk.cli.output import JSON, emit, emit_json


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
        emit(f"{row['setting']} = {value}\n    {row['values']}: {row['meaning']}")


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
                rows.append(
                    {
                        "setting": row.name,
                        "default": row.default,
                        **changed,
                        "values": row.values,
                        "meaning": row.meaning,
                    }
                )
    return rows


def in_words(value: Any) -> str:
    """A setting's value as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == () else str(value)
