#!/usr/bin/env python3
"""The guard of a switch: looks at the new side's metrics and, when they fail, gives all users back to the old side.

It runs on the monitor host, so that it is there when the operator's machine is not. It has one write: everything to
the old side (guard_zones.py, beside it). It needs Python's standard library; python3-dnspython for RFC 2136,
python3-boto3 for Route 53.

    guard.py CONFIG.json [--once]
"""

import base64
import json
import os
import socket
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from guard_zones import BACKENDS, NotOurs, Unknown, fetch, secret, shares

Config = dict[str, Any]


# ---- gates


def query(config: Config, expression: str) -> float | None:
    """The value of an expression with at most one series; None when it has none. Raises Unknown."""
    prometheus = config["prometheus"]
    data = urllib.parse.urlencode({"query": expression}).encode()
    request = urllib.request.Request(f"{prometheus['url'].rstrip('/')}/api/v1/query", data)  # noqa: S310
    if prometheus.get("user"):
        pair = f"{prometheus['user']}:{secret(prometheus['password_file'])}"
        request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    answer = fetch(request, prometheus.get("ca"))
    try:
        series = answer["data"]["result"]
        if len(series) > 1:
            raise Unknown(f"{expression} has {len(series)} series where one was expected")
        value = float(series[0]["value"][1]) if series else None
    except (KeyError, TypeError, ValueError, IndexError):
        raise Unknown("Prometheus gave no usable answer") from None
    return value if value is not None and value == value and abs(value) != float("inf") else None


def judge(gate: Config, value: float | None, count: float | None) -> str:
    """ "pass", "fail" or "inconclusive". No data, or too few samples, decide nothing."""
    if value is None or (gate.get("count") and (count is None or count < gate["minimum"])):
        return "inconclusive"
    return "fail" if value > gate["target"] else "pass"


def look(config: Config) -> tuple[str, str]:
    """One look at all gates: (verdict, why)."""
    found, why = [], []
    for gate in config["gates"]:
        try:
            value = query(config, gate["query"])
            count = query(config, gate["count"]) if gate.get("count") else None
            verdict = judge(gate, value, count)
            seen = "no data" if value is None else f"{value:.4g}"
            said = f"{gate['name']}: {seen}, at most {gate['target']}"
        except Unknown as error:
            verdict, said = "inconclusive", f"{gate['name']}: {error}"
        found.append(verdict)
        if verdict != "pass":
            why.append(said)
    verdict = "fail" if "fail" in found else "pass" if found and set(found) == {"pass"} else "inconclusive"
    return verdict, "; ".join(why)


# ---- the one write


def back(config: Config, record: Config) -> Config | None:
    """The journal of the only write there is: everything on the old side. None when there is nothing to take back.

    Raises NotOurs when the record is not exactly what this switch's journal says.
    """
    old, new, journal = config["old"], config["new"], record["journal"]
    if journal is None:
        if new in record["weights"]:
            raise NotOurs("the record has no journal: no switch of ours is under way")
        return None
    if journal.get("owner") != config["owner"] or set(journal.get("intended", {})) != {old, new}:
        raise NotOurs(f"the record belongs to {journal.get('owner')}")
    if shares(record["weights"]) != shares(journal["intended"]) or record["ttl_s"] != journal["ttl_s"]:
        raise NotOurs(f"somebody else changed the record: it answers {record['weights']}")
    if new not in shares(record["weights"]):
        return None
    changed = {"run": "guard", "phase": "rolled-back", "sequence": journal["sequence"] + 1}
    return dict(journal, intended={old: 100, new: 0}, **changed)


# ---- one tick


def tick(config: Config, zone: Any, state: Config) -> str:
    """Look once; after enough failing looks in a row, take everything back. Returns what happened, in a word."""
    verdict, why = look(config)
    state["verdict"], state["why"], state["at"] = verdict, why, int(time.time())
    if verdict == "pass":
        state["failures"] = 0
    elif verdict == "fail":  # no data decides nothing, and takes nothing back
        state["failures"] = state.get("failures", 0) + 1
    record = zone.read()  # at every look, so that a guard that could not act is known before it has to
    if state.get("failures", 0) < config["failures"]:
        return verdict
    journal = back(config, record)
    if journal is None:
        return verdict
    zone.put_back(record, journal)
    after = zone.read()
    if set(shares(after["weights"])) != {config["old"]}:
        raise Unknown(f"written, and still answered: {after['weights']}")
    state["rolled_back"], state["failures"] = {"at": int(time.time()), "why": why}, 0
    return "rolled back"


def step(config: Config, zone: Any, state: Config) -> str:
    """A tick with its outcome told: log, state file, webhook."""
    before = state.get("outcome")
    try:
        outcome, why = tick(config, zone, state), state.get("why", "")
    except NotOurs as error:
        outcome, why = "left alone", str(error)
    except Unknown as error:
        outcome, why = "unknown", str(error)
    state["outcome"] = outcome
    if outcome != before or outcome == "rolled back":
        print(f"{config['name']}: {outcome}" + (f" ({why})" if why else ""), flush=True)
    keep(config, state)
    if outcome == "rolled back" or (outcome == "left alone" and before != outcome):
        tell(config, outcome, why)
    return outcome


def tell(config: Config, outcome: str, why: str) -> None:
    if not config.get("webhook_file"):
        return
    body = {"event": outcome, "name": config["name"], "by": "guard", "why": why, "at": int(time.time())}
    try:
        hook = secret(config["webhook_file"])
        request = urllib.request.Request(hook, json.dumps(body).encode(), method="POST")  # noqa: S310
        request.add_header("Content-Type", "application/json")
        fetch(request, None, parsed=False)
    except (Unknown, ValueError) as error:  # ValueError: no URL; its text may be a key, so it is not told
        said = error if isinstance(error, Unknown) else "it is no URL"
        print(f"the webhook was not reached: {said}", flush=True)


def keep(config: Config, state: Config) -> None:
    path = config["state_file"]
    part = Path(path + ".part")
    part.write_text(json.dumps(state, sort_keys=True), encoding="utf-8")
    part.replace(path)


def kept(config: Config) -> Config:
    try:
        state: Config = json.loads(Path(config["state_file"]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # a count that is older than some ticks says nothing any more
    return state if time.time() - state.get("at", 0) < 3 * config["every_s"] + 30 else {}


def alive(word: str) -> None:
    """Tell systemd; nothing where there is none."""
    path = os.environ.get("NOTIFY_SOCKET")
    if path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.connect("\0" + path[1:] if path.startswith("@") else path)
            to.send(word.encode())


def main(argv: list[str]) -> int:
    config: Config = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    zone, state = BACKENDS[config["backend"]["kind"]](config), kept(config)
    if "--once" in argv:
        return 0 if step(config, zone, state) in ("pass", "inconclusive", "rolled back") else 1
    alive("READY=1")
    while True:
        step(config, zone, state)
        alive("WATCHDOG=1")
        time.sleep(config["every_s"])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
