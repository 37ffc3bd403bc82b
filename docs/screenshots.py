"""Draws the screenshots of docs/report.md from a run: python docs/screenshots.py RUN (chromium)."""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from groupwise.dashboard import write_report

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
SHOTS = {
    "overview": [],
    "rollouts": ["2"],
    "ten": ["t", "s", "s"],
    "distributions": ["3", "]"],
}
"""Each picture, and the keys that lead to it."""


def main() -> None:
    """Each view of the run's report as a PNG beside this file."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = write_report([sys.argv[1]], Path(folder) / "report.html")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, keys in SHOTS.items():
            page = browser.new_page(viewport={"width": 1280, "height": 760})
            page.goto(report.as_uri())
            page.wait_for_selector("h2")
            for key in keys:
                page.keyboard.press(key)
                page.wait_for_timeout(300)
            page.screenshot(path=str(here / f"report_{name}.png"))
        browser.close()


if __name__ == "__main__":
    main()
