"""Shadow traffic: the old nginx sends a copy of some live requests to the new side; users get the old answer only.

The snippet is text for a person to look at and include. Both sides' answers are paired by request id and compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from inferlift.artifacts import Gate
from inferlift.dns.gating import error_gate, no_data, quantile, value_gate
from inferlift.dns.pinned import MARGIN_MS
from inferlift.errors import DeclarationError

HOST = re.compile(r"[A-Za-z0-9.-]{1,253}")
PATH = re.compile(r"/[A-Za-z0-9._~/-]*")
OWN = re.compile(r"/[A-Za-z0-9._~/-]*( [a-z_]+)?")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
DROPPED = 599  # the status of a copy beyond the limit
LOG = "/var/log/nginx/shadow.log"
ZONE = "inferlift_shadow"


@dataclass(frozen=True)
class Snippet:
    """Where each text goes in the old side's nginx, and what it does, in words."""

    http: str  # into http { }
    location: str  # into each location whose requests are copied
    server: str  # into the server { } of those locations
    explanation: str


def snippet(
    name: str,
    new: str,
    *,
    share: float,
    ca: str,
    port: int = 443,
    connections: int = 4,
    log: str = LOG,
    own_logs: tuple[str, ...] = (),
) -> Snippet:
    """What copies `share` percent of the requests to `new`, an address, over TLS under the users' `name`.

    `ca`: path, on the old host, of the CA that vouches for the new side's certificate. `connections`: copies that may
    be under way at once; more are dropped, so that a slow new side cannot hold the old one's requests up. `own_logs`:
    the old side's `access_log` lines ("FILE FORMAT"), which must go on. Raises DeclarationError for anything that
    cannot stand in a configuration.
    """
    if not 0 < share <= 100:
        raise DeclarationError(f"a share of {share} % cannot be mirrored", why="more than 0, at most 100")
    for what, text, form in (("name", name, HOST), ("address", new, HOST), ("CA", ca, PATH), ("log", log, PATH)):
        if not form.fullmatch(text):
            raise DeclarationError(f"{text!r} is no {what} that can stand in nginx's configuration")
    for text in own_logs:
        if not OWN.fullmatch(text):
            raise DeclarationError(f"{text!r} is no log that can stand in nginx's configuration")
    chosen = f'    {share:g}% {new}:{port};\n    * "";\n' if share < 100 else f"    * {new}:{port};\n"
    # nginx keeps one set of variables for a request and its copy, so each side has a log format of its own; and a
    # request lasts as long as its copy, so each side's own time is its upstream's
    line = '{"id":"$request_id","side":"%s","uri":"$request_uri","status":"$status",'
    line += '"seconds":"$upstream_response_time","whole":"$request_time"}'
    http = f"""# inferlift shadow: which requests are copied, and what is written down about them
split_clients "$request_id" $inferlift_shadow {{
{chosen}}}
limit_conn_zone $server_name zone={ZONE}:1m;
log_format inferlift_old escape=json '{line % "old"}';
log_format inferlift_new escape=json '{line % "new"}';
"""
    own = "".join(f"access_log {file};\n" for file in own_logs)
    location = f"""mirror /inferlift-shadow;
mirror_request_body on;
access_log {log} inferlift_old if=$inferlift_shadow;
{own}"""
    server = f"""location = /inferlift-shadow {{
    internal;
    if ($inferlift_shadow = "") {{ return 204; }}
    limit_conn {ZONE} {connections};
    limit_conn_status {DROPPED};
    log_subrequest on;
    access_log {log} inferlift_new if=$inferlift_shadow;
    proxy_pass https://$inferlift_shadow$request_uri;
    proxy_set_header Host {name};
    proxy_set_header X-Shadow 1;
    proxy_ssl_server_name on;
    proxy_ssl_name {name};
    proxy_ssl_verify on;
    proxy_ssl_trusted_certificate {ca};
    proxy_connect_timeout 1s;
    proxy_read_timeout 30s;
}}
"""
    explanation = f"""{share:g} % of the requests, picked by their id, are sent to {new}:{port} a second time.
- The answers of that side are thrown away.
- Users get the old side's answer, unchanged. nginx ends a request only when its copy has ended too: a keep-alive
  connection is free for its next request that much later. At most {connections} copies run at once, others are dropped.
- Bodies are copied whole, so they are read before they are passed on: no streaming uploads while this is on.
- Requests that change something happen twice. Mirror only routes that may be repeated: inference, no orders.
- Keys in headers are sent along: the new side must know them, and may know them.
- `access_log` in a location replaces the server's own there: they stand beside it, as they were given here.
- Put the `http` part into http {{ }}, the `server` part into the server {{ }} of the mirrored locations, the `location`
  part into each of them, run `nginx -t`, reload. Take them out and reload to end it. {log} holds ids, not bodies.
"""
    return Snippet(http, location, server, explanation)


@dataclass(frozen=True)
class Compared:
    """Pairs of answers to the same request. `alone`: copies that were dropped or are still under way."""

    pairs: int
    alone: int
    differing: tuple[str, ...]  # the first few, in words
    worse: int  # the old side answered well and the new one did not
    old_p95_s: float | None
    new_p95_s: float | None


def compare(lines: Iterable[str]) -> Compared:
    """Read the shadow log: one JSON object a line, two lines an id. What cannot be read is left out."""
    seen: dict[str, dict[str, tuple[int, float, str]]] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            key, side, uri = str(entry["id"]), str(entry["side"]), str(entry["uri"])
            status, seconds = int(entry["status"]), _seconds(entry)
        except (ValueError, KeyError, TypeError):
            continue
        if status != DROPPED:
            seen.setdefault(key, {})[side] = (status, seconds, urlsplit(uri).path)
    pairs = [sides for sides in seen.values() if {"old", "new"} <= set(sides)]
    worse = [s for s in pairs if s["old"][0] < 400 <= s["new"][0]]
    differing = Counter(
        f"{s['new'][2]}: {s['old'][0]} there, {s['new'][0]} here" for s in pairs if s["old"][0] != s["new"][0]
    )
    return Compared(
        pairs=len(pairs),
        alone=len(seen) - len(pairs),
        differing=tuple(f"{count} x {what}" for what, count in differing.most_common(5)),
        worse=len(worse),
        old_p95_s=quantile([s["old"][1] for s in pairs], 0.95),
        new_p95_s=quantile([s["new"][1] for s in pairs], 0.95),
    )


def _seconds(entry: dict[str, object]) -> float:
    """The upstream's, all its tries together; the request's own where nginx answered by itself. Raises ValueError."""
    tries = NUMBER.findall(str(entry["seconds"]))
    return sum(map(float, tries)) if tries else float(str(entry["whole"]))


def shadow_gates(found: Compared, *, minimum: int, slower: float = 1.5) -> tuple[Gate, ...]:
    """The new side may answer none worse than the old one, and its P95 may be at most `slower` times the old one's, or
    MARGIN_MS more."""
    source = "shadow requests"
    detail = "; ".join(found.differing)
    worse = error_gate(
        "shadow answers", found.worse, found.pairs, target=0.0, minimum=minimum, source=source, detail=detail
    )
    if found.old_p95_s is None or found.new_p95_s is None:
        return worse, no_data("shadow P95", source, "no pair of answers yet")
    was = 1000 * found.old_p95_s
    return worse, value_gate(
        "shadow P95", 1000 * found.new_p95_s, found.pairs, target=max(slower * was, was + MARGIN_MS), minimum=minimum,
        unit="ms", source=source,
    )  # fmt: skip
