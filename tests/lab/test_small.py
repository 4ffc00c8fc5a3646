"""How a finished migration behaves, on the demo with 100 requests: what changed is found, named, repaired or held;
the ways back work; nothing foreign is touched; no secret is anywhere."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Lab, tools

from inferlift import migration, process, provision, ssh
from inferlift.artifacts import Check, Cutover, Evidence, Measurement, Scaled, Service, SwitchStep, World
from inferlift.configure import gateway as gateway_api
from inferlift.dns import shadow
from inferlift.ledger import reading
from inferlift.load import probe
from inferlift.load.target import Target
from inferlift.profile import ROOT
from inferlift.provision.static import power as own
from inferlift.stages import _fleet
from inferlift.stages.scale import ScaleStage
from inferlift.stages.switch import SwitchStage

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def moved(small: Lab) -> Lab:
    """The migration that test_kills.py brought to its end, or one of its own where that did not run."""
    if set(small.statuses().values()) != {"done"}:
        done = small.invoke("deploy", "--load-origin")
        assert done.returncode == 0, done.stderr[-3000:]
    return small


@pytest.fixture(scope="module")
def foreign(small: Lab) -> Iterator[list[str]]:
    """A container, a network and a volume of somebody else's, with names as ours might be."""
    name = f"inferlift-{small.place.owner.replace('/', '-')}-fleet-model-9"
    image = tools().host_image
    process.run(["podman", "network", "create", f"{name}-net"], timeout_s=30)
    process.run(["podman", "volume", "create", f"{name}-vol"], timeout_s=30)
    process.run(["podman", "create", "--name", name, "--network", "none", image, "true"], timeout_s=60)
    yield [name, f"{name}-net", f"{name}-vol"]
    process.run(["podman", "rm", "-f", name], timeout_s=30)
    process.run(["podman", "network", "rm", f"{name}-net"], timeout_s=30)
    process.run(["podman", "volume", "rm", f"{name}-vol"], timeout_s=30)


def service_of(lab: Lab) -> Service:
    with reading(lab.place.folder) as ledger:
        assert ledger is not None
        return Service.model_validate(ledger.document("service"))


