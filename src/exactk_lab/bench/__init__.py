"""Measurements behind every speed claim: rivals beside ours, in one run, repeated, with spread.

A benchmark is a module with a `run`, here or in the folder of its family.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

FAMILIES = {
    "solving": ("exact", "briefs", "anytime"),
    "engine": ("decode", "train", "train_cuda", "growth"),
    "service": ("serve", "soak", "footprint"),
}


def benchmark(name: str) -> Any:
    """The module of a benchmark, imported when asked for."""
    family = next((f"{family}." for family, names in FAMILIES.items() if name in names), "")
    return import_module(f"exactk_lab.bench.{family}{name}")
