"""`invoke load --url`: the load test of one endpoint or several in turn, without a migration around it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace

from inferlift.artifacts import Verdict
from inferlift.errors import Interrupted
from inferlift.load import client, comparison
from inferlift.load.asked import Asked, check, drawn, times
from inferlift.load.comparison import Found
from inferlift.load.endpoint import target
from inferlift.load.hidden import url_shown
from inferlift.load.measuring import Run, Say, measure
from inferlift.load.outputs import prepare
from inferlift.load.selfcheck import Drive, self_check

__all__ = ["Asked", "standalone"]

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
INTERRUPTED = 130


def standalone(
    asked: Asked, *, as_json: bool = False, say: Say | None = None, out: Callable[[str], None] = print
) -> int:
    """Run it and print the table (or one JSON object). Returns 0 (every gate passes), 1 (one fails), 3 (undecided) or
    130 (stopped by hand; what was measured until then is reported).

    Raises DeclarationError before anything is sent for what cannot be carried out, Interrupted where nothing was
    measured yet.
    """
    tell = say or (lambda text: print(text, file=sys.stderr))
    check(asked)
    if asked.seed is None:
        asked = replace(asked, seed=drawn())
    protocol = asked.sent.make()
    where = [
        target(url, protocol, key=asked.key, key_header=asked.key_header, ca=asked.ca, timeout_s=asked.timeout_s,
               model=asked.sent.model) for url in asked.urls
    ]  # fmt: skip
    if protocol.transport == "http":
        for one in where:
            protocol.head(one)  # what no request can carry is told now
    scheduled = times(asked)
    run = _runner(asked)
    folder = prepare(asked)
    found: list[Found] = []
    drive: Drive | None = None
    interrupted = False
    try:
        if asked.check_self and protocol.transport == "http" and not asked.workers:
            drive = self_check()
            tell(str(drive))
            _warn(asked, drive, scheduled, tell, streams=protocol.streams)
        for k, (name, endpoint) in enumerate(zip(_names(asked.urls), where, strict=True)):
            if len(where) > 1:
                tell(f"endpoint {k + 1} of {len(where)}: {name}")
            price = asked.prices[k] if k < len(asked.prices) else None
            found.append(measure(asked, name, endpoint, scheduled, folder / f"{k + 1}.jsonl", price, tell, run))
            if found[-1].interrupted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        interrupted = True
        if not found:
            raise Interrupted(
                "stopped before anything was measured", next_command="the same command begins anew"
            ) from None
        tell("stopped: the report holds what was measured until now")
    decided = _together(found, whole=len(found) == len(where))
    try:
        if asked.html is not None:
            from inferlift.load.page import write

            write(asked.html, found, decided, drive)
        if asked.junit is not None:
            from inferlift.load.junit import write as write_junit

            write_junit(asked.junit, found)
    finally:
        document = comparison.document(found, decided, drive) | {"interrupted": interrupted, "folder": str(folder)}
        out(json.dumps(document) if as_json else comparison.table(found, decided) + f"\nsamples: {folder}")
    return INTERRUPTED if interrupted else EXIT[decided]


def _names(urls: tuple[str, ...]) -> list[str]:
    """The endpoints as they may be shown, no two alike."""
    shown = [url_shown(url) for url in urls]
    return [
        name if shown.count(name) == 1 else f"{name} ({shown[: k + 1].count(name)})" for k, name in enumerate(shown)
    ]


def _runner(asked: Asked) -> Run:
    if not asked.workers:
        return client.run
    from inferlift.load.distributed import runner

    return runner(asked)


def _warn(asked: Asked, drive: Drive, scheduled: tuple[float, ...] | None, tell: Say, *, streams: bool) -> None:
    can = drive.stream_rps if streams else drive.plain_rps
    rate = asked.find_knee or 0.0
    if scheduled is not None and len(scheduled) > 1 and scheduled[-1] > 0:
        rate = (len(scheduled) - 1) / scheduled[-1]
    if rate > 0.8 * can:
        tell(f"the rate asked is near what this machine can drive ({can:.0f}/s): the client may become the limit")


def _together(found: list[Found], *, whole: bool) -> Verdict:
    """A test that was stopped decides nothing."""
    verdicts = [f.verdict for f in found]
    if not whole or any(f.interrupted for f in found):
        return "inconclusive"
    if "fail" in verdicts:
        return "fail"
    return "pass" if set(verdicts) == {"pass"} else "inconclusive"
