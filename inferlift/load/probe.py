"""Readiness by real completions: a health route that says ok proves no answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from inferlift.artifacts import Check
from inferlift.load.target import Target, request_body
from inferlift.load.wire import Reply, ask

if TYPE_CHECKING:
    from inferlift.load.protocols import Protocol

PROMPTS = ("Say hello.", "The capital of France is", "Count: one, two,", "Name a colour.", "What is water?")
PAUSE_S = 0.5


def complete(
    target: Target,
    n: int,
    say: Callable[[str], None],
    *,
    max_tokens: int = 4,
    timeout_s: float = 60.0,
    wait_s: float = 0.0,
    protocol: Protocol | None = None,
) -> list[Check]:
    """`n` real answers in a row, to short chats where no protocol is given. With `wait_s` a failure starts the row
    anew until that time is over.

    Without it the first failure ends the row, and its check says what failed.
    """
    give_up = time.monotonic() + wait_s
    while True:
        checks: list[Check] = []
        for k in range(n):
            reply = _asked(target, k, max_tokens, timeout_s, protocol)
            checks.append(_check(f"completion {k + 1} of {n}", target, reply))
            if not checks[-1].ok:
                break
            say(f"{target.name}: {k + 1} of {n} completions in a row")
        if (checks and all(c.ok for c in checks)) or time.monotonic() + PAUSE_S >= give_up:
            return checks
        say(f"{target.name}: not ready yet ({checks[-1].detail})")
        time.sleep(PAUSE_S)


def once(target: Target, *, timeout_s: float = 5.0, protocol: Protocol | None = None) -> Check:
    """One short answer: the quick question of a verification."""
    return _check("completion", target, _asked(target, 0, 4, timeout_s, protocol))


def _asked(target: Target, k: int, max_tokens: int, timeout_s: float, protocol: Protocol | None) -> Reply:
    if protocol is not None:
        return ask(target, protocol.body(k), timeout_s=timeout_s, answer=protocol.answer())
    body = request_body(PROMPTS[k % len(PROMPTS)], max_tokens, model=target.model)
    return ask(target, body, timeout_s=timeout_s)


def _check(name: str, target: Target, reply: Reply) -> Check:
    where = target.address or target.name
    if reply.error is not None:
        return Check(name=name, ok=False, detail=f"{where}: {reply.error}: {reply.detail}")
    tokens = "" if reply.tokens is None else f", {reply.tokens} tokens"
    return Check(name=name, ok=True, detail=f"{where}: {reply.seconds * 1000:.0f} ms{tokens}")
