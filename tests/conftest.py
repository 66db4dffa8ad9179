"""What all tests share: where a browser or a GPU is missing, the tests that need one say so and skip."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest


def _no_gpu() -> bool:
    import torch

    return not torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip by marker."""
    lacking: list[tuple[str, Callable[[], bool], str]] = [
        ("browser", lambda: shutil.which("chromium") is None, "Chromium is not installed"),
        ("gpu", _no_gpu, "torch finds no GPU here"),
    ]
    for marker, missing, reason in lacking:
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and missing():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))
