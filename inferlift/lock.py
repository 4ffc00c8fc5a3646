"""One run at a time: an exclusive lock that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inferlift.errors import Refusal


@contextlib.contextmanager
def exclusive(path: Path, command: str, *, since: str) -> Iterator[None]:
    """Hold the lock, or raise Refusal saying who holds it since when. The kernel frees it when its holder dies."""
    try:
        file = path.open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise Refusal(
            f"{path} cannot be opened",
            why=error.strerror or str(error),
            next_command="set INFERLIFT_STATE to a folder that can be written",
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            held = _holder(file.read())
            raise Refusal(
                f"another run holds this migration: pid {held.get('pid', '?')}, `{held.get('command', '?')}`, "
                f"since {held.get('since', '?')}",
                why=f"one run at a time ({path})",
                next_command="wait for it, or stop it with Ctrl-C; then type the same command again",
            ) from None
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "command": command, "since": since}))
        file.flush()
        yield


def _holder(text: str) -> dict[str, Any]:
    """Who wrote the lock; nothing where that cannot be told (it is being written, or was damaged)."""
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
