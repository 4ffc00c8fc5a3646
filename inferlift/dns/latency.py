"""Latency records of Route 53 for the edge: users of each region get that region's own name, which is then switched.

    ai.example.com  A  latency eu-central-1  -> alias of eu-central-1.ai.example.com
                    A  latency us-east-1     -> alias of us-east-1.ai.example.com

Each regional name is an ordinary record (weighted while it is switched), so that one region moves without the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlift.dns.record import fqdn
from inferlift.dns.route53 import Record
from inferlift.errors import Refusal


def regional(name: str, region: str) -> str:
    """The name that a region's users are sent to."""
    return f"{region}.{fqdn(name)}"


def entries(zone_id: str, name: str, regions: tuple[str, ...]) -> list[Record]:
    """The latency record sets of a name, one a region, in the order of their names."""
    return [
        {
            "Name": fqdn(name),
            "Type": "A",
            "SetIdentifier": f"inferlift-{region}",
            "Region": region,
            "AliasTarget": {
                "HostedZoneId": zone_id.removeprefix("/hostedzone/"),
                "DNSName": regional(name, region),
                "EvaluateTargetHealth": True,  # a region without a healthy answer: its users go to the next nearest
            },
        }
        for region in sorted(regions)
    ]


def batch(zone_id: str, name: str, present: list[Record], sites: Mapping[str, str], ttl_s: int) -> dict[str, Any]:
    """The change batch that puts latency records in the place of `present` (all A record sets of the name): every
    region's name first gets its address from `sites` (region -> address), then the name itself is replaced.

    Raises Refusal when there is no site, or when `present` is anything but a simple A record or such a set of ours.
    """
    if not sites:
        raise Refusal(f"{name} would have no answer left", why="no region is given")
    for record in present:
        ours = str(record.get("SetIdentifier", "")).startswith("inferlift-") and "Region" in record
        simple = not {"SetIdentifier", "AliasTarget", "HealthCheckId"} & set(record)
        if fqdn(record["Name"]) != fqdn(name) or record["Type"] != "A" or not (ours or simple):
            raise Refusal(f"{name} is not a record that can get regions", why=f"{record['Type']} {record['Name']}")
    before = {str(r["SetIdentifier"]) for r in present if "SetIdentifier" in r}
    wanted = entries(zone_id, name, tuple(sites))
    made = [region for region in sorted(sites) if f"inferlift-{region}" not in before]
    return {
        "Comment": f"inferlift regions of {fqdn(name)}"[:256],
        "Changes": [
            *(
                # CREATE: a regional name that stands already is somebody's, or is being switched
                {
                    "Action": "CREATE",
                    "ResourceRecordSet": {
                        "Name": regional(name, region),
                        "Type": "A",
                        "TTL": ttl_s,
                        "ResourceRecords": [{"Value": sites[region]}],
                    },
                }
                for region in made
            ),
            *({"Action": "DELETE", "ResourceRecordSet": r} for r in present),
            *({"Action": "CREATE", "ResourceRecordSet": r} for r in wanted),
        ],
    }
