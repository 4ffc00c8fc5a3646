"""site.yml on real hosts with the real app and model: the contract, the second run, validators that notice, Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections import Counter
from typing import Any

import aiohttp
import pytest
from configured_site import NAME, NETWORK, USER_KEY, Site, podman, post, question, wait_for_ssh
from waiting import until

from inferlift import configure, toolchain
from inferlift.configure import gateway as gateway_api
from inferlift.configure import runner
from inferlift.errors import CheckFailed, InferliftError, Interrupted, Refusal
from inferlift.secret import resolve

pytestmark = pytest.mark.lab


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


def test_uploads_turned_on_and_off_again_leave_no_nginx_behind(site: Site) -> None:
    """What they do for a body: tests/lab/test_image_site.py."""
    there = "ls -d /srv/scratch/uploads /etc/nginx/nginx.conf /etc/inferlift/gateway-uploads.json 2>/dev/null | wc -l"
    state = f"{there}; systemctl is-active nginx || true"
    site.play("gateway-1", gateway_upload_bytes=6_000_000)
    assert site.on("gateway-1", state).split() == ["3", "active"]
    checks = {c.name: c.ok for c in configure.validate(site.fleet, site.folder / "work")}
    assert checks["gateway-1: room for uploads"]
    site.on("gateway-1", "systemctl stop nginx")
    assert "gateway-1: nginx.service" in site.bad()
    off = site.play("gateway-1")
    assert off.changed > 0
    assert site.on("gateway-1", state).split() == ["0", "inactive"]
    assert site.bad() == {}


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


async def test_a_request_has_one_id_in_answer_and_log(site: Site) -> None:
    async with site.client() as client:
        own = (await post(client, question(1), headers={"X-Request-Id": "shop-42"}))[2]["X-Request-Id"]
        made = (await post(client, question(1)))[2]["X-Request-Id"]
        strange = (await post(client, question(1), headers={"X-Request-Id": 'a b"c'}))[2]["X-Request-Id"]
    assert own == "shop-42"
    assert len(made) == len(strange) == 36
    log = site.on("gateway-1", "journalctl -u haproxy -o cat")
    ids = [json.loads(line)["id"] for line in log.splitlines() if line.startswith("{")][-3:]
    assert ids == [own, made, strange]


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
    assert until(lambda: site.bad() == {}, 60), site.bad()
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


# --- faults ----------------------------------------------------------------------------------------------------


def test_a_dpkg_lock_that_somebody_holds_ends_clearly(site: Site) -> None:
    hold = "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(300)"
    site.on("gateway-1", "apt-mark unhold socat >/dev/null && dpkg --remove socat >/dev/null")
    site.on("gateway-1", f'systemd-run --quiet --unit holder python3 -c "{hold}"')
    try:
        with pytest.raises(CheckFailed, match=r"(?s)gateway-1.*lock"):
            site.play("gateway-1", base_apt_lock_seconds=2)
    finally:
        site.on("gateway-1", "systemctl stop holder")
    assert site.play("gateway-1").changed > 0
    assert "installed" in site.on("gateway-1", "dpkg-query -W -f '${db:Status-Status}' socat")


def test_a_full_disk_and_a_wrong_checksum_end_clearly_and_the_role_goes_again(site: Site) -> None:
    site.on("model-1", "mkdir -p /srv/small && mount -t tmpfs -o size=4m none /srv/small")
    site.on("model-1", "truncate -s 20M /srv/big; echo x >/srv/other")
    given = {"inferlift_model_roles": ["weights"], "weights_folder": "/srv/small"}
    try:
        for entry, words in [
            ({"source": "file:///srv/big", "name": "big"}, "may be filled"),
            ({"source": "file:///srv/other", "name": "wrong", "sha256": "0" * 64}, "its checksum is"),
        ]:
            with pytest.raises(CheckFailed, match=words):
                site.play("model-1", **given, weights_models=[entry])
        roles = {"inferlift_remove_roles": ["weights"]}
        configure.apply(site.fleet.hosts, "remove.yml", roles, {}, site.folder / "work", print, limit=["model-1"])
    finally:
        site.on("model-1", "umount /srv/small; rm -rf /srv/small /srv/big /srv/other")
    assert site.on("model-1", "ls /etc/systemd/system/inferlift-weights* 2>/dev/null || true") == ""
    assert site.play("model-1").changed == 0
    assert site.bad() == {}


def test_a_host_lost_in_the_middle_is_named_and_the_same_call_goes_on(site: Site) -> None:
    said: list[str] = []

    def cut(line: str) -> None:
        said.append(line)
        if len(said) == 4:
            podman("kill", f"{NETWORK}-model-1")

    with pytest.raises(InferliftError, match="model-1"):
        site.play("model-1", say=cut, llamacpp_slots=3)
    assert len(said) >= 4
    podman("start", f"{NETWORK}-model-1")
    wait_for_ssh(site.host("model-1"))
    site.play()
    assert until(lambda: site.bad() == {}, 30), site.bad()


# --- monitor and secrets -------------------------------------------------------------------------------------


SCRAPES = 'up{job!~"probe-.*"}'  # probes look every half minute: tests/lab/test_monitor.py


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
        SCRAPES,
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
            if expression == SCRAPES:
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
