"""The guard as Ansible puts it on a host: its rights, its second run, and what it does when the operator's process is
killed with users half-way.

One lab host with the real monitor (Prometheus behind TLS and password) and a real PowerDNS beside it. What breaks is
that host's own exporter, in the place of a fleet; with a fleet: test_small.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import configured_site as site
import pytest

from inferlift import configure, ssh, toolchain
from inferlift.artifacts import Contract, Endpoint, Fleet, Host, Images, Route
from inferlift.dns import answers, guard, loopback
from inferlift.dns.gating import MetricGate
from inferlift.dns.powerdns import PowerDns
from inferlift.profile import ROOT
from inferlift.toolchain import store

pytestmark = [pytest.mark.lab, pytest.mark.long]

NETWORK, SUBNET, LABEL = f"t-guard-{site.CLONE[:8]}", f"10.233.{int(site.CLONE[:4], 16) % 200 + 50}", "guard"
OLD, NEW, OWNER = "192.0.2.1", "192.0.2.2", "team"
KEY = "the-guards-own-key-0815"


@dataclass
class At:
    folder: Path
    fleet: Fleet
    monitor: Host
    password: str  # reference


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[At]:
    monkeypatch.setattr(site, "NETWORK", NETWORK)
    monkeypatch.setattr(site, "SUBNET", SUBNET)
    monkeypatch.setattr(site, "LABEL", f"inferlift.test={LABEL}-{site.CLONE[:8]}")
    toolchain.ensure(["debian-packages", "host-image", "wheels"], print)
    site.sweep()
    site.podman("network", "create", "--label", site.LABEL, "--subnet", f"{SUBNET}.0/24", NETWORK)
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True)
        (tmp_path / "ssh").mkdir(mode=0o700)
        shutil.copy(tmp_path / "id.pub", tmp_path / "ssh" / "authorized_keys")
        (tmp_path / "ssh" / "authorized_keys").chmod(0o600)
        monitor = site.boot("monitor-1", toolchain.host_image(), tmp_path)
        site.wait_for_ssh(monitor)
        others = [
            monitor.model_copy(
                update={"name": name, "role": name.split("-")[0], "address": f"{SUBNET}.{site.ADDRESSES[name]}"}
            )
            for name in ("gateway-1", "model-1")
        ]  # named for the variables only: they do not exist
        fleet = Fleet(
            label="t/guard/fleet", network=NETWORK, subnet=f"{SUBNET}.0/24", hosts=(*others, monitor),
            endpoints=(Endpoint(site="lab", address=others[0].address),), generation="g",
        )  # fmt: skip
        keys = configure.fleet_secrets(tmp_path / "secrets")
        configure.fleet_certificates(tmp_path / "tls", fleet)
        made = configure.fleet_variables(
            site.profile(), fleet, _contract(tmp_path), Images(images=()), secrets=keys, tls_folder=tmp_path / "tls",
            wheels=toolchain.wheels()[0].parent,
        )  # fmt: skip
        configure.apply(
            fleet.hosts, "site.yml", made.variables, made.secrets, tmp_path / "work", print, limit=["monitor-1"]
        )
        yield At(tmp_path, fleet, monitor, keys["monitor_password"])
    finally:
        site.sweep()


def _contract(folder: Path) -> Contract:
    ca = configure.ensure_ca(folder / "old", "the old world's test")
    certificate, key = configure.issue(ca, folder / "old", site.NAME, dns=(site.NAME,))
    (folder / "user-key").write_text(site.USER_KEY)
    return Contract(
        name=site.NAME, certificate=str(certificate), certificate_key=f"file:{key}", ca=str(ca.cert),
        key_header="X-Api-Key", key=f"file:{folder}/user-key", routes=(Route(path="/a", upstream="/b"),),
    )  # fmt: skip


def test_killed_with_users_half_way_the_guard_takes_them_back(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = f"{SUBNET}.1"
    found = loopback.programs(store.cache() / "name-servers")
    with loopback.powerdns(found, at.folder / "dns", "demo.test.", [(site.NAME, "A", 2, OLD)], bridge) as server:
        api = f"http://{bridge}:{server.api}"
        (at.folder / "key").write_text(server.secret)
        monkeypatch.setenv("DNS_KEY", server.secret)
        first, again = install(at, api)
        print(f"guard installed in {first:.1f} s")
        assert again == 0
        settings = {"kind": "powerdns", "url": api, "key": "env:DNS_KEY", "zone": "demo.test"}
        (at.folder / "dns.json").write_text(json.dumps(settings))
        words = ["switch", "--name", site.NAME, "--old", OLD, "--new", NEW, "--dns", str(at.folder / "dns.json")]
        words += ["--gate", "true", "--authority", bridge, "--resolver", bridge, "--dns-port", str(server.port)]
        words += ["--steps", "10,100", "--ttl", "60", "--owner", OWNER]
        operator = subprocess.Popen(
            [str(ROOT / ".venv/bin/python"), "-m", "inferlift", *words],
            cwd=ROOT, env={**os.environ, "INFERLIFT_CWD": str(at.folder)}, start_new_session=True,
        )  # fmt: skip
        look = PowerDns(
            api, "env:DNS_KEY", "demo.test", names=[site.NAME], addresses=[OLD, NEW], owner=OWNER, run="look"
        )
        moved = answers.wait_visible(
            lambda: look.read(site.NAME).journal is not None and _stepping(look), timeout_s=60, every_s=0.1
        )
        os.killpg(operator.pid, signal.SIGKILL)
        operator.wait(10)
        assert moved is not None
        time.sleep(12)  # the guard looks twice: all is well, so it does nothing
        assert look.read(site.NAME).weights == {OLD: 90, NEW: 10}
        ssh.run(at.monitor, "systemctl stop prometheus-node-exporter")
        broke = time.monotonic()
        back = answers.wait_visible(lambda: look.read(site.NAME).weights == {OLD: 100}, timeout_s=90, every_s=0.2)
        print(f"users were back {time.monotonic() - broke:.1f} s after the new side broke")
        assert back is not None
        journal = look.read(site.NAME).journal
        assert journal is not None
        assert (journal.run, journal.phase, journal.owner) == (guard.RUN, "rolled-back", OWNER)
    # it writes its own record after the zone's
    assert answers.wait_visible(lambda: "rolled_back" in told(at), timeout_s=20, every_s=0.3) is not None
    assert "node away" in told(at)["rolled_back"]["why"]
    assert ssh.run(at.monitor, "ps -o user= -C python3").stdout.split() == ["inferlift-guard"[:7] + "+"]
    assert server.secret not in ssh.run(at.monitor, "journalctl -o cat --no-pager").stdout


def told(at: At) -> Any:
    return json.loads(ssh.run(at.monitor, f"cat {guard.STATE}").stdout)


def _stepping(look: PowerDns) -> bool:
    journal = look.read(site.NAME).journal
    return journal is not None and journal.phase == "stepping"


def install(at: At, api: str) -> tuple[float, int]:
    """Twice: seconds of the first run, changes of the second."""
    inside = "/etc/inferlift-guard"
    gates = [MetricGate("node away", '1 - min(up{job="node",instance="monitor-1"})', 0.0)]
    files = guard.render(
        site.NAME, "demo.test", OLD, NEW, OWNER, guard.GuardBackend("powerdns", url=api, key_file=f"{inside}/key"),
        gates, prometheus="https://127.0.0.1:9090", prometheus_user="inferlift",
        prometheus_password_file=f"{inside}/prometheus-password", prometheus_ca="/etc/inferlift/tls/ca.pem",
        failures=3, every_s=5.0, hardened=False,
    )  # fmt: skip
    listed = []
    for file in files:
        (at.folder / Path(file.path).name).write_text(file.text)
        src = str(at.folder / Path(file.path).name)
        listed.append({"path": file.path, "src": src, "mode": file.mode, "owner": file.owner})
    variables: dict[str, object] = {
        "guard_files": listed,
        "guard_secrets": [
            {"path": f"{inside}/key", "from": "guard_key"},
            {"path": f"{inside}/prometheus-password", "from": "guard_prometheus_password"},
        ],
        "guard_state": guard.STATE,
        "guard_every_s": 5.0,
    }
    secrets = {"guard_key": f"file:{at.folder / 'key'}", "guard_prometheus_password": at.password}
    runs = [
        configure.apply(at.fleet.hosts, "guard.yml", variables, secrets, at.folder / "work", print, limit=["monitor-1"])
        for _ in range(2)
    ]
    checks = [c for c in configure.validate(at.fleet, at.folder / "work") if c.name.startswith("monitor-1: guard")]
    assert checks
    assert [c for c in checks if not c.ok] == []
    return runs[0].seconds, runs[1].changed
