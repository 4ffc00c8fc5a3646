"""Time limits belong in the benches: a slow machine fails no property."""

from __future__ import annotations

import gc

from hypothesis import settings

settings.register_profile("inferlift", deadline=None)
settings.load_profile("inferlift")
gc.disable()  # until everything is imported: there is little garbage, and each look at it takes longer


def pytest_collection_finish() -> None:
    """Modules and tests stay: no collection of garbage has to look at them again."""
    gc.collect()
    gc.freeze()
    gc.enable()
