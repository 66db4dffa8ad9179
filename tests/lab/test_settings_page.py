"""The page of settings is what the settings say."""

from __future__ import annotations

from exactk_lab.settings_page import PAGE, page


def test_the_page_of_settings_is_made_from_them() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m exactk_lab.settings_page makes it anew"


def test_every_setting_says_what_it_means() -> None:
    from exactk.cli.more import listed

    rows = listed()
    assert len({row["setting"] for row in rows}) == len(rows) > 80
    assert all(row["meaning"] and row["values"] for row in rows)
