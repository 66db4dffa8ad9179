"""A world's figures and pictures: consistent with its promises, drawn without a display."""

import struct
from pathlib import Path

import pytest

from exactk.data.world import World
from exactk.data.world.recipe import WorldConfig
from exactk_lab.world_figures import draw_all
from exactk_lab.world_summary import summary

CONFIG = WorldConfig(users=300, items=1_500, impressions=3_000, n=20)


def test_each_kind_of_card_is_worth_more_than_the_one_before() -> None:
    found = summary(World(CONFIG), 2_000)
    value = found["value"]
    assert value["any_valid_card"] < value["logged"] < value["best_singles"] < value["optimum"]
    assert value["pair_optimum"] == value["optimum"]
    assert value["logged"] == pytest.approx(CONFIG.click_rate, abs=0.02)
    assert found["share_of_optimum"]["optimum"] == 1
    assert 0 < found["forbidden_pairs"] < 0.2


def test_with_themes_items_and_pairs_are_not_enough() -> None:
    share = summary(World(WorldConfig(users=300, items=1_500, n=20, theme=1.0)), 300)["share_of_optimum"]
    assert share["best_singles"] < share["pair_optimum"] < 0.99


def test_every_picture_of_the_docs_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn by the extra 'plot'")
    drawn = draw_all(tmp_path, CONFIG)
    docs = (Path(__file__).parents[2] / "docs" / "understand" / "world.md").read_text(encoding="utf-8")
    assert all(f"img/{path.name}" in docs for path in drawn)
    assert docs.count("img/world-") == len(drawn)
    for path in drawn:
        width, height = struct.unpack(">II", path.read_bytes()[16:24])
        assert width > 600
        assert height > 200
