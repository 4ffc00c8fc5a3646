"""The audit: the old system's access logs -> Evidence."""

import os

# What the columnar engine has freed goes back to the system soon: by default it may keep all of it, and the whole
# process then takes half as much again. Read once, when polars is imported.
os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:100,muzzy_decay_ms:0")

from inferlift.audit.evidence import audit

__all__ = ["audit"]
