"""Make the pictures of the documentation, `docs/images`, from pages as they are now.

    uv run specmeter run demo --out runs/demo
    uv run --group dev python scripts/make_pictures.py runs/demo

Needs Chromium, a Chinese font, and `pip install pillow`, which brings each picture down to 192 colours.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from specmeter.cli import invoke

IMAGES = Path(__file__).parents[1] / "docs" / "images"


FOLDERS = r"""document.querySelectorAll('.command pre').forEach((e) => {
    e.textContent = e.textContent.replace(/[^ ]*[/](?=[^/ ]+[.]gguf)/g, 'models/');
})"""
"""Where models lie on the machine that made the pictures is left out of the lines to paste."""


class Picture(NamedTuple):
    """A part of a page as it looks on a screen."""

    name: str
    page: str
    width: int
    height: int
    locale: str = "en-US"
    scheme: str = "light"
    at: str = ""
    """The element to show; empty: the page from its top."""


PICTURES = (
    Picture("report-1280", "report.html", 1280, 1120),
    Picture("report-1920", "report.html", 1920, 1300, scheme="dark"),
    Picture("report-360", "report.html", 360, 1400, locale="zh-CN"),
    Picture("published-moe-306", "moe-306.html", 1280, 900, at="#drawn-figure-2"),
    Picture("rulings-1280", "moe-306.html", 1280, 930),
    Picture("documents-1280", "all.html", 1280, 1400),
    Picture("site-1280", "site/index.html", 1280, 900),
)


def main() -> None:
    """Write the pictures of a run folder and of published studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder of the demo")
    run = parser.parse_args().run
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        invoke(["report", str(run), "--out", str(folder / "report.html")])
        invoke(["report", "--published", "moe-306", "--out", str(folder / "moe-306.html")])
        invoke(["report", "--published", "all", "--out", str(folder / "all.html")])
        invoke(
            ["report", "--site", str(folder / "site"), str(run), "--published", "moe-306", "--published", "rtx3090-19"]
        )
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for picture in PICTURES:
            take(browser, picture, folder)
        browser.close()


def take(browser: Browser, picture: Picture, folder: Path) -> None:
    """One picture, in few colours."""
    page = browser.new_page(
        viewport={"width": picture.width, "height": picture.height},
        locale=picture.locale,
        color_scheme="dark" if picture.scheme == "dark" else "light",
    )
    page.goto((folder / picture.page).as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn !== undefined")
    page.evaluate(FOLDERS)
    path = IMAGES / f"{picture.name}.png"
    shown = page.locator(picture.at) if picture.at else page
    shown.screenshot(path=path)
    page.close()
    colours = Image.open(path).convert("RGB").quantize(192, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    colours.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
