"""A gateway, a model host with Triton and a monitor: pictures in, exact text out; batches; faults and the way on.

Where a fault needs a server of our own making it is a stand-in, named so: it proves what the roles do about such a
server, not how Triton would come to be one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from configured_site import NAME, NETWORK, Site, podman, post, stand
from waiting import until

from inferlift.artifacts import Batching
from inferlift.configure import gateway as gateway_api
from inferlift.configure.servers import server_variables
from inferlift.declaration import load
from inferlift.errors import CheckFailed
from inferlift.load.pictures import load_pictures
from inferlift.profile import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]

PROFILE = load("demo-image", ROOT).profile
LINES = load_pictures(ROOT / "profiles" / "demo-image" / "lines.jsonl")
ROUTE = "/api/ocr"
DELAY_US = 50_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from stand(tmp_path_factory.mktemp("image-site"), PROFILE, "image")


def picture(path: str) -> dict[str, str]:
    return {"image": base64.b64encode(Path(path).read_bytes()).decode()}


async def read(site: Site, count: int, users: int) -> list[tuple[int, str, str]]:
    """(status, text read, text drawn) of `count` pictures by `users` at once, as a user under the old name."""
    turn = asyncio.Semaphore(users)

    async def one(k: int) -> tuple[int, str, str]:
        case = LINES[k % len(LINES)]
        async with turn:
            status, text, _ = await post(client, picture(case.prompt), ROUTE)
        return status, str(json.loads(text).get("text")), str(case.answer)

    async with site.client() as client:
        return list(await asyncio.gather(*(one(k) for k in range(count))))


def up(site: Site) -> bool:
    return all(s.serving for s in gateway_api.servers(site.host("gateway-1")))


async def test_pictures_go_in_and_their_text_comes_out(site: Site) -> None:
    assert await asyncio.to_thread(until, lambda: up(site), 30)  # the gateway asks /health before it sends anybody
    answers = await read(site, len(LINES), 4)
    assert Counter(status for status, _, _ in answers) == {200: len(LINES)}
    right = sum(text == drawn for _, text, drawn in answers)
    print(f"{right} of {len(LINES)} lines read exactly")
    assert right >= 0.95 * len(LINES)


def test_the_validators_agree_and_a_second_run_and_a_dry_one_change_nothing(site: Site) -> None:
    assert site.bad() == {}
    dry, again = site.play(check=True), site.play()
    assert (dry.changed, again.changed) == (0, 0)


async def test_what_is_no_picture_is_refused_and_others_are_not_hurt(site: Site) -> None:
    async with site.client() as client:
        broken = {"image": base64.b64encode(b"\x89PNG\r\n\x1a\nnothing").decode()}
        answers = await asyncio.gather(
            *(post(client, body, ROUTE) for body in ({}, {"image": "?"}, broken, picture(LINES[0].prompt)))
        )
    assert [status for status, _, _ in answers] == [400, 400, 400, 200]


def test_a_gpu_that_a_container_cannot_show_is_said_and_nothing_is_refused(site: Site) -> None:
    done = site.play("gateway-1", inferlift_gpu_expected="L4")
    assert any("the plan counts on L4" in line for line in done.skipped)
    assert done.changed == 0


# --- batches ---------------------------------------------------------------------------------------------------


def batching(delay_us: int) -> dict[str, object]:
    settings = {"max_batch_size": 8, "preferred_batch_size": 8, "max_queue_delay_microseconds": delay_us}
    plan = Batching(
        preferred_batch_size=8, max_queue_delay_us=delay_us, latency_ms=None, utilisation=None, meets_target=None,
        explain=(), settings=settings,
    )  # fmt: skip
    made = server_variables(PROFILE, serving=None, batching=plan, driver=None, secrets={}).variables
    return {name: value for name, value in made.items() if "batch" in name or "delay" in name}


def runs(site: Site) -> tuple[int, int]:
    """(inferences, runs of the model) that Triton counted since it was started."""
    told = json.loads(site.on("model-1", "curl -s http://127.0.0.1:8000/v2/models/model/stats"))["model_stats"][0]
    return int(told["inference_count"]), int(told["execution_count"])


async def test_with_the_plans_delay_a_run_reads_many_pictures(site: Site) -> None:
    """By counts, not by time: how many runs the same pictures took."""
    per_run = {}
    for name, changes in (("without", {}), ("with", batching(DELAY_US))):
        await asyncio.to_thread(site.play, "model-1", **changes)
        assert await asyncio.to_thread(until, lambda: up(site), 30)
        before = await asyncio.to_thread(runs, site)
        began = time.monotonic()
        answers = await read(site, 48, 16)
        seconds = time.monotonic() - began
        after = await asyncio.to_thread(runs, site)
        assert {status for status, _, _ in answers} == {200}
        per_run[name] = (after[0] - before[0]) / (after[1] - before[1])
        print(f"{name} delay: {48 / seconds:.1f}/s, {per_run[name]:.1f} pictures a run")
    await asyncio.to_thread(site.play, "model-1")
    assert per_run["without"] == 1
    assert per_run["with"] > 3


# --- the gateway: models, uploads --------------------------------------------------------------------------------


async def test_a_request_goes_to_the_hosts_that_have_its_model(site: Site) -> None:
    backends = [{**row, "models": ["lines"]} for row in site.made.variables["gateway_backends"]]  # type: ignore[attr-defined]
    await asyncio.to_thread(site.play, "gateway-1", gateway_backends=backends)
    try:
        async with site.client() as client:
            body = picture(LINES[0].prompt)
            answers = [await post(client, body | named, ROUTE) for named in ({}, {"model": "lines"}, {"model": "x"})]
        assert [status for status, _, _ in answers] == [200, 200, 404]
        assert "no such model" in answers[2][1]
    finally:
        await asyncio.to_thread(site.play, "gateway-1")


def padded(path: str, size: int) -> dict[str, str]:
    """The same picture with an ancillary chunk that no reader minds: a PNG of at least `size` bytes."""
    data = Path(path).read_bytes()
    chunk = b"xxXx" + bytes(size)
    end = len(data) - 12  # IEND
    grown = data[:end] + struct.pack(">I", size) + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[end:]
    return {"image": base64.b64encode(grown).decode()}


async def test_a_large_body_waits_on_the_gateways_disk_and_only_so_many_do(site: Site) -> None:
    environment = {"APP_MAX_BODY_BYTES": "8000000"}
    given = {"gateway_upload_bytes": 6_000_000, "gateway_uploads_at_once": 2}
    await asyncio.to_thread(site.play, "gateway-1", "model-1", container_environment=environment, **given)
    try:
        assert await asyncio.to_thread(until, lambda: up(site), 30)
        async with site.client() as client:
            status, text, _ = await post(client, padded(LINES[0].prompt, 2_000_000), ROUTE)
            assert (status, json.loads(text)["text"]) == (200, LINES[0].answer)
            assert (await post(client, padded(LINES[0].prompt, 6_000_000), ROUTE))[0] == 413
            held = asyncio.Event()
            slow = [asyncio.create_task(client.post(f"https://{NAME}{ROUTE}", data=slowly(held))) for _ in range(2)]
            assert await asyncio.to_thread(until, lambda: gathered() == 2, 20)
            status, _, headers = await post(client, padded(LINES[0].prompt, 2_000_000), ROUTE)
            assert (status, headers["Retry-After"]) == (503, "2")
            assert (await post(client, picture(LINES[0].prompt), ROUTE))[0] == 200  # small ones pass by
            held.set()
            assert [answer.status for answer in await asyncio.gather(*slow)] == [200, 200]
        assert gathered() == 0
    finally:
        off = await asyncio.to_thread(site.play)
    assert off.changed > 0
    assert await asyncio.to_thread(site.bad) == {}
    left = (
        "ls -d /srv/scratch/uploads /etc/inferlift/gateway-uploads.json 2>/dev/null; systemctl is-active nginx || true"
    )
    assert site.on("gateway-1", left).strip() == "inactive"
    assert (await asyncio.to_thread(site.play, "gateway-1")).changed == 0


def gathered() -> int:
    """Bodies that nginx keeps on the gateway's disk now: open files without a name.

    Read from this machine's side: on the host itself not even root may look into a worker that changed its user.
    """
    rows = [row.split() for row in podman("top", f"{NETWORK}-gateway-1", "hpid", "comm").splitlines()[1:]]
    folders = [Path(f"/proc/{pid}/fd") for pid, program in rows if program == "nginx"]
    return sum("/scratch/uploads/" in str(file.readlink()) for folder in folders for file in folder.iterdir())


def slowly(held: asyncio.Event) -> aiohttp.payload.Payload:
    """A large body of declared length whose second half is sent only when `held` is set."""
    data = json.dumps(padded(LINES[0].prompt, 1_500_000)).encode()
    return Slow(data, held)


class Slow(aiohttp.payload.BytesPayload):
    def __init__(self, data: bytes, held: asyncio.Event) -> None:
        super().__init__(data, content_type="application/json")
        self._data, self._held = data, held

    async def write(self, writer: Any) -> None:
        await writer.write(self._data[: len(self._data) // 2])
        await self._held.wait()
        await writer.write(self._data[len(self._data) // 2 :])

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        await self.write(writer)


# --- faults ----------------------------------------------------------------------------------------------------


def test_a_server_that_dies_at_load_ends_clearly(site: Site) -> None:
    missing = {"name": "model", "code": "text_line", "weights": "/srv/weights/absent.onnx"}
    with pytest.raises(CheckFailed, match="failed to load"):
        site.play("model-1", triton_models=[missing])
    site.play("model-1")
    assert site.bad() == {}


STAND_IN = """
import http.server, json
class Standin(http.server.BaseHTTPRequestHandler):
    def answer(self):
        good = self.command == "GET"
        body = b"{}" if good else json.dumps({"error": "stand-in: no inference"}).encode()
        self.send_response(200 if good else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Standin).serve_forever()
"""


async def test_a_server_that_is_ready_and_answers_nothing_gets_no_user_and_a_taken_port_is_said(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "standin.py").write_text(STAND_IN)
    podman("cp", str(tmp_path / "standin.py"), f"{NETWORK}-model-1:/root/standin.py")
    site.on("model-1", "systemctl stop triton; systemd-run --quiet --unit standin python3 /root/standin.py")
    try:
        assert until(lambda: not up(site), 30)
        bad = await asyncio.to_thread(site.bad)
        assert "model-1: app" in bad
        assert any("inference" in name for name in bad)
        async with site.client() as client:
            status, _, headers = await post(client, picture(LINES[0].prompt), ROUTE)
        assert (status, headers["Retry-After"]) == (503, "2")
        with pytest.raises(CheckFailed, match=r"(?s)model-1.*triton"):
            await asyncio.to_thread(site.play, "model-1")  # its port is taken
    finally:
        site.on("model-1", "systemctl stop standin")
    await asyncio.to_thread(site.play, "model-1")
    assert until(lambda: up(site), 30)
    assert (await read(site, 4, 2))[0][0] == 200
