"""Draws the screenshots of docs/report.md from a run: python docs/screenshots.py RUN (chromium)."""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from groupwise.dashboard import write_report


def main() -> None:
    """Each view of the run's report as a PNG beside this file."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = write_report([sys.argv[1]], Path(folder) / "report.html")
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        for view in ("overview", "rollouts"):
            page.goto(f"{report.as_uri()}#{view}")
            page.reload()
            if view == "rollouts":
                page.select_option("select >> nth=1", "0")  # the first step: the groups differ
            page.screenshot(path=str(here / f"report_{view}.png"))
        browser.close()


if __name__ == "__main__":
    main()
