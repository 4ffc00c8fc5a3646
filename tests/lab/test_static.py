"""Own hosts: plain Debian machines are checked, claimed, configured, and given back as they were.

The hosts are stand-ins (see plain_hosts): what they cannot show of real machines is said there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from configured_site import declare
from conftest import tools
from plain_hosts import PlainHosts, assert_same, plain_image

from inferlift import configure, provision
from inferlift.artifacts import DesiredFleet
from inferlift.declaration import load
from inferlift.errors import DeclarationError, Refusal
from inferlift.profile import ROOT, Profile
from inferlift.provision.static import plan

pytestmark = pytest.mark.lab
LABEL = "t/static/fleet"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainHosts]:
    hosts = PlainHosts("static", 71, tmp_path_factory.mktemp("static"))
    hosts.raise_hosts(["gateway-1", "model-1", "monitor-1"], plain_image())
    yield hosts
    hosts.sweep()


def profile(plain: PlainHosts, folder: Path, **more: str) -> Profile:
    path = folder / "t-own.yaml"
    path.write_text(
        f"name: t-own\nextends: demo-small\ndescription: own hosts\ntarget: static\n{plain.section(1, **more)}"
    )
    return load(str(path), ROOT).profile


def desired(plain: PlainHosts, folder: Path, replicas: int = 1, **more: str) -> DesiredFleet:
    return plan.document(profile(plain, folder, **more), choice=None, label=LABEL, floors={"poc": replicas})


def apply(plain: PlainHosts, folder: Path, **more: str) -> provision.Fleet:
    return provision.apply_fleet(desired(plain, folder, **more), folder, tools(), print)


def untouched(plain: PlainHosts) -> bool:
    return all(not plain.on(n, "ls -d /var/lib/inferlift-claim 2>/dev/null || true") for n in plain.addresses)


def test_what_is_not_as_declared_is_refused_before_anything_is_changed(plain: PlainHosts, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"1 of 3 hosts cannot be used") as caught:
        apply(plain, tmp_path, model_ram_gb="512")
    assert "model-1" in caught.value.why
    assert "ram_gb: 1.68 found, 512.00 declared" in caught.value.why

    with pytest.raises(Refusal, match=r"2 model hosts are needed"):
        provision.apply_fleet(desired(plain, tmp_path, 2), tmp_path, tools(), print)

    known = plain.known_hosts.read_text()
    try:
        plain.known_hosts.write_text(known.replace("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI", "ssh-ed25519 " + OTHER))
        with pytest.raises(Refusal, match=r"is not the host that"):
            apply(plain, tmp_path)
        plain.known_hosts.write_text("")
        with pytest.raises(Refusal, match=r"the host key of gateway-1"):
            apply(plain, tmp_path)
    finally:
        plain.known_hosts.write_text(known)

    plain.on("gateway-1", "systemd-run --quiet --unit=busy python3 -m http.server 443 && sleep 1")
    with pytest.raises(Refusal) as caught:
        apply(plain, tmp_path)
    assert "something listens on port 443 already" in caught.value.why
    plain.on("gateway-1", "systemctl stop busy")
    assert untouched(plain)


OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAJ"  # begins another key


def test_configured_and_given_back_as_it_was(plain: PlainHosts, tmp_path: Path) -> None:
    plain.on("gateway-1", "printf '#!/usr/sbin/nft -f\\n# of the owner\\n' > /etc/nftables.conf")
    plain.on("gateway-1", "mkdir -p /srv/theirs && echo keep > /srv/theirs/file && useradd -r theirs")
    before = plain.states()
    fleet = apply(plain, tmp_path)
    assert all(c.ok for c in provision.verify_fleet(fleet, tmp_path, tools()))
    assert provision.read_fleet(LABEL, tmp_path, tools()) == fleet
    assert apply(plain, tmp_path) == fleet

    work = tmp_path / "site"
    work.mkdir()
    _, made, _ = declare(work, fleet)
    first = configure.apply(fleet.hosts, "site.yml", made.variables, made.secrets, work / "work", print)
    assert all(row["changed"] for row in first.hosts.values())
    assert [c.name for c in configure.validate(fleet, work / "work") if not c.ok] == []

    other = desired(plain, tmp_path).model_copy(update={"label": "somebody/else"})
    shutil.copytree(tmp_path, tmp_path.parent / "other", dirs_exist_ok=True)
    with pytest.raises(Refusal) as caught:
        provision.apply_fleet(other, tmp_path.parent / "other", tools(), print)
    assert f"it belongs to {LABEL}" in caught.value.why
    # Before the roles are taken away nothing is given back.
    assert any("role base" in line for line in provision.destroy_fleet(LABEL, tmp_path, tools(), print))

    staying = provision.staying_hosts(LABEL, tmp_path)
    assert [h.name for h in staying] == ["gateway-1", "model-1", "monitor-1"]
    taken = configure.apply(staying, "remove.yml", {}, {}, work / "work", print)
    assert [line for line in taken.skipped if "held something before" in line] == [], "nothing was on these hosts"
    assert provision.destroy_fleet(LABEL, tmp_path, tools(), print) == []
    assert_same(before, plain.states())
    assert provision.read_fleet(LABEL, tmp_path, tools()) is None
    assert provision.destroy_fleet(LABEL, tmp_path, tools(), print) == []


def test_a_fleet_needs_a_host_for_each_role(plain: PlainHosts, tmp_path: Path) -> None:
    declared = profile(plain, tmp_path)
    assert declared.static is not None
    models = tuple(h for h in declared.static.hosts if h.role == "model")
    alone = declared.model_copy(update={"static": declared.static.model_copy(update={"hosts": models})})
    with pytest.raises(DeclarationError, match=r"no address of a gateway and no address of a monitor"):
        plan.document(alone, choice=None, label=LABEL, floors={})
