"""A service that exists, moved onto hosts that exist: nothing of either is the lab's as far as the migration knows.

The lab raises an old world for one profile; a second one declares it as a stranger would (`origin:`, its name server by
its API) and has no `lab:` section. The hosts are plain_hosts' stand-ins. The new side's certificate comes from an ACME
authority, proved at that name server; its app from a registry, by digest.
"""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from acme_authority import Authority
from conftest import Lab, approved, tools, users
from plain_hosts import PlainHosts, State, assert_same, state
from registry_host import registry_on
from role_hosts import RoleHosts

from inferlift import ssh
from inferlift.artifacts import Cutover, Delivered, Images, Measurement, Scaled, Watch, World
from inferlift.configure.acme import CHALLENGE
from inferlift.dns.answers import texts_at
from inferlift.dns.powerdns import PowerDns
from inferlift.dns.record import RecordState
from inferlift.images.registry import Registry
from inferlift.ledger import reading
from inferlift.load.users import summarise
from inferlift.profile import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]
MODELS = 3
THEIRS = """name: t-theirs
extends: demo-small
description: Somebody's service, as it was before
"""
MINE = """name: t-mine
extends: demo-small
description: That service, moved to hosts that exist
target: static
lab: null
requests:
  growth_months: 0
targets:
  acceptance_deadline_s: 300    # client and hosts share two cores here
watch:
  seconds: 90                   # six scrapes
data:
  source: {data}
origin:
  name: {name}
  ssh: root@{address}
  ssh_key: {ssh_key}
  known_hosts: {known_hosts}
  logs: {logs}
  body_log: {bodies}
  acme: {{directory: "{directory}", contact: ops@demo.test, ca: {acme_ca}}}
  ca: {trusted}
  key_header: {key_header}
  key: {key}
  routes: {{{path}: {upstream}}}
  max_body_bytes: {max_body}
  dockerfile: {dockerfile}
switch:
  dns: {{kind: powerdns, zone: {zone}, url: "{dns_api}", key: "{dns_key}", ca: {ca},
        authority: [{authority}], resolver: {resolver}}}
  guard: {{key: "{guard_key}", url: "{guard_api}"}}
registry: {{address: "{registry.address}", user: {registry.user}, password: "{registry.password}", ca: {registry.ca}}}
"""


@dataclass
class Stranger:
    """The old world as its owner sees it."""

    world: World
    known_hosts: Path
    authority: Authority
    trusted: Path  # what the service's users trust: whoever vouches for the old side, and for the new one

    def profile(self, hosts: str, registry: Registry) -> str:
        w, c, lab = self.world, self.world.contract, self.world.made
        told = MINE.format(
            data=w.data_path, name=c.name, address=w.address, ssh_key=w.origin.ssh_key, known_hosts=self.known_hosts,
            logs=w.log_glob, bodies=w.body_log, directory=self.authority.directory, acme_ca=self.authority.ca.cert,
            trusted=self.trusted, registry=registry, ca=c.ca, key_header=c.key_header, key=c.key,
            path=c.routes[0].path, upstream=c.routes[0].upstream,
            max_body=c.max_body_bytes, dockerfile=ROOT / "templates/workloads/chat/Dockerfile", zone=w.zone,
            dns_api=lab.dns_api, dns_key=lab.dns_key,
            authority=lab.authority.address, resolver=lab.resolver.address, guard_key=lab.guard_key,
            guard_api=lab.guard_api,
        )  # fmt: skip
        return told + hosts

    def state(self) -> dict[str, State]:
        return {"origin": state(self.world.origin)}

    def proofs(self) -> tuple[str, ...]:
        return texts_at(self.world.authority.address, f"{CHALLENGE}.{self.world.contract.name}")

    def record(self) -> RecordState:
        backend = PowerDns(
            self.world.made.dns_api, self.world.made.dns_key, self.world.zone, ca=self.world.contract.ca,
            names=[self.world.contract.name], addresses=(), owner="a look", run="a look",
        )  # fmt: skip
        return backend.read(self.world.contract.name)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    folder = tmp_path_factory.mktemp("theirs")
    path, known = folder / "t-theirs.yaml", folder / "known_hosts"
    path.write_text(THEIRS)
    lab, authority = Lab("theirs", str(path)), Authority(tmp_path_factory.mktemp("acme"))
    lab.clear()
    try:
        assert lab.invoke("lab", "up").returncode == 0
        world = lab.artifact("world", World)
        known.write_text(f"{world.address} {world.origin.host_key}\n")
        authority.start(f"{world.authority.address}:53")
        trusted = folder / "trusted.pem"
        trusted.write_text(Path(world.contract.ca or "").read_text() + authority.root)
        yield Stranger(world, known, authority, trusted)
    finally:
        authority.end()
        lab.clear()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainHosts]:
    hosts = PlainHosts("mine", 73, tmp_path_factory.mktemp("mine"))
    try:
        hosts.raise_hosts(["gateway-1", *(f"model-{n}" for n in range(1, MODELS + 1)), "monitor-1"], tools().host_image)
        yield hosts
    finally:
        hosts.sweep()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    hosts = RoleHosts("mine-images", 74, tmp_path_factory.mktemp("images"))
    try:
        hosts.raise_hosts(["model-1"], cpus=0.5, memory="600m")
        yield registry_on(hosts.hosts[0], hosts.folder)
    finally:
        hosts.sweep()


