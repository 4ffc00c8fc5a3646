"""The guard as files for the monitor host: its script, its configuration, its unit. What it does: templates/guard.

Its credentials are the narrowest that the back end can give; what cannot be narrowed is said by `narrowing`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import jinja2

from inferlift.dns.gating import MetricGate
from inferlift.dns.record import fqdn, journal_name
from inferlift.errors import DeclarationError

TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "guard"
SCRIPT = "/usr/local/lib/inferlift/guard.py"
ZONES = "/usr/local/lib/inferlift/guard_zones.py"  # found beside the script
CONFIG = "/etc/inferlift-guard/guard.json"
UNIT = "/etc/systemd/system/inferlift-guard.service"
STATE = "/var/lib/inferlift-guard/state.json"
RUN = "guard"  # the run that its journal names
PACKAGES = {"powerdns": (), "rfc2136": ("python3-dnspython",), "route53": ("python3-boto3",)}


@dataclass(frozen=True)
class GuardBackend:
    """Where the answers are decided. Paths are on the monitor host; secrets stay in files there.

    powerdns: `url`, `key_file`, `ca`. rfc2136: `server`, `port`, `key_name`, `key_file`, `algorithm`. route53:
    `zone_id`; its credentials are the host's own role.
    """

    kind: Literal["powerdns", "rfc2136", "route53"]
    url: str = ""
    ca: str | None = None
    key_file: str = ""
    key_name: str = ""
    algorithm: str = "hmac-sha256"
    server: str = ""
    port: int = 53
    zone_id: str = ""


@dataclass(frozen=True)
class HostFile:
    path: str
    text: str
    mode: str
    owner: str


def render(
    name: str,
    zone: str,
    old: str,
    new: str,
    owner: str,
    backend: GuardBackend,
    gates: Sequence[MetricGate],
    *,
    prometheus: str,
    prometheus_user: str | None = None,
    prometheus_password_file: str | None = None,
    prometheus_ca: str | None = None,
    failures: int = 3,
    every_s: float = 15.0,
    webhook_file: str | None = None,
    user: str = "inferlift-guard",
    hardened: bool = True,
) -> tuple[HostFile, ...]:
    """The guard's files. `owner` is the one in the record's journal. `failures`: failing looks in a row, one every
    `every_s` seconds, before it takes users back; more than the operator's own run needs, so that it acts second.
    `hardened` False: without what needs mount namespaces, for hosts that are containers.

    Gates of the old side are left out: a failing old side is no reason to go back to it. Raises DeclarationError
    without a gate, or where a value is missing.
    """
    judged = [g for g in gates if g.side == "new side"]
    if not judged:
        raise DeclarationError("a guard without a gate guards nothing")
    if old == new:
        raise DeclarationError(f"{name}: old and new side are the same address {old}")
    config = {
        "name": fqdn(name),
        "zone": fqdn(zone),
        "old": old,
        "new": new,
        "owner": owner,
        "backend": _backend(backend),
        "prometheus": {
            "url": prometheus,
            "user": prometheus_user,
            "password_file": prometheus_password_file,
            "ca": prometheus_ca,
        },
        "gates": [
            {"name": g.name, "query": g.query, "target": g.target, "count": g.count, "minimum": g.minimum}
            for g in judged
        ],
        "failures": failures,
        "every_s": every_s,
        "webhook_file": webhook_file,
        "state_file": STATE,
    }
    environment = jinja2.Environment(  # noqa: S701 (a unit file is no page)
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    unit = environment.get_template("inferlift-guard.service.j2").render(
        name=fqdn(name).rstrip("."),
        user=user,
        script=SCRIPT,
        config=CONFIG,
        watchdog_s=round(every_s + 20 * len(judged) + 60),
        hardened=hardened,
    )
    return (
        HostFile(SCRIPT, (TEMPLATES / "guard.py").read_text(encoding="utf-8"), "0755", "root"),
        HostFile(ZONES, (TEMPLATES / "guard_zones.py").read_text(encoding="utf-8"), "0644", "root"),
        HostFile(CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n", "0640", user),
        HostFile(UNIT, unit, "0644", "root"),
    )


def narrowing(
    kind: str, name: str, zone: str, *, zone_id: str = "", key_name: str = "inferlift-guard"
) -> dict[str, str]:
    """How far the guard's credentials can be narrowed on a back end: text to put there, and what is left open."""
    at, journal = fqdn(name).rstrip("."), journal_name(name).rstrip(".")
    if kind == "route53":
        return {"policy": json.dumps(_iam(zone_id, at, journal), indent=2), "open": IAM_OPEN}
    if kind == "rfc2136":
        relative = [n.removesuffix("." + fqdn(zone).rstrip(".")) for n in (at, journal)]
        knot = (
            f"acl:\n  - id: {key_name}\n    key: {key_name}\n    action: update\n    update-owner: name\n"
            f"    update-owner-match: equal\n    update-owner-name: [{', '.join(relative)}]\n"
            "    update-type: [A, TXT]\n"
        )
        bind = f"update-policy {{ grant {key_name} name {at}. A; grant {key_name} name {journal}. TXT; }};\n"
        return {"knot": knot, "bind": bind, "open": TSIG_OPEN}
    if kind == "powerdns":
        return {"proxy": _proxy(zone), "open": POWERDNS_OPEN}
    raise DeclarationError(f"there is no guard for the back end {kind!r}", why=f"one of {', '.join(PACKAGES)}")


