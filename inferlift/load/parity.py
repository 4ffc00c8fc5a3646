"""The same recorded requests on both sides: what users rely on must come back alike before they are moved."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from inferlift.artifacts import ParityCase
from inferlift.load.answer import Answer
from inferlift.load.hidden import hider
from inferlift.load.target import Target
from inferlift.load.wire import Reply, ask

ALIKE_SHARE = 0.5
# What a server may add or leave out without any user noticing: not part of the schema that is compared.
INCIDENTAL = ("usage.", "timings.", "system_fingerprint", "service_tier", "prompt_progress")


def parse_recorded(text: str, *, limit: int = 50, known_by: str = "messages") -> tuple[dict[str, Any], ...]:
    """Requests of the old side's body log (JSON lines with `uri`, `status` and the request's `body` as text).

    Only answered ones (status 200) with a JSON object as body that has the key `known_by` are kept, each different
    body once, the latest `limit` of them in their order. Lines that are not so (cut by rotation, empty bodies) are left
    out.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        try:
            record = json.loads(line)
            body = record["body"] if isinstance(record["body"], dict) else json.loads(record["body"])
            status = int(record.get("status", 200))
        except (ValueError, KeyError, TypeError):
            continue
        if status != 200 or not isinstance(body, dict) or not body.get(known_by):
            continue
        uri = str(record.get("uri", record.get("request_uri", "")))
        key = json.dumps([uri, body], sort_keys=True)
        found.pop(key, None)
        found[key] = {"uri": uri, "body": body}
    return tuple(found.values())[-limit:]


def parity(
    old: Target,
    new: Target,
    recorded: Sequence[dict[str, Any]],
    say: Callable[[str], None],
    *,
    reads: Callable[[], Answer] | None = None,
) -> tuple[ParityCase, ...]:
    """Replay each request on both sides and compare status, content type, keys of the answer, finish reason, text.

    Texts can be compared where the request is greedy (temperature 0). There too a single one may part, since
    other hardware and other batch shapes sum floating-point numbers in another order; its detail says so. Another
    model parts everywhere: at least ALIKE_SHARE of the greedy texts must be the same, letter by letter, which is a
    case of its own. Two further cases compare how a wrong key and no key are refused. `reads` makes what reads an
    answer that is no OpenAI one; then all texts are compared.
    """
    cases: list[ParityCase] = []
    texts: list[bool] = []
    for k, request in enumerate(recorded, 1):
        case, alike = _compare(old, new, request, reads)
        cases.append(case)
        texts += [alike] if alike is not None else []
        say(f"parity: {k}/{len(recorded)} replayed, {sum(c.same for c in cases)} alike")
    if texts:
        share = sum(texts) / len(texts)
        detail = f"{sum(texts)} of {len(texts)} the same letter by letter, at least {ALIKE_SHARE:.0%} wanted"
        cases.append(ParityCase(request="all greedy texts", same=share >= ALIKE_SHARE, detail=detail))
    if recorded and old.key_header:
        cases += [
            _refused(old, new, recorded[0], key, name) for key, name in (("wrong", "a wrong key"), ("", "no key"))
        ]
    return tuple(cases)


def _compare(
    old: Target, new: Target, request: dict[str, Any], reads: Callable[[], Answer] | None
) -> tuple[ParityCase, bool | None]:
    """The case, and whether the greedy texts are alike (None: not comparable)."""
    name = _name(request)
    a, b = _ask(old, request, reads), _ask(new, request, reads)
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
    if not b.finish_reason and a.finish_reason:
        differences.append(f"finish reason {a.finish_reason} against none")
    if differences:
        return ParityCase(request=name, same=False, detail="; ".join(differences)), None
    if reads is None and request["body"].get("temperature") != 0:
        detail = "same schema; text not compared (the request asks for sampling)"
        return ParityCase(request=name, same=True, detail=detail), None
    alike = a.text == b.text and a.finish_reason == b.finish_reason
    detail = "same schema, same text"
    if not alike:
        again = _ask(new, request, reads)  # a batch with other requests in it may have tipped the first one
        alike = again.text == a.text and again.finish_reason == a.finish_reason
        detail = "same schema, same text at the second try"
    if not alike:
        k = _common(a.text, b.text)
        hide = hider(old)  # a server that echoes what it is sent
        said = f"{hide(a.text)[:40]!r} against {hide(b.text)[:40]!r}"
        detail = f"same schema; greedy texts part after {k} characters: {said}"
    return ParityCase(request=name, same=True, detail=detail), alike


def _refused(old: Target, new: Target, request: dict[str, Any], key: str, name: str) -> ParityCase:
    a, b = (ask(_at(side, request), _body(request), key=key) for side in (old, new))
    same = a.status == b.status and a.status is not None
    return ParityCase(
        request=f"the first request with {name}", same=same, detail=f"status {a.status} against {b.status}"
    )


def _ask(target: Target, request: dict[str, Any], reads: Callable[[], Answer] | None) -> Reply:
    return ask(_at(target, request), _body(request), answer=reads() if reads is not None else None)


def _at(target: Target, request: dict[str, Any]) -> Target:
    """The route that was recorded; the target's own where the log has none."""
    return dataclasses.replace(target, route=request.get("uri") or target.route)


def _body(request: dict[str, Any]) -> bytes:
    return json.dumps(request["body"], ensure_ascii=False, separators=(",", ":")).encode()


def _name(request: dict[str, Any]) -> str:
    messages = request["body"].get("messages") or [{}]
    if messages == [{}]:
        return f"{request.get('uri', '')} body {hashlib.sha256(_body(request)).hexdigest()[:8]}".strip()
    text = str(messages[-1].get("content", "")) if isinstance(messages[-1], dict) else ""
    return f"{request.get('uri', '')} {text[:60]!r}".strip()


def _common(a: str, b: str) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