@pytest.fixture(scope="module")
def before(stranger: Stranger) -> dict[str, State]:
    return stranger.state()


@pytest.fixture(scope="module")
def plain_before(plain: PlainHosts) -> dict[str, State]:
    return plain.states()


@pytest.fixture(scope="module")
def found(stranger: Stranger) -> RecordState:
    return stranger.record()


@pytest.fixture(scope="module")
def mine(
    stranger: Stranger,
    before: dict[str, State],
    found: RecordState,
    plain: PlainHosts,
    plain_before: dict[str, State],
    registry: Registry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    path = tmp_path_factory.mktemp("profile") / "t-mine.yaml"
    path.write_text(stranger.profile(plain.section(MODELS), registry))
    lab = Lab("mine", str(path))
    lab.clear()
    try:
        yield lab
    finally:
        shutil.rmtree(lab.place.folder / "static", ignore_errors=True)  # the hosts themselves are swept
        lab.clear()


def test_what_is_not_as_declared_is_named_before_anything_is_made(
    mine: Lab, stranger: Stranger, before: dict[str, State], tmp_path: Path
) -> None:
    right, wrong = Path(mine.profile).read_text(), Path(mine.profile).with_name("t-wrong.yaml")
    nobody = tmp_path / "known_hosts"
    nobody.touch()
    cases = {
        f"known_hosts: {stranger.known_hosts}": (f"known_hosts: {nobody}", "compare the fingerprint"),
        f"logs: {stranger.world.log_glob}": ("logs: /var/log/nginx/acess.log*", "no file matches"),
        f"key: {stranger.world.contract.key}": (f"key: file:{ROOT / 'LICENSE'}", "expected one line"),
        f"ssh: root@{stranger.world.address}": (
            f"ssh: root@{stranger.world.address}\n  address: 192.0.2.9", "leads users to"
        ),
    }  # fmt: skip
    for there, (instead, said) in cases.items():
        assert right.count(there) == 1
        wrong.write_text(right.replace(there, instead).replace("name: t-mine", "name: t-wrong"))
        bad = Lab("wrong", str(wrong))
        done = bad.invoke("deploy")
        assert done.returncode == 2, done.stderr[-2000:]
        assert said in done.stderr
        assert bad.hosts() == []
        shutil.rmtree(bad.state, ignore_errors=True)
    assert_same(before, stranger.state())


def test_nothing_of_the_old_side_is_changed_up_to_the_switch(
    mine: Lab, stranger: Stranger, before: dict[str, State], found: RecordState
) -> None:
    approved(mine, "--load-origin", "--to", "scale")
    assert mine.hosts() == mine.hosts("world") == [], "the lab made none of it"
    assert mine.artifact("world", World).lab is None
    measured = mine.artifact("load", Measurement)
    assert measured.run.counts.ok == 100
    assert measured.origin_live is not None
    assert measured.origin_live.counts.ok == 10
    assert [g.verdict for g in mine.artifact("scale", Scaled).gates] == ["pass", "pass"]
    assert_same(before, stranger.state())
    now = stranger.record()
    assert (now.kind, now.weights, now.journal) == ("simple", {stranger.world.address: 1}, None)
    assert now == found


def test_the_gateway_shows_the_authoritys_certificate_and_the_app_is_the_registrys(
    mine: Lab, stranger: Stranger, plain: PlainHosts, registry: Registry
) -> None:
    with reading(mine.place.folder) as ledger:
        assert ledger is not None
        done = [i for i in ledger.intents() if i.action in ("certificate", "deliver")]
    assert [(i.action, i.outcome) for i in done] == [("certificate", "done"), ("deliver", "done"), ("deliver", "done")]
    assert stranger.proofs() == (), "the proof is gone again"
    root = ssl.create_default_context(cadata=stranger.authority.root)
    bare = socket.create_connection((plain.addresses["gateway-1"], 443), 10)
    with root.wrap_socket(bare, server_hostname=stranger.world.contract.name) as shown:
        assert shown.getpeercert(), "users are shown the authority's, with its chain"
    (image,) = mine.artifact("build", Images).images
    first, all_of_them = (Delivered.model_validate_json(i.result or "") for i in done[1:])
    assert first.references == all_of_them.references == (f"{registry.host}/team/{image.name}@{image.digest}",)
    assert first.bytes_sent > 0
    used = [check.name.removeprefix("image on ") for check in all_of_them.checks]
    assert len(used) > len(first.checks) == 1
    for name in used:
        running = plain.on(name, "podman inspect --type=container --format '{{.ImageDigest}}' app")
        assert running.strip() == image.digest


def test_its_users_are_moved_and_nobody_plays_them(
    mine: Lab, stranger: Stranger, before: dict[str, State], tmp_path: Path
) -> None:
    with users(mine.artifact("world", World), stranger.world.resolver.address, tmp_path / "users.jsonl"):
        approved(mine)
    assert set(mine.statuses().values()) == {"done"}
    cutover = mine.artifact("switch", Cutover)
    assert not cutover.rolled_back
    assert [c.same for c in cutover.parity] == [True] * len(cutover.parity) != []
    assert cutover.users == ()
    assert not cutover.guard, "it stands by with its own key"
    assert cutover.old_side is not None
    assert stranger.record().weights == {cutover.new: 100}
    seen = summarise(tmp_path / "users.jsonl", cutover.old, cutover.new)
    resolving, kept = seen
    assert (resolving.failed, resolving.old > 0, resolving.new > 0) == (0, True, True)
    assert (kept.failed, kept.old > 0) == (0, True)  # no DNS moves a connection that is kept: it may stay to the end
    assert mine.artifact("watch", Watch).gates
    assert mine.invoke("deploy").returncode == 0
    ended = mine.invoke("decommission")
    assert "by hand, on root@" in ended.stdout or ended.returncode == 2, "it stops nothing there"
    assert_same(before, stranger.state())


def test_users_come_back_and_all_of_it_is_as_it_was(
    mine: Lab, stranger: Stranger, before: dict[str, State], found: RecordState, plain: PlainHosts,
    plain_before: dict[str, State],
) -> None:  # fmt: skip
    refused = mine.invoke("destroy")
    assert refused.returncode == 2
    assert "DNS points at the fleet" in refused.stderr
    assert mine.invoke("lab", "down").returncode == 2
    assert mine.invoke("rollback").returncode == 0
    assert stranger.record().weights == {stranger.world.address: 100}
    mine.destroyed()
    assert_same(plain_before, plain.states())
    assert_same(before, stranger.state())
    assert stranger.record() == found
    answered = ssh.run(stranger.world.origin, "systemctl is-active nginx", timeout_s=20)
    assert answered.stdout.strip() == "active"
