"""What a line of text is, by the patterns of the data folder: invoice number, amount, date ..."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


class Kinds:
    """kinds.json, read again when it changes; without it no line is of any kind; a damaged one changes nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kinds.json"
        self._seen = -1
        self._patterns: dict[str, re.Pattern[str]] = {}

    def patterns(self) -> dict[str, re.Pattern[str]]:
        try:
            changed = self.path.stat().st_mtime_ns
        except FileNotFoundError:
            changed = 0
        if changed != self._seen:
            self._seen = changed
            try:
                told = json.loads(self.path.read_text("utf-8")) if changed else {}
                self._patterns = {name: re.compile(pattern) for name, pattern in told.items()}
            except (OSError, ValueError, AttributeError, TypeError, re.error) as error:
                print(f"{self.path}: {error}; the patterns stay as they were", file=sys.stderr, flush=True)
        return self._patterns

    def of(self, text: str) -> str | None:
        return next((name for name, pattern in self.patterns().items() if pattern.search(text)), None)
