"""The same recorded requests on both sides: what users rely on must come back alike before they are moved."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from inferlift.artifacts import ParityCase
from inferlift.load.target import Target
from inferlift.load.wire import Reply, ask

# What a server may add or leave out without any user noticing: not part of the schema that is compared.
INCIDENTAL = ("usage.", "timings.", "system_fingerprint", "service_tier", "prompt_progress")


def parse_recorded(text: str, *, limit: int = 50) -> tuple[dict[str, Any], ...]:
    """Requests of the old side's body log (JSON lines with `uri`, `status` and the request's `body` as text).

    Only answered ones (status 200) with a JSON object as body are kept, each different body once, the latest
    `limit` of them in their order. Lines that are not so (cut by rotation, empty bodies) are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        try:
            record = json.loads(line)
            body = record["body"] if isinstance(record["body"], dict) else json.loads(record["body"])
            status = int(record.get("status", 200))
        except (ValueError, KeyError, TypeError):
            continue
        if status != 200 or not isinstance(body, dict) or not body.get("messages"):
            continue
        uri = str(record.get("uri", record.get("request_uri", "")))
        key = json.dumps([uri, body], sort_keys=True)
        found.pop(key, None)
        found[key] = {"uri": uri, "body": body}
    return tuple(found.values())[-limit:]


def parity(
    old: Target, new: Target, recorded: Sequence[dict[str, Any]], say: Callable[[str], None]
) -> tuple[ParityCase, ...]:
    """Replay each request on both sides and compare status, content type, keys of the answer, finish reason, text.

    Texts are compared letter by letter only where the request is greedy (temperature 0) and one side repeats
    itself: batching changes floating-point sums, so that even one server may answer a greedy request in two
    ways. The detail says which case it was. Two further cases compare how a wrong key and no key are refused.
    """
    cases = []
    for k, request in enumerate(recorded, 1):
        cases.append(_compare(old, new, request))
        say(f"parity: {k}/{len(recorded)} replayed, {sum(c.same for c in cases)} alike")
    if recorded and old.key_header:
        cases += [
            _refused(old, new, recorded[0], key, name) for key, name in (("wrong", "a wrong key"), ("", "no key"))
        ]
    return tuple(cases)


def _compare(old: Target, new: Target, request: dict[str, Any]) -> ParityCase:
    name = _name(request)
    a, b = _ask(old, request), _ask(new, request)
    differences = []
    if a.status != b.status:
        differences.append(f"status {a.status} against {b.status}")
    if a.error != b.error:
        differences.append(f"{a.error or 'whole'} ({a.detail}) against {b.error or 'whole'} ({b.detail})")
    if a.content_type != b.content_type:
        differences.append(f"{a.content_type} against {b.content_type}")
    missing = sorted(k for k in a.keys - b.keys if not k.startswith(INCIDENTAL))
    if missing:
        differences.append(f"the new answer lacks {', '.join(missing[:5])}")
    if bool(a.text) != bool(b.text):
        differences.append("one side answered without text")
    greedy = request["body"].get("temperature") == 0
    note = "same schema; text not compared (the request asks for sampling)"
    if greedy and not differences:
        note = "same schema, same text"
        if a.text != b.text or a.finish_reason != b.finish_reason:
            again = _ask(old, request), _ask(new, request)
            texts = {(r.text, r.finish_reason) for r in (a, again[0])}
            if texts & {(r.text, r.finish_reason) for r in (b, again[1])}:
                note = "same schema, same text at the second try (batching)"
            elif _common(a.text, b.text) > 0 or len(texts) > 1:
                note = (
                    f"same schema; greedy texts part after {_common(a.text, b.text)} characters "
                    f"({a.text[:30]!r} against {b.text[:30]!r}): other batch shapes, other floating-point sums"
                )
            else:
                differences.append(f"text {a.text[:40]!r} against {b.text[:40]!r}")
    elif not differences and a.finish_reason not in (None, b.finish_reason) and b.finish_reason is None:
        differences.append(f"finish reason {a.finish_reason} against none")
    return ParityCase(request=name, same=not differences, detail="; ".join(differences) or note)


def _refused(old: Target, new: Target, request: dict[str, Any], key: str, name: str) -> ParityCase:
    a, b = (ask(_at(side, request), _body(request), key=key) for side in (old, new))
    same = a.status == b.status and a.status is not None
    return ParityCase(
        request=f"the first request with {name}", same=same, detail=f"status {a.status} against {b.status}"
    )


def _ask(target: Target, request: dict[str, Any]) -> Reply:
    return ask(_at(target, request), _body(request))


def _at(target: Target, request: dict[str, Any]) -> Target:
    """The route that was recorded; the target's own where the log has none."""
    return dataclasses.replace(target, route=request.get("uri") or target.route)


def _body(request: dict[str, Any]) -> bytes:
    return json.dumps(request["body"], ensure_ascii=False, separators=(",", ":")).encode()


def _name(request: dict[str, Any]) -> str:
    messages = request["body"].get("messages") or [{}]
    text = str(messages[-1].get("content", "")) if isinstance(messages[-1], dict) else ""
    return f"{request.get('uri', '')} {text[:60]!r}".strip()


def _common(a: str, b: str) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
