"""The lab's old world for real: three hosts, world.yml, then what a user and the dns engine rely on."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets as random_secrets
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import dns.message
import dns.query
import dns.rdatatype
import pytest

from inferlift import process, ssh, toolchain
from inferlift.artifacts import Configured, Host
from inferlift.configure import apply, ensure_ca, issue
from inferlift.configure.world import (
    BODIES_LOG,
    DATA_PATH,
    dns_api_url,
    old_server,
    workload,
    world_secrets,
    world_variables,
)
from inferlift.declaration import load
from inferlift.profile import ROOT

pytestmark = pytest.mark.lab

CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()
LABEL = f"inferlift.test=world-{CLONE[:8]}"
NETWORK = f"t-world-{CLONE[:8]}"
SUBNET = f"10.233.{int(CLONE[:4], 16) % 250 + 2}"
ROLES = ("origin", "authority", "resolver")
NAME = "ai.demo.test"
CHAT = workload(ROOT / "templates" / "workloads" / "chat")
ROUTE = CHAT.route


def podman(*arguments: str) -> str:
    env = {**process.unmarked(), **toolchain.podman_env()}
    return process.run(["podman", *arguments], timeout_s=120, env=env).stdout.strip()


def sweep() -> None:
    """What an earlier, killed run of this test left; by label only."""
    for found in podman("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split():
        podman("rm", "--force", "--time", "0", found)
    for found in podman("network", "ls", "--quiet", "--filter", f"label={LABEL}").split():
        podman("network", "rm", found)


@dataclass
class World:
    hosts: dict[str, Host]
    ca: Path
    folder: Path
    keys: dict[str, str]
    first: Configured

    def play(self) -> Configured:
        return configure(list(self.hosts.values()), self.ca.parent, self.folder, self.keys)

    def client(self) -> aiohttp.ClientSession:
        """Trusts the world's CA only; the name is resolved by the lab's resolver, asked here."""
        tls = ssl.create_default_context(cafile=str(self.ca))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, resolver=ByResolver(self.hosts["resolver"].address))
        )

    def on(self, role: str, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return ssh.run(self.hosts[role], command, check=check)


class ByResolver(aiohttp.abc.AbstractResolver):
    def __init__(self, server: str) -> None:
        self.server = server

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        address, _ = await asyncio.to_thread(answer, self.server, host)
        common = {"hostname": host, "port": port, "family": 2, "proto": 0, "flags": 0}
        return [{"host": address, **common}]

    async def close(self) -> None:
        pass


def answer(server: str, name: str = NAME) -> tuple[str, int]:
    """(address, TTL) as that server says now."""
    reply = dns.query.udp(dns.message.make_query(name, dns.rdatatype.A), server, timeout=3)
    assert len(reply.answer) == 1, reply
    return str(reply.answer[0][0]), reply.answer[0].ttl


def boot(role: str, number: int, image: str, folder: Path) -> Host:
    host_key = folder / f"{role}_host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key], check=True)
    name, address = f"{NETWORK}-{role}", f"{SUBNET}.{number}"
    podman(
        "create", "--name", name, "--label", LABEL, "--runtime", "runc", "--systemd=always", "--cpus", "0.5",
        "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000", "--memory", "1g", "--cap-add", "NET_ADMIN",
        "--network", NETWORK, "--ip", address, image, "/sbin/init",
    )  # fmt: skip
    podman("cp", str(host_key), f"{name}:/etc/ssh/ssh_host_ed25519_key")
    podman("cp", f"{folder}/ssh/.", f"{name}:/root/.ssh")
    podman("start", name)
    return Host(
        name=f"t-{role}",
        role=role,  # type: ignore[arg-type]
        address=address,
        ssh_key=str(folder / "id"),
        host_key=" ".join(host_key.with_suffix(".pub").read_text().split()[:2]),
    )


def configure(hosts: list[Host], ca_folder: Path, folder: Path, keys: dict[str, str]) -> Configured:
    origin, authority, _ = hosts
    ca = ensure_ca(ca_folder, "the old world's test")
    certificate, key = issue(ca, ca_folder, NAME, dns=[NAME])
    api_certificate, api_key = issue(ca, ca_folder, "authority", ips=[authority.address])
    variables = world_variables(
        zone="demo.test", host="ai", ttl_s=10, origin=origin.address, authority=authority.address,
        networks=[f"{SUBNET}.0/24"], workload=CHAT,
        certificate=str(certificate), certificate_key=str(key),
        api_certificate=str(api_certificate), api_certificate_key=str(api_key),
        server=old_server(load("demo", ROOT).profile, CHAT, toolchain.wheels()[0].parent),
    )  # fmt: skip
    references = {name: f"file:{folder / name}" for name in keys}
    return apply(hosts, "world.yml", variables, world_secrets(**references), folder / "run", print, timeout_s=180)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    toolchain.ensure(["host-image", "wheels"], print)
    folder = tmp_path_factory.mktemp("world")
    keys = {
        name: random_secrets.token_urlsafe(24) for name in ("users_key", "app_key", "model_key", "dns_key", "guard_key")
    }
    for name, value in keys.items():
        (folder / name).write_text(value)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"], check=True)
    (folder / "ssh").mkdir(mode=0o700)
    shutil.copy(folder / "id.pub", folder / "ssh" / "authorized_keys")
    sweep()
    try:
        podman("network", "create", "--label", LABEL, "--subnet", f"{SUBNET}.0/24", NETWORK)
        hosts = [boot(role, n, toolchain.host_image(), folder) for n, role in enumerate(ROLES, 2)]
        for host in hosts:
            wait_for_boot(host)
        first = configure(hosts, folder / "ca", folder, keys)
        yield World(dict(zip(ROLES, hosts, strict=True)), folder / "ca" / "ca.pem", folder, keys, first)
    finally:
        sweep()


def wait_for_boot(host: Host) -> None:
    for _ in range(60):
        done = process.run(ssh.argv(host, "systemctl is-system-running"), timeout_s=20, check=False)
        if done.stdout.strip() in ("running", "degraded"):
            return
        time.sleep(0.25)
    pytest.fail(f"{host.name} did not boot: {done.stdout} {done.stderr}")


def question(text: str = "What is DNS?", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


def log_lines(world: World, path: str) -> list[str]:
    return world.on("origin", f"cat {path}").stdout.splitlines()


def test_it_stands_in_one_run(world: World) -> None:
    assert set(world.first.hosts) == {"t-origin", "t-authority", "t-resolver"}
    assert world.first.changed > 0
    print(f"configured in {world.first.seconds} s")


async def test_old_contract_with_its_certificate(world: World) -> None:
    async with world.client() as client:
        headers = {"X-Api-Key": world.keys["users_key"]}
        marker = f"What is a GPU, {random_secrets.token_hex(6)}?"
        async with client.post(f"https://{NAME}{ROUTE}", json=question(marker), headers=headers) as reply:
            assert reply.status == 200
            whole = await reply.json()
        assert whole["choices"][0]["message"]["content"]
        assert whole["usage"]["completion_tokens"] == 4

        async with client.post(f"https://{NAME}{ROUTE}", json=question(stream=True), headers=headers) as reply:
            assert reply.content_type == "text/event-stream"
            events = [e.removeprefix(b"data: ") for e in (await reply.read()).split(b"\n\n") if e]
        assert events[-1] == b"[DONE]"
        texts = [json.loads(e)["choices"][0]["delta"].get("content") for e in events[:-2]]
        assert "".join(t for t in texts if t)
        assert json.loads(events[-2])["usage"]["completion_tokens"] == 4

        # the document is in the data folder, which makes it part of the answer's context
        async with client.post(f"https://{NAME}{ROUTE}", json=question(document="kb-0300"), headers=headers) as reply:
            assert reply.status == 200
            assert (await reply.json())["usage"]["prompt_tokens"] > whole["usage"]["prompt_tokens"]

        # by another name the certificate does not hold
        tls = ssl.create_default_context(cafile=str(world.ca))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client.post(f"https://{world.hosts['origin'].address}{ROUTE}", ssl=tls)

    access = log_lines(world, "/var/log/nginx/access.log")
    timed = [
        line for line in access if re.search(r'"POST /api/chat HTTP/1.1" 200 .* rt=\d+\.\d{3} urt="\d+\.\d{3}"$', line)
    ]
    assert len(timed) == 3
    bodies = [json.loads(line) for line in log_lines(world, BODIES_LOG)]
    replayable = [json.loads(b["body"]) for b in bodies]
    assert question(marker) in replayable
    assert bodies[0]["uri"] == ROUTE
    assert bodies[0]["status"] == 200


async def test_keys_routes_and_sizes(world: World) -> None:
    before = len(log_lines(world, BODIES_LOG))
    async with world.client() as client:
        for headers in (
            {},
            {"X-Api-Key": "wrong"},
            {"X-Api-Key": ""},
            {"Authorization": f"Bearer {world.keys['app_key']}"},
        ):
            async with client.post(f"https://{NAME}{ROUTE}", json=question(), headers=headers) as reply:
                assert reply.status == 401, headers
        mine = {"X-Api-Key": world.keys["users_key"]}
        async with client.post(f"https://{NAME}/v1/chat/completions", json=question(), headers=mine) as reply:
            assert reply.status == 404
        async with client.post(f"https://{NAME}{ROUTE}", data=b"{}", headers=mine) as reply:
            assert reply.status == 400
        async with client.post(f"https://{NAME}{ROUTE}", data=b"x" * 70_000, headers=mine) as reply:
            assert reply.status == 413
    refused = [b for b in map(json.loads, log_lines(world, BODIES_LOG)[before:]) if b["status"] == 401]
    assert refused == []


def test_no_key_in_logs_process_lists_or_environments(world: World) -> None:
    """Nor in what the playbook run left on this machine. Private keys count too."""
    private = (world.ca.parent / f"{NAME}.key").read_text().splitlines()[1]
    hidden = world.keys | {"private key": private}
    for role, unit in (("origin", "chat"), ("authority", "pdns"), ("resolver", "unbound")):
        shown = f"cat /var/log/nginx/*; journalctl --no-pager; ps -ef; systemctl show -p Environment {unit}"
        everything = world.on(role, shown).stdout
        assert "Environment=" in everything
        assert f"Started {unit}.service" in everything
        for name, value in hidden.items():
            assert value not in everything, f"{role}: {name}"
    left = [path for path in (world.folder / "run").rglob("*") if path.is_file()]
    assert left
    for path in left:
        text = path.read_text(errors="replace")
        for name, value in hidden.items():
            assert value not in text, f"{path}: {name}"


async def test_user_waits_behind_others(world: World) -> None:
    """One slot: six at once take clearly longer than one alone, and none fails."""
    headers = {"X-Api-Key": world.keys["users_key"]}

    async def one(client: aiohttp.ClientSession, number: int) -> float:
        began = time.monotonic()
        body = question(f"Say something about number {number}.")
        async with client.post(f"https://{NAME}{ROUTE}", json=body, headers=headers) as reply:
            assert reply.status == 200
            await reply.read()
        return time.monotonic() - began

    async with world.client() as client:
        alone = min([await one(client, n) for n in range(3)])
        together = max(await asyncio.gather(*(one(client, n) for n in range(10, 16))))
    assert together > 2 * alone


def test_names(world: World) -> None:
    origin = world.hosts["origin"].address
    assert answer(world.hosts["authority"].address) == (origin, 10)
    address, ttl = answer(world.hosts["resolver"].address)
    assert address == origin
    assert 0 <= ttl <= 10  # what is left of an answer the resolver has kept: 0 in its last second
    reply = dns.query.udp(dns.message.make_query("example.com", "A"), world.hosts["authority"].address, timeout=3)
    assert not reply.answer
    assert not reply.flags & dns.flags.RA


async def test_dns_api(world: World) -> None:
    url = dns_api_url(world.hosts["authority"].address) + "/api/v1/servers/localhost/zones/demo.test."
    async with world.client() as client:
        for headers in ({}, {"X-API-Key": "wrong"}):
            async with client.get(url, headers=headers) as reply:
                assert reply.status == 401
        async with client.get(url, headers={"X-API-Key": world.keys["dns_key"]}) as reply:
            assert reply.status == 200
            kinds = {(r["name"], r["type"]) for r in (await reply.json())["rrsets"]}
    assert {("demo.test.", "SOA"), ("demo.test.", "NS"), ("ai.demo.test.", "A")} <= kinds
    with pytest.raises(OSError, match=r"refused|Connect"):  # without TLS: loopback only
        async with aiohttp.ClientSession() as plain:
            await plain.get(url.replace("https:", "http:").replace(":8443", ":8081"))


async def test_second_run_changes_nothing_and_keeps_what_dns_became(world: World) -> None:
    api = dns_api_url(world.hosts["authority"].address) + "/api/v1/servers/localhost/zones/demo.test."
    script = "\"pickwrandom({{100,'192.0.2.1'},{0,'192.0.2.2'}})\""
    change = {"rrsets": [
        {"name": "ai.demo.test.", "type": "A", "changetype": "DELETE"},
        {"name": "ai.demo.test.", "type": "LUA", "ttl": 2, "changetype": "REPLACE",
         "records": [{"content": f"A {script}", "disabled": False}]},
    ]}  # fmt: skip
    key = {"X-API-Key": world.keys["dns_key"]}
    async with world.client() as client, client.patch(api, json=change, headers=key) as reply:
        assert reply.status == 204, await reply.text()
    assert answer(world.hosts["authority"].address) == ("192.0.2.1", 2)
    again = await asyncio.to_thread(world.play)
    print(f"second run {again.seconds} s")
    assert again.changed == 0
    assert answer(world.hosts["authority"].address) == ("192.0.2.1", 2)
    # the resolver follows when the old TTL is over, not later
    deadline = time.monotonic() + 12
    while answer(world.hosts["resolver"].address)[0] != "192.0.2.1":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


def test_validators_say_no(world: World) -> None:
    """Each validator says yes now, and no when what it looks at is broken."""
    breakages = {
        "origin": (
            ("systemctl stop llamacpp", "systemctl start llamacpp", "app completes"),
            (f"chown chat {DATA_PATH}/glossary.json", f"chown root {DATA_PATH}/glossary.json", "data"),
            ("systemctl stop nginx", "systemctl start nginx", "nginx.service"),
        ),
        "authority": (("systemctl stop pdns", "systemctl start pdns", "pdns.service"),),
        "resolver": (("systemctl stop unbound", "systemctl start unbound", "unbound.service"),),
    }
    for role, cases in breakages.items():
        assert failed(world, role) == []
        for breaks, mends, named in cases:
            world.on(role, breaks)
            deadline = time.monotonic() + 6  # the app's proof of a completion is good for two seconds
            while named not in failed(world, role):
                assert time.monotonic() < deadline, f"{breaks}: nobody noticed"
            world.on(role, mends)
        assert failed(world, role) == []


def failed(world: World, role: str) -> list[str]:
    done = world.on(role, f"/usr/local/lib/inferlift/check-{role}", check=False)
    bad = [check["name"] for check in json.loads(done.stdout) if not check["ok"]]
    assert (done.returncode == 0) == (not bad)
    return bad


def test_data_folder(world: World) -> None:
    files = world.on("origin", f"cd {DATA_PATH} && find . -type f | wc -l && du -sb . | cut -f1").stdout.split()
    assert int(files[0]) > 300
    assert 3_000_000 < int(files[1]) < 6_000_000
    assert world.on("origin", f"runuser -u chat -- touch {DATA_PATH}/x", check=False).returncode != 0
