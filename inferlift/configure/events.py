"""What a playbook run says, event by event, and how it is judged: by the hosts expected, never by a status word."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferlift.errors import CheckFailed, InferliftError, Retryable

COUNTS = ("ok", "changed", "failures", "dark", "skipped")


@dataclass(frozen=True)
class Trouble:
    host: str
    task: str
    message: str
    unreachable: bool

    def __str__(self) -> str:
        return f"{self.host}: {self.task}: {self.message}"


@dataclass
class Log:
    """Collects events; the caller scrubs nothing: secrets are taken out here, before anything is kept."""

    secrets: Sequence[str] = ()
    troubles: list[Trouble] = field(default_factory=list)
    skipped: dict[str, None] = field(default_factory=dict)  # ordered, each line once
    digests: dict[str, dict[str, str]] = field(default_factory=dict)  # host -> role -> digest of what was deployed
    removed: dict[str, set[str]] = field(default_factory=dict)  # host -> roles taken away
    changed: list[str] = field(default_factory=list)  # "host: task"
    stats: Mapping[str, Any] | None = None
    _task: str = ""

    def take(self, event: Mapping[str, Any]) -> str | None:
        """Take one event in; returns a progress line when a new task starts."""
        kind = event.get("event", "")
        data = event.get("event_data") or {}
        if kind == "playbook_on_stats":
            self.stats = data
        elif kind == "playbook_on_task_start":
            name = _name(data)
            if name != self._task:
                self._task = name
                return name
        elif kind in ("runner_on_failed", "runner_on_unreachable") and not data.get("ignore_errors"):
            message = scrub(_message(data.get("res") or {}), self.secrets)
            self.troubles.append(Trouble(str(data.get("host")), _name(data), message, kind == "runner_on_unreachable"))
        elif kind == "runner_on_ok":
            self._ok(str(data.get("host")), _name(data), data.get("res") or {})
        return None

    def judge(self, expected: Iterable[str]) -> dict[str, dict[str, int]]:
        """Counts by host. Raises Retryable (hosts do not answer), CheckFailed (one failed or is missing)."""
        hosts = sorted(expected)
        stats = self.stats or {}
        processed = stats.get("processed") or {}
        missing = [h for h in hosts if h not in processed]
        dark = {t.host for t in self.troubles if t.unreachable} | set(stats.get("dark") or {})
        failed = {t.host for t in self.troubles if not t.unreachable} | set(stats.get("failures") or {})
        why = "\n        ".join(str(t) for t in self.troubles[:6])
        problem: type[InferliftError] | None = None
        if failed or dark:
            problem = CheckFailed if failed else Retryable
            what = f"{len(failed | dark)} of {len(hosts)} hosts not configured: {', '.join(sorted(failed | dark))}"
        elif missing:
            problem = CheckFailed
            what = f"{len(missing)} of {len(hosts)} hosts were not processed: {', '.join(missing)}"
            why = why or ("the playbook ended before its first host" if self.stats is None else "no play matched them")
        if problem:
            raise problem(what, why=why, next_command="run the same command again: finished steps are skipped")
        return {
            host: {
                "ok": _count(stats, "ok", host),
                "changed": _count(stats, "changed", host),
                "failed": _count(stats, "failures", host),
                "unreachable": _count(stats, "dark", host),
                "skipped": _count(stats, "skipped", host),
            }
            for host in hosts
        }

    def _ok(self, host: str, task: str, result: Mapping[str, Any]) -> None:
        if result.get("changed"):
            self.changed.append(f"{host}: {task}")
        for role, digest in (result.get("inferlift_digests") or {}).items():
            self.digests.setdefault(host, {})[str(role)] = str(digest)
        for item in result.get("results") or (result,):
            for line in item.get("inferlift_skipped") or ():
                self.skipped[f"{host}: {scrub(str(line), self.secrets)}"] = None
            for role in item.get("inferlift_removed") or ():
                self.removed.setdefault(host, set()).add(str(role))


def forms_of(secrets: Iterable[str]) -> tuple[str, ...]:
    """How secret values may show up in texts: as they are, as JSON, and each line of a key in PEM."""
    forms: set[str] = set()
    for value in secrets:
        forms |= {value, json.dumps(value)[1:-1]}
        forms |= {line for line in value.splitlines() if len(line) >= 20 and not line.startswith("-----")}
    return tuple(sorted(forms))


def scrub(text: str, secrets: Iterable[str]) -> str:
    """`text` without any of the secret values, longest first."""
    for value in sorted({s for s in secrets if len(s) >= 4}, key=len, reverse=True):
        text = text.replace(value, "(secret)")
    return text


def _name(data: Mapping[str, Any]) -> str:
    return str(data.get("task") or data.get("name") or "task").strip()


def _message(result: Mapping[str, Any]) -> str:
    """The most telling part of a failed result: of a loop, the item that failed."""
    for item in result.get("results") or ():
        if item.get("failed"):
            return _message(item)
    if failed := _failed_checks(str(result.get("stdout", ""))):
        return failed
    parts = [str(result[key]).strip() for key in ("msg", "stderr", "stdout") if result.get(key)]
    return " | ".join(dict.fromkeys(parts))[:1500] or "no message"


def _failed_checks(output: str) -> str:
    """A validator's own words: the checks that said no."""
    try:
        rows = json.loads(output)
        return "; ".join(f"{row['name']}: {row['detail']}" for row in rows if not row["ok"])
    except (ValueError, TypeError, KeyError):
        return ""


def _count(stats: Mapping[str, Any], kind: str, host: str) -> int:
    return int((stats.get(kind) or {}).get(host, 0))
