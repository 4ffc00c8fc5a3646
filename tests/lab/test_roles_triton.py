"""Triton for real on a lab host: a recogniser from a wheel reads lines of text; batches, a drain, faults at load."""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
import socket
import statistics
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from role_hosts import RoleHosts
from waiting import until

from inferlift import configure, ssh, toolchain
from inferlift.artifacts import Configured
from inferlift.errors import CheckFailed
from inferlift.load.asked import Asked
from inferlift.load.endpoint import Sent
from inferlift.load.standalone import standalone
from inferlift.profile import ROOT, Targets

pytestmark = [pytest.mark.lab, pytest.mark.long]

LINE = ROOT / "playbooks" / "roles" / "triton" / "files" / "models" / "text_line" / "line.png"
TEXT = "Invoice 2026-118"
SOURCE = "pypi://rapidocr==3.10.0/rapidocr/models/PP-OCRv6_rec_small.onnx"
SHA = "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"
REQUESTS, USERS = 96, 16


class TritonHost:
    def __init__(self, hosts: RoleHosts, wheels: Path) -> None:
        self.hosts, self.wheels = hosts, wheels
        self.first: Configured | None = None

    def play(self, *tags: str, check: bool = False, **changes: object) -> Configured:
        model = {"name": "line", "code": "text_line", "weights": "/srv/weights/ocr/PP-OCRv6_rec_small.onnx"}
        variables: dict[str, object] = {
            "inferlift_model_roles": ["weights", "triton"],
            "weights_folder": "/srv/weights",
            "weights_models": [{"name": "ocr", "source": SOURCE, "sha256": SHA}],
            "triton_wheels": str(self.wheels),
            "triton_models": [model],
            "triton_load_seconds": 60,
            **changes,
        }
        return self.hosts.play(variables, tags or ("base", "weights", "triton"), check=check)

    def on(self, command: str) -> str:
        return self.hosts.on("model-1", command)

    def load(self) -> dict[str, Any]:
        """REQUESTS inferences by USERS at once, sent on the host itself: Triton listens on loopback."""
        out = ssh.run(self.hosts.host("model-1"), "python3 /root/load.py", timeout_s=240).stdout
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        return answer


LOAD = f"""
import base64, concurrent.futures, http.client, json, threading, time
DATA = base64.b64encode(open("/root/line.png", "rb").read()).decode()
BODY = json.dumps({{"inputs": [{{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": [DATA]}}]}})
local = threading.local()
def one(_):
    if not hasattr(local, "c"):
        local.c = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
    started = time.monotonic()
    local.c.request("POST", "/v2/models/line/infer", BODY, {{"Content-Type": "application/json"}})
    answer = local.c.getresponse()
    rows = json.loads(answer.read())
    texts = [row["data"][0] for row in rows.get("outputs", []) if row["name"] == "TEXT"]
    return answer.status, texts, time.monotonic() - started
started = time.monotonic()
with concurrent.futures.ThreadPoolExecutor({USERS}) as pool:
    rows = list(pool.map(one, range({REQUESTS})))
seconds = time.monotonic() - started
right = sum(status == 200 and texts == [{TEXT!r}] for status, texts, _ in rows)
print(json.dumps({{"right": right, "rate": {REQUESTS} / seconds, "latency": sorted(t for *_, t in rows)}}))
"""


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonHost]:
    folder = tmp_path_factory.mktemp("t-roles-triton")
    hosts = RoleHosts("triton", 41, folder)
    try:
        hosts.raise_hosts(["model-1"])
        toolchain.ensure(["triton-wheels"], print)
        made = TritonHost(hosts, toolchain.wheel_folder("triton-wheels"))
        (folder / "load.py").write_text(LOAD)
        hosts.put("model-1", folder / "load.py", "/root/load.py")
        hosts.put("model-1", LINE, "/root/line.png")
        made.first = made.play()
        print(f"first run: {made.first.seconds:.1f} s, {made.first.changed} changes")
        yield made
    finally:
        hosts.sweep()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_picture_goes_in_and_its_text_comes_out(triton: TritonHost) -> None:
    assert triton.hosts.bad() == {}
    said = {c.name: c.detail for c in triton.hosts.checks()}
    assert TEXT in said["model-1: inference of line"]


def test_a_second_run_and_a_dry_one_change_nothing(triton: TritonHost) -> None:
    dry, again = triton.play(check=True), triton.play()
    assert (dry.changed, again.changed) == (0, 0)


def test_batches_fill_when_the_plan_says_so_and_every_text_stays_right(triton: TritonHost) -> None:
    alone = triton.load()
    triton.play("triton", triton_preferred_batch_size=8, triton_max_queue_delay_microseconds=20_000)
    together = triton.load()
    stats = triton.on("curl -s http://127.0.0.1:8000/v2/models/line/stats")
    sizes = [row["batch_size"] for row in json.loads(stats)["model_stats"][0]["batch_stats"]]
    triton.play("triton")
    for name, row in (("without", alone), ("with", together)):
        print(f"{name} delay: {row['rate']:.1f}/s, median {statistics.median(row['latency']) * 1000:.0f} ms")
    assert (alone["right"], together["right"]) == (REQUESTS, REQUESTS)
    assert max(sizes) >= 8  # of up to 16: more may wait when a batch is due


