"""A picture of the top of a report: `python -m inferlift.report.screenshot PAGE PNG` (needs Debian's chromium)."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

BROWSER = "chromium"
# The page asks for nothing; these keep the browser from asking for anything by itself.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
LIMIT_S = 60


def screenshot(page: Path, png: Path, *, width: int = 1280, height: int = 1400, dark: bool = False) -> None:
    """Write the first `height` pixels of the page at `width` pixels. Raises RuntimeError where no picture came."""
    browser = shutil.which(BROWSER)
    if browser is None:
        raise RuntimeError(f"{BROWSER} is missing: apt-get install chromium")
    if not page.is_file():
        raise RuntimeError(f"{page} is no file: ./invoke report writes one and prints its path")
    png.unlink(missing_ok=True)
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    with tempfile.TemporaryDirectory(prefix="inferlift-screenshot-") as profile:
        done = subprocess.run(
            [browser, *FLAGS, *scheme, f"--user-data-dir={profile}", f"--window-size={width},{height}",
             f"--screenshot={png.resolve()}", page.resolve().as_uri()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    if done.returncode or not png.is_file():
        raise RuntimeError(f"{BROWSER} made no picture (exit {done.returncode}): {done.stderr.strip()[-300:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m inferlift.report.screenshot", description=__doc__)
    parser.add_argument("page", type=Path, help="report.html, as `./invoke report` prints it")
    parser.add_argument("png", type=Path, help="where the picture goes, e.g. docs/report.png")
    parser.add_argument("--width", type=int, default=1280, help="pixels (default 1280; at least 500)")
    parser.add_argument("--height", type=int, default=1400, help="pixels from the top (default 1400)")
    parser.add_argument("--dark", action="store_true", help="as a reader with a dark screen sees it")
    given = parser.parse_args(arguments)
    try:
        screenshot(given.page, given.png, width=given.width, height=given.height, dark=given.dark)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"{given.png}: {given.png.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
