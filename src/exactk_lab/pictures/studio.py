"""`python -m exactk_lab.pictures.studio [FOLDER]` photographs the studio for the documents: light, dark, on a phone.

Knows the page as a visitor does: it starts `exactk serve` and looks at it with Chromium. It also prints how long a
visitor waits for the first card, the median and the longest of ten loads.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from exactk.serving.run import listening

STARTS_WITHIN = 300.0  # seconds: the first start on a machine compiles
LOADS = 10
BRIEF, BASKET = "A shelf's brief", "Supper basket"
WIDE: dict[str, Any] = {"viewport": {"width": 1400, "height": 930}}


@contextmanager
def served() -> Iterator[str]:
    """A service without a model, ready; yields its address."""
    with listening("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "exactk", "serve", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + STARTS_WITHIN
        while not _ready(address):
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError("the service did not start")
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=5):
            return True
    except (URLError, OSError):
        return False


def choose(page: Any, name: str) -> None:
    """Show an example by its name."""
    changed(page, lambda: page.select_option("#request", label=name))


def changed(page: Any, act: Callable[[], Any]) -> None:
    """Do something that asks the service, and wait until it is drawn."""
    with page.expect_response("**/v1/studio/view"):
        act()
    page.wait_for_timeout(400)


def light(page: Any) -> None:
    """The shelf's brief with one rule off: what that changed, and what an item left out would cost."""
    choose(page, BRIEF)
    changed(page, lambda: page.locator(".rule", has_text="total price").locator("input").uncheck())
    page.locator(".candidate", has_text="red socks").first.hover()
    page.wait_for_timeout(400)


def dark(page: Any) -> None:
    """Pairs that belong together."""
    choose(page, BASKET)
    page.locator(".candidate", has_text="Wheat beer").hover()
    page.wait_for_timeout(400)


def phone(page: Any) -> None:
    """The shelf's brief in one column."""
    choose(page, BRIEF)


PICTURES: dict[str, tuple[Callable[[Any], None], dict[str, Any]]] = {
    "studio-light": (light, WIDE),
    "studio-dark": (dark, WIDE | {"color_scheme": "dark"}),
    "studio-phone": (phone, {"viewport": {"width": 390, "height": 1500}, "has_touch": True}),
}


def photograph(browser: Any, address: str, folder: Path) -> None:
    """Every picture, into a folder."""
    for name, (pose, context) in PICTURES.items():
        window = browser.new_context(**context)
        page = window.new_page()
        page.goto(address)
        page.wait_for_selector(".candidate")
        pose(page)
        page.screenshot(path=str(folder / f"{name}.png"))
        window.close()


def waits(browser: Any, address: str) -> list[float]:
    """Milliseconds from asking for the page to its first card, load by load, with nothing cached."""
    found = []
    for _ in range(LOADS):
        window = browser.new_context(**WIDE)
        page = window.new_page()
        started = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("#card .tile")
        found.append(1000 * (time.perf_counter() - started))
        window.close()
    return found


def main(folder: Path) -> None:
    """Photograph and time it."""
    from playwright.sync_api import sync_playwright

    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        photograph(browser, address, folder)
        taken = waits(browser, address)
        browser.close()
    sys.stdout.write(
        f"{len(PICTURES)} pictures in {folder}; the first card after {statistics.median(taken):.0f} ms, "
        f"at most {max(taken):.0f} ms of {LOADS} loads\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/img"))