@pytest.fixture
def at(moved: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[migration.Context]:
    monkeypatch.setenv("INFERLIFT_STATE", str(moved.state))
    with migration.session(moved.place, "test") as ctx:
        ctx.stage, ctx.key = "test", "test"
        yield ctx


def test_the_old_side_is_sampled_live_only_when_asked_and_within_its_cap(moved: Lab) -> None:
    live = moved.artifact("load", Measurement).origin_live
    assert live is not None
    assert live.counts.planned == moved.place.profile.load.origin_requests


def test_without_the_spare_the_deadline_is_missed(at: migration.Context) -> None:
    """The quotas bind: with one host less, losing a replica costs the deadline."""
    scaled = at.need("scale", Scaled)
    assert scaled.with_loss.seconds <= scaled.deadline_s
    service = _fleet.current(at)
    gateway, models = service.fleet.by_role("gateway")[0], service.fleet.by_role("model")
    gateway_api.drain(gateway, models[0].name)
    try:
        stage = ScaleStage()
        at.stage = "scale"
        loss = stage._with_loss(at, _without(service, models[0].name), scaled.deadline_s)
    finally:
        gateway_api.undrain(gateway, models[0].name)
    failed = loss.run.counts.planned - loss.run.counts.ok
    assert loss.run.seconds > scaled.deadline_s or failed > loss.in_flight


def test_requests_sent_to_a_host_that_just_vanished_are_answered_by_another(moved: Lab) -> None:
    """Cut off with connections kept open to it: what is sent on them is never acknowledged, nor refused."""
    world, service = moved.artifact("world", World), service_of(moved)
    target = replace(_as_an_old_app(world), address=service.endpoint.address)
    gateway, lost = service.fleet.by_role("gateway")[0], service.fleet.by_role("model")[-1]
    with ThreadPoolExecutor(8) as pool:

        def ask() -> list[Check]:
            return list(pool.map(lambda _: probe.once(target, timeout_s=40), range(8)))

        assert all(c.ok for c in ask())  # every host has been asked, and its connections are kept
        own.off(lost)
        try:
            answered = ask()
        finally:
            own.on(lost)
    assert [c.detail for c in answered if not c.ok] == []
    _wait(lambda: all(s.status.startswith("UP") for s in gateway_api.servers(gateway)), 60)


def _without(service: Service, name: str) -> Service:
    hosts = tuple(h for h in service.fleet.hosts if h.name != name)
    return service.model_copy(update={"fleet": service.fleet.model_copy(update={"hosts": hosts})})


def test_a_deleted_host_and_a_stopped_service_are_named_and_repaired_at_once_without_a_load_test(moved: Lab) -> None:
    *_, stopped, deleted = service_of(moved).fleet.by_role("model")
    process.run(["podman", "rm", "-f", "-t", "0", str(deleted.container)], timeout_s=60)
    ssh.run(stopped, "systemctl stop llamacpp")
    before = moved.artifact("load", Measurement)
    done = moved.invoke("deploy")
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(rf"found: .*{deleted.name}", done.stderr)
    assert re.search(rf"found: {stopped.name}.*llamacpp", done.stderr)
    assert ssh.run(stopped, "systemctl is-active llamacpp").stdout.strip() == "active"
    assert moved.artifact("load", Measurement) == before
    assert moved.invoke("deploy").stderr.count(" verified: ") == 10


def test_a_weight_changed_by_someone_else_is_named_and_held(moved: Lab) -> None:
    world, new = moved.artifact("world", World), service_of(moved).endpoint.address
    script = f"A \"pickwrandom({{{{50,'{world.origin.address}'}},{{50,'{new}'}}}})\""
    rrset = {
        "name": f"{world.contract.name}.", "type": "LUA", "ttl": 2, "changetype": "REPLACE",
        "records": [{"disabled": False, "content": script}],
    }  # fmt: skip
    _patch(world, rrset)
    monitor = service_of(moved).fleet.by_role("monitor")[0]
    ssh.run(monitor, "cp -p /etc/prometheus/prometheus.yml /root/; echo '# by hand' >>/etc/prometheus/prometheus.yml")
    drifted = moved.invoke("status", "--drift")
    ssh.run(monitor, "mv /root/prometheus.yml /etc/prometheus/")
    assert drifted.returncode == 0, drifted.stderr[-3000:]
    assert re.search(r"hosts +as it was left: Pulumi", drifted.stdout)
    assert re.search(r"configuration +DRIFT: Ansible would change [0-9]+ things on monitor-1", drifted.stdout)
    assert re.search(r"DNS +DRIFT: .*changed by someone else", drifted.stdout)
    assert drifted.stdout.count("configuration") == 1
    done = moved.invoke("deploy")
    assert done.returncode == 3, done.stderr[-3000:]
    assert "changed by someone else" in done.stderr
    assert "./invoke rollback" in done.stderr


def test_rollback_takes_users_back_and_deploy_holds_until_told_otherwise(moved: Lab) -> None:
    done = moved.invoke("rollback")
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"after \d+\.\d s", done.stdout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFERLIFT_STATE", str(moved.state))
        with migration.session(moved.place, "test") as ctx:
            assert SwitchStage().users_at(ctx) == {moved.artifact("world", World).origin.address: 100}
    held = moved.invoke("deploy")
    assert held.returncode == 3
    assert "taken back" in held.stderr


def test_the_old_nginx_mirrors_live_requests_and_the_first_look_compares_both_answers(moved: Lab) -> None:
    """The snippet as it is printed, put into the origin's own nginx by hand. What it wrote is judged by the next
    switch, below; the mirror itself is out again by then."""
    world, shadowed = moved.artifact("world", World), moved.place.profile.switch.min_samples + 10
    told = moved.invoke("switch", "--shadow", "100", "--ca", "/root/users-ca.pem")
    assert told.returncode == 0, told.stderr
    http, server, location = (part.partition("\n")[2] for part in told.stdout.split("# --- into ")[1:])
    ssh.run(world.origin, f"cat >/root/users-ca.pem <<'END'\n{Path(str(world.contract.ca)).read_text()}END")
    edit = (
        "import pathlib, sys\n"
        "path = pathlib.Path('/etc/nginx/nginx.conf')\ntext = path.read_text()\n"
        "pathlib.Path('/root/nginx.before').write_text(text)\n"
        "for after, part in zip(('location = ', 'server {', 'http {'), sys.argv[1:]):\n"
        "    head, found, rest = text.partition(after)\n"
        "    line, end, rest = rest.partition('\\n')\n"
        "    text = head + found + line + end + part + rest\n"
        "path.write_text(text)\n"
    )
    ssh.run(world.origin, " ".join(map(shlex.quote, ["python3", "-c", edit, location, server, http])))
    target = _as_an_old_app(world)
    try:
        ssh.run(world.origin, "nginx -t -q && systemctl reload nginx")
        with ThreadPoolExecutor(2) as pool:
            assert all(c.ok for c in pool.map(lambda _: probe.once(target, timeout_s=30), range(shadowed)))
    finally:
        ssh.run(world.origin, "cp /root/nginx.before /etc/nginx/nginx.conf; systemctl reload nginx")
    compared = shadow.compare(ssh.run(world.origin, f"cat {shadow.LOG}").stdout.splitlines())
    print(compared)
    assert compared.pairs >= moved.place.profile.switch.min_samples
    assert (compared.worse, compared.differing) == (0, ())


def test_the_guard_takes_users_back_when_the_operators_process_is_gone(moved: Lab) -> None:
    """Killed with users half-way, then a new side that fails: nobody but the guard is there. The next deploy holds,
    and the switch by name, which is next, goes on."""
    world, service = moved.artifact("world", World), service_of(moved)
    old, new = world.origin.address, service.endpoint.address
    run = moved.start(str(ROOT / ".venv/bin/python"), "-m", "inferlift", "switch", "--profile", moved.profile)
    _wait(lambda: 10 <= _weights(world).get(new, 0) < 100 or run.poll() is not None, 120)
    run.kill()
    run.wait(30)
    with reading(moved.place.folder) as ledger:
        assert ledger is not None
        first = SwitchStep.model_validate(ledger.document("switch_steps")["steps"][0])
    assert {"shadow answers", "shadow P95"} <= {g.name for g in first.gates}
    ssh.run(world.origin, f"rm {shadow.LOG}; systemctl reload nginx")
    assert 10 <= _weights(world)[new] < 100
    models = service.fleet.by_role("model")
    for host in models:
        ssh.run(host, "systemctl stop llamacpp")
    began = time.monotonic()
    try:
        _wait(lambda: _weights(world) == {old: 100}, 90)
        print(f"the guard took users back {time.monotonic() - began:.0f} s after the new side broke")
    finally:
        for host in models:
            ssh.run(host, "systemctl start llamacpp")
    held = moved.invoke("deploy")
    assert held.returncode == 3, held.stderr[-3000:]
    assert "by the guard: " in held.stderr
    assert _weights(world) == {old: 100}


def test_switch_by_name_moves_users_again_and_destroy_refuses(moved: Lab) -> None:
    assert moved.invoke("switch").returncode == 0
    refused = moved.invoke("destroy")
    assert refused.returncode == 2
    assert "DNS points at the fleet" in refused.stderr


def test_a_reaudit_of_grown_logs_does_not_move_the_switch(moved: Lab) -> None:
    before = moved.artifact("switch", Cutover)
    n = moved.artifact("audit", Evidence).n
    assert moved.invoke("audit").returncode == 0
    assert moved.artifact("audit", Evidence).n > n
    assert moved.invoke("deploy").returncode == 0
    assert moved.artifact("switch", Cutover) == before


def test_lock_file_rebuilds_here_and_is_refused_where_something_differs(moved: Lab, tmp_path: Path) -> None:
    lock = moved.place.folder / "lock.json"
    assert moved.invoke("deploy", "--locked", str(lock)).returncode == 0
    body = json.loads(lock.read_text())
    body["lock"]["playbooks"] = "another"
    other = tmp_path / "lock.json"
    other.write_text(json.dumps(body))
    refused = moved.invoke("deploy", "--locked", str(other))
    assert refused.returncode == 2
    assert "playbooks" in refused.stderr
    assert moved.invoke("diff", str(lock), str(other)).stdout.startswith("lock.playbooks")


def test_no_secret_is_in_any_log_state_artifact_process_list_or_report(moved: Lab) -> None:
    folder = moved.place.folder
    secrets = {p: p.read_text().strip() for f in ("world", "fleet") for p in (folder / f / "secrets").glob("[a-z]*")}
    assert len(secrets) >= 6
    listed = Path("/proc").glob("[0-9]*/cmdline")
    commands = b"\0".join(_bytes(p) for p in listed)
    for name, value in secrets.items():
        assert value.encode() not in commands, name.name
        for path in folder.rglob("*"):
            if path.is_file() and path not in secrets:
                assert value.encode() not in path.read_bytes(), f"{name.name} is in {path}"
    service = service_of(moved)
    for host in service.fleet.hosts:
        journal = ssh.run(host, "journalctl --no-pager -o cat; cat /var/log/haproxy.log 2>/dev/null; true").stdout
        assert not [p.name for p, v in secrets.items() if v in journal], host.name


def test_the_old_side_is_taken_away_only_when_it_is_quiet_and_the_way_back_starts_it_again(moved: Lab) -> None:
    world = moved.artifact("world", World)
    stubborn = _as_an_old_app(world)
    with ThreadPoolExecutor(1) as pool:  # it asks on and on, so that it is seen whenever the log is read
        stop = threading.Event()
        asking = pool.submit(
            lambda: [probe.once(stubborn, timeout_s=30).ok for _ in iter(lambda: stop.wait(0.3), True)]
        )
        try:
            refused = moved.invoke("decommission", "--apply")
        finally:
            stop.set()
        assert all(asking.result())
    assert refused.returncode == 2
    assert "(old-app/1.0)" in refused.stderr
    time.sleep(moved.place.profile.operations.quiet_s + 1)
    shown = moved.invoke("decommission")
    assert (shown.returncode, "nothing was done" in shown.stdout) == (0, True), shown.stderr
    assert probe.once(stubborn, timeout_s=30).ok
    time.sleep(moved.place.profile.operations.quiet_s + 1)
    assert moved.invoke("decommission", "--apply").returncode == 0
    assert not probe.once(stubborn, timeout_s=5).ok
    assert moved.invoke("deploy").returncode == 0, "an old side that was taken away is no finding"
    assert moved.invoke("rollback").returncode == 0
    assert _weights(world) == {world.origin.address: 100}
    assert probe.once(stubborn, timeout_s=30).ok


def test_destroy_removes_the_fleet_and_nothing_else(moved: Lab, foreign: list[str]) -> None:
    done = moved.destroyed()
    assert "nothing is left" in done.stdout
    assert moved.hosts() == []
    assert len(moved.hosts("world")) == 3
    for kind, name in zip(("container", "network", "volume"), foreign, strict=True):
        process.run(["podman", kind, "exists", name], timeout_s=30)
    assert moved.invoke("destroy").returncode == 0, "nothing to destroy is no error"


def test_lab_down_removes_the_old_world(moved: Lab) -> None:
    assert moved.invoke("lab", "down").returncode == 0
    assert moved.hosts("world") == []
    assert provision.read_world(f"{moved.place.owner}/world", moved.place.folder, tools()) is None


def _as_an_old_app(world: World) -> Target:
    return Target(
        name=world.contract.name, address=world.origin.address, ca=world.contract.ca,
        route=world.contract.routes[0].path, key_header=world.contract.key_header, key=world.contract.key,
        extra_headers={"User-Agent": "old-app/1.0"},
    )  # fmt: skip


def _patch(world: World, rrset: dict[str, object]) -> None:
    import requests

    from inferlift.secret import resolve

    done = requests.patch(
        f"{world.made.dns_api}/api/v1/servers/localhost/zones/{world.zone}.",
        json={"rrsets": [rrset]},
        headers={"X-API-Key": resolve(world.made.dns_key)},
        verify=world.contract.ca,
        timeout=10,
    )
    done.raise_for_status()


def _weights(world: World) -> dict[str, int]:
    """What the authority answers, by its own API."""
    from inferlift.dns.powerdns import PowerDns

    backend = PowerDns(
        world.made.dns_api, world.made.dns_key, world.zone, ca=world.contract.ca, names=[world.contract.name],
        addresses=(), owner="a look", run="a look",
    )  # fmt: skip
    return dict(backend.read(world.contract.name).weights)


def _wait(seen: Callable[[], bool], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while not seen():
        assert time.monotonic() < until, f"not within {limit_s:.0f} s"
        time.sleep(0.3)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
