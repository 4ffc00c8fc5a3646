"""Time limits belong in the benches: a slow machine fails no property."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("inferlift", deadline=None)
settings.load_profile("inferlift")