IAM_OPEN = (
    "IAM narrows to the zone, the two names, the types and the actions, not to values: whoever holds the role can put "
    "any address there. DELETE is among the actions, since a batch that compares is made of DELETE and CREATE."
)
TSIG_OPEN = (
    "The policy narrows to the two names and the types A and TXT, not to values: the key can put any address there."
)
POWERDNS_OPEN = (
    "PowerDNS has one API key for all zones and all calls; it cannot be narrowed. The proxy before the API gives the "
    "guard a key of its own that may GET and PATCH this one zone; any record of that zone stays open to it."
)


def _backend(given: GuardBackend) -> dict[str, Any]:
    wanted = {
        "powerdns": ("url", "key_file", "ca"),
        "rfc2136": ("server", "port", "key_name", "key_file", "algorithm"),
        "route53": ("zone_id",),
    }[given.kind]
    found: dict[str, Any] = {"kind": given.kind, **{field: getattr(given, field) for field in wanted}}
    if missing := [field for field in wanted if found[field] == ""]:
        raise DeclarationError(f"the guard's back end {given.kind} lacks {', '.join(missing)}")
    if given.kind == "rfc2136":
        found["key_name"] = fqdn(given.key_name)
    return found


def _proxy(zone: str) -> str:
    """nginx before the API on the authority: the guard's own key goes in, the API's key is added here."""
    path = quote(fqdn(zone), safe="").replace("%", "=")
    return f"""# server {{ }} of a TLS listener that only the monitor host reaches; both files are root's, mode 0600
# guard-key.conf: set $inferlift_guard_key "...";   api-key.conf: proxy_set_header X-API-Key "...";
location = /api/v1/servers/localhost/zones/{path} {{
    include /etc/nginx/inferlift/guard-key.conf;
    if ($http_x_api_key != $inferlift_guard_key) {{ return 401; }}
    limit_except GET PATCH {{ deny all; }}
    include /etc/nginx/inferlift/api-key.conf;
    proxy_pass http://127.0.0.1:8081;
}}
location / {{ return 404; }}
"""


def _iam(zone_id: str, name: str, journal: str) -> dict[str, Any]:
    zone = f"arn:aws:route53:::hostedzone/{zone_id.removeprefix('/hostedzone/')}"
    changes = {
        "route53:ChangeResourceRecordSetsNormalizedRecordNames": [name, journal],
        "route53:ChangeResourceRecordSetsRecordTypes": ["A", "TXT"],
        "route53:ChangeResourceRecordSetsActions": ["CREATE", "DELETE"],
    }
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "route53:ChangeResourceRecordSets",
                "Resource": zone,
                "Condition": {"ForAllValues:StringEquals": changes},
            },
            {"Effect": "Allow", "Action": "route53:ListResourceRecordSets", "Resource": zone},
        ],
    }
