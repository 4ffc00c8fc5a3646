"""Ctrl-C stays what it was, whatever the columnar engine does to it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heard_as_before() -> Iterator[None]:
    """After it SIGINT interrupts system calls again.

    polars' first query puts a handler of its own before Python's, and that one lets the kernel restart what was
    interrupted: a process that waits for a child (Pulumi, Ansible, podman) would hear Ctrl-C only once the child has
    ended by itself.
    """
    try:
        yield
    finally:
        signal.siginterrupt(signal.SIGINT, True)
