"""A page in Debian's Chromium: shown at a width, and what it asked the network for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def show(browser: Any, page: Path, width: int, scheme: str = "light", media: str = "") -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what earlier pages left
    browser.get(page.as_uri())


def requests(browser: Any) -> list[str]:
    """Addresses that the page made the browser ask for."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
