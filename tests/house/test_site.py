"""The site builds without a warning (a broken link or anchor is one), and nothing in it comes from another host."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the site is built by the extra 'docs'")
ROOT = Path(__file__).resolve().parents[2]
LOADED = {  # what a browser fetches by itself, by tag and attribute
    ("script", "src"), ("link", "href"), ("img", "src"), ("img", "srcset"), ("source", "src"), ("source", "srcset"),
    ("iframe", "src"), ("object", "data"), ("embed", "src"), ("video", "src"), ("audio", "src"), ("image", "href"),
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


class Fetched(HTMLParser):
    """Addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        relation = dict(attrs).get("rel")
        if tag == "link" and relation in {"canonical", "license"}:
            return
        self.found += [value for name, value in attrs if value and (tag, name) in LOADED]


def foreign(address: str) -> bool:
    return re.match(r"(https?:)?//", address.strip()) is not None


@pytest.mark.slow
def test_no_page_fetches_anything_from_another_host(site: Path) -> None:
    asked = {}
    for page in site.rglob("*.html"):
        reader = Fetched()
        reader.feed(page.read_text(encoding="utf-8"))
        asked[page.name] = reader.found
    assert any(".css" in address for address in asked["index.html"]), "the reader sees what pages fetch"
    assert {name: bad for name, found in asked.items() if (bad := [a for a in found if foreign(a)])} == {}


@pytest.mark.slow
def test_no_style_or_picture_fetches_anything_from_another_host(site: Path) -> None:
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        text = path.read_text(encoding="utf-8")
        addresses = re.findall(r"url\(\s*['\"]?([^)'\"]+)", text) + re.findall(
            r"@import\s+['\"]([^'\"]+)", text
        )
        addresses += re.findall(r"(?:xlink:)?href=\"([^\"#][^\"]*)\"", text)
        assert [address for address in addresses if foreign(address)] == [], path.name


@pytest.mark.slow
def test_every_page_can_be_reached_and_has_one_title(site: Path) -> None:
    """Sphinx warns of a page in no table of contents; a page with two titles breaks the menu."""
    for page in (ROOT / "docs").rglob("*.md"):
        built = (site / page.relative_to(ROOT / "docs")).with_suffix(".html")
        assert built.is_file(), page
        assert built.read_text(encoding="utf-8").count("<h1") == 1, page


@pytest.mark.slow
def test_a_notebook_is_a_page_with_its_pictures_and_its_file(site: Path) -> None:
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / path.stem).with_suffix(".html").read_text(encoding="utf-8")
        assert page.count("<h1") == 1
        assert (
            page.count("data:image/svg+xml")
            == path.read_text(encoding="utf-8").count('"image/svg+xml": [')
            > 0
        )
        (file,) = set(re.findall(r'href="(\.\./_downloads/[^"]*\.ipynb)"', page))
        assert (site / "notebooks" / file).read_bytes() == path.read_bytes()
