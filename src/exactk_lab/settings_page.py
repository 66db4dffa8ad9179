"""docs/reference/settings.md, made from the settings themselves: `python -m exactk_lab.settings_page` writes it anew.

Knows no setting.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from exactk.cli.more import in_words, listed
from exactk.settings.presets import PRESETS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"
BEGINNING = """# Settings

These are all settings, as `exactk settings` prints them. Give those of training as `exactk train --set policy.beam=5`,
as TOML with `--config`, or as an `exactk.Config`. The others are options of `exactk compare`, `exactk data build world`
and `exactk serve`. exactk refuses an unknown name and a value out of range. (`python -m exactk_lab.settings_page` makes
this page.)
"""
TITLES = {
    "": "The model",
    "policy": "`policy`: GAttN",
    "reward": "`reward`: the reward estimator",
    "pair_value": "`pair_value`: a value of items and pairs",
    "card_value": "`card_value`: GAttN with an exact decoder",
    "training": "`training`: of the policy, and what both phases share",
    "vocabulary": "`vocabulary`: ids in tables",
    "compare": "`compare`: what a comparison allows each method",
    "world": "`world`: the simulator",
    "service": "`service`",
}


def page() -> str:
    """The whole page."""
    parts = [BEGINNING]
    for group, rows in groupby(listed(), lambda row: row["setting"].rpartition(".")[0]):
        lines = [
            f"| `{r['setting']}` | {in_words(r['default'])} | {r['values']} | {r['meaning']} |" for r in rows
        ]
        parts.append(
            "\n".join(
                [
                    f"## {TITLES[group]}",
                    "| setting | default | values | meaning |",
                    "|---|---|---|---|",
                    *lines,
                ]
            )
        )
    return "\n\n".join([*(part.strip() for part in parts), presets()]) + "\n"


def presets() -> str:
    """What each preset makes of the defaults, which are the preset `paper`."""
    named = [name for name in PRESETS if listed(name)]
    changed: dict[str, dict[str, Any]] = {}
    for name in named:
        for row in listed(name):
            changed.setdefault(row["setting"], {"default": row["default"]})[name] = row["changed"]
    lines = [
        f"| `{setting}` | {in_words(found['default'])} | "
        + " | ".join(in_words(found[name]) if name in found else "" for name in named)
        + " |"
        for setting, found in sorted(changed.items())
    ]
    head = [
        f"| setting | `paper` | {' | '.join(f'`{name}`' for name in named)} |",
        "|---" * (2 + len(named)) + "|",
    ]
    return "\n".join(["## Presets, where they differ", *head, *lines])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
