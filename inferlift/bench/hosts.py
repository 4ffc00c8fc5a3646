"""`invoke bench hosts`: how many times the time of one do eight model hosts take, and does a second run change any?

Eight plain lab hosts are made. One of them is configured alone; then it is made anew, and all eight are configured at
once, then once more. Roles: base and llamacpp with the demo's model.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from pathlib import Path

from inferlift.artifacts import DesiredFleet, Fleet, HostGroup

HOSTS = 8
RATIO_AT_MOST = 3.0
MEMORY_BYTES = 700 * 2**20


def run(root: Path, *, as_json: bool = False) -> int:
    """Figures: ratio_8_to_1, rerun_changed, one_seconds, eight_seconds, rerun_seconds."""
    with tempfile.TemporaryDirectory(prefix="inferlift-bench-hosts-") as folder:
        figures = _measure(Path(folder))
    ratio = figures["eight_seconds"] / figures["one_seconds"]
    ok = ratio <= RATIO_AT_MOST and figures["rerun_changed"] == 0
    told = {"ratio_8_to_1": round(ratio, 3), **figures}
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": told}))
    else:
        for name, value in told.items():
            print(f"{name:<22} {value}")
    return 0 if ok else 1


def _measure(folder: Path) -> dict[str, float]:
    from inferlift import provision, toolchain

    toolchain.ensure(["debian-packages", "pulumi", "host-image", "wheels"], _say)
    tools = provision.Tools(
        pulumi_bin=toolchain.pulumi_bin() / "pulumi",
        python_plugin=None,
        host_image=toolchain.host_image(),
        podman_env=toolchain.podman_env(),
    )
    label = f"bench-hosts-{secrets.token_hex(4)}/fleet"
    try:
        alone = provision.apply_fleet(_wanted(label, 1), folder, tools, _say)
        one = _configure(alone, folder / "one")
        provision.destroy_fleet(label, folder, tools, _say)
        fleet = provision.apply_fleet(_wanted(label, HOSTS), folder, tools, _say)
        eight = _configure(fleet, folder / "eight")
        again = _configure(fleet, folder / "eight")
    finally:
        left = provision.destroy_fleet(label, folder, tools, _say)
    if left:
        print("left by the bench: " + ", ".join(left), file=sys.stderr)
    return {
        "rerun_changed": again[1],
        "one_seconds": round(one[0], 1),
        "eight_seconds": round(eight[0], 1),
        "rerun_seconds": round(again[0], 1),
    }


def _wanted(label: str, count: int) -> DesiredFleet:
    group = HostGroup(role="model", count=count, cpus=1.0, memory_bytes=MEMORY_BYTES)
    return DesiredFleet(label=label, groups=(group,), floors={"poc": count})


def _configure(fleet: Fleet, work: Path) -> tuple[float, int]:
    """(seconds, changes) of a playbook run; everything it needs besides is made before the clock starts."""
    from inferlift import configure, toolchain

    keys = configure.fleet_secrets(work / "secrets")
    configure.fleet_certificates(work / "tls", fleet)
    done = configure.apply(
        fleet.hosts,
        "site.yml",
        {
            "base_tls_directory": str(work / "tls"),
            "inferlift_model_roles": ["llamacpp"],
            "llamacpp_wheels": str(toolchain.wheels()[0].parent),
        },
        {"llamacpp_key": keys["model_key"]},
        work,
        lambda line: None,
        forks=HOSTS,
    )
    return done.seconds, done.changed


def _say(line: str) -> None:
    print(line, file=sys.stderr)
