"""Tell somebody: one JSON object by POST when a switch is held or was rolled back. It never stops the switch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import requests

from inferlift import secret
from inferlift.errors import InferliftError

Event = Literal["held", "rolled back", "stopped", "done"]


def post(
    url: str, event: Event, name: str, why: str, *, by: str, say: Callable[[str], None] = lambda _: None,
    timeout_s: float = 5.0,
) -> bool:  # fmt: skip
    """Was it taken (any status below 300)? `url` may be a secret reference, since a hook's URL often is its key; then
    it is told in no message."""
    try:
        target = secret.resolve(url) if url.startswith(("env:", "file:")) else url
        body = {"event": event, "name": name, "why": why, "by": by, "at": datetime.now(UTC).isoformat()}
        with requests.Session() as session:
            status = session.post(target, json=body, timeout=timeout_s, allow_redirects=False).status_code
        if status < 300:
            return True
        say(f"the webhook answers {status}: nobody was told that {name} is {event}")
    except (requests.RequestException, InferliftError) as error:
        said = error.what if isinstance(error, InferliftError) else type(error).__name__
        say(f"the webhook was not reached ({said}): nobody was told that {name} is {event}")
    return False