def test_the_load_test_speaks_to_it_by_http_and_by_grpc(triton: TritonHost, tmp_path: Path) -> None:
    """KServe v2 against the real server, through ssh: every answer whole; a model that is not there is an error."""
    data = base64.b64encode(LINE.read_bytes()).decode()
    tensors = tmp_path / "tensors.json"
    tensors.write_text(json.dumps([[{"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": [data]}]]))
    ports = {"kserve": (free_port(), 8000), "kserve-grpc": (free_port(), 8001)}
    forwards = [word for here, there in ports.values() for word in ("-L", f"127.0.0.1:{here}:127.0.0.1:{there}")]
    host = triton.hosts.host("model-1")
    tunnel = subprocess.Popen(
        ["ssh", "-N", "-o", "ExitOnForwardFailure=yes", *forwards, *ssh.options(host), "-p", str(host.ssh_port),
         f"{host.user}@{host.address}"], stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for here, _ in ports.values():
            assert until(partial(listens, here), 20), f"the tunnel at {here} does not open"
        for protocol, (here, _) in ports.items():
            said: list[str] = []
            asked = Asked(
                (f"127.0.0.1:{here}",), REQUESTS, users=8, sent=Sent(protocol, model="line", tensors=tensors),
                check_self=False, folder=tmp_path / protocol, targets=Targets(error_share=0.0),
            )  # fmt: skip
            code = standalone(asked, as_json=True, say=print, out=said.append)
            figures = json.loads(said[0])["figures"]
            print(f"{protocol}: {figures['requests_per_s']:.1f}/s, p95 {figures['total_p95_ms']:.0f} ms")
            assert (code, figures["ok"], figures["error_share"]) == (0, REQUESTS, 0.0)
            absent = dataclasses.replace(
                asked, requests=20, warm_up=0, folder=tmp_path / f"{protocol}-absent",
                sent=Sent(protocol, model="absent", tensors=tensors),
            )  # fmt: skip
            said.clear()
            assert standalone(absent, as_json=True, say=print, out=said.append) == 1
            assert json.loads(said[0])["endpoints"][0]["run"]["counts"]["errors"] == {"http_4xx": 20}
    finally:
        tunnel.terminate()
        tunnel.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_broken_picture_fails_alone(triton: TritonHost) -> None:
    row = {"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": [base64.b64encode(b"nothing").decode()]}
    body = json.dumps({"inputs": [row]})
    ask = f"curl -s -o /root/out -w '%{{http_code}}' -d '{body}' http://127.0.0.1:8000/v2/models/line/infer"
    status = triton.on(f"{ask}; cat /root/out")
    assert not status.startswith("200")
    assert "not a picture" in status
    assert triton.hosts.bad() == {}


def test_a_stop_lets_triton_end_what_it_has_begun(triton: TritonHost) -> None:
    triton.on("python3 /root/load.py >/dev/null 2>&1 & sleep 2; systemctl stop triton")
    try:
        ended = triton.on("systemctl show triton -p Result -p ExecMainStatus -p ActiveState --value").split()
        told = triton.on("journalctl -u triton -o cat -n 60")
    finally:
        triton.on("systemctl start triton")
    assert "success" in ended
    assert "Waiting for in-flight requests to complete" in told
    assert "SIGKILL" not in told
    assert triton.hosts.bad() == {}


def test_a_server_that_dies_is_back_by_itself(triton: TritonHost) -> None:
    before = triton.on("systemctl show triton -p ExecMainPID --value").strip()
    triton.on(f"kill -9 {before}")
    assert until(lambda: triton.hosts.bad() == {}, 60), triton.hosts.bad()
    assert triton.on("systemctl show triton -p ExecMainPID --value").strip() != before


def test_a_model_that_cannot_be_loaded_and_a_port_that_is_taken_end_clearly(triton: TritonHost) -> None:
    missing = {"name": "line", "code": "text_line", "weights": "/srv/weights/absent.onnx"}
    with pytest.raises(CheckFailed, match="failed to load"):
        triton.play("triton", triton_models=[missing])
    triton.on("systemctl stop triton; systemd-run --quiet --unit taken python3 -m http.server 8000 --bind 127.0.0.1")
    try:
        with pytest.raises(CheckFailed, match="restart triton"):
            triton.play("triton")
    finally:
        triton.on("systemctl stop taken")
    triton.play("triton")
    assert triton.hosts.bad() == {}


def test_all_of_it_can_be_taken_away_again(triton: TritonHost) -> None:
    configure.apply(triton.hosts.hosts, "remove.yml", {}, {}, triton.hosts.folder / "work", print)
    left = triton.on(
        "ls -d /opt/triton /etc/triton /srv/weights/ocr /etc/systemd/system/triton.service 2>/dev/null || true"
    )
    assert left.split() == []
