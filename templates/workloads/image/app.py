"""The users' text recognition app, which stands before the model server: a picture of a line in, its text out.

POST /v1/ocr {"image": "<PNG or JPEG, base64>"} -> {"text", "confidence", "kind"}. The model server speaks the Open
Inference Protocol (KServe v2). Settings are environment variables, listed in `Settings`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import os
import signal
import ssl
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web
from kinds import Kinds

ROUTE = "/v1/ocr"
PROOF_AGE_S = 2.0  # an answer this young proves that the model server answers
PROBE_TIMEOUT_S = 10.0
BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 120)
BEGINNINGS = (b"\x89PNG\r\n", b"\xff\xd8\xff")
# A grey picture of 16 x 16 pixels: what /health asks with when no user does.
BLANK = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAAAAAA6mKC9AAAAD0lEQVR42mNoQAMMI1sAAAUMgAHjM1mKAAAAAElFTkSuQmCC"


@dataclass(frozen=True)
class Settings:
    upstream: str  # UPSTREAM_URL: the model server
    metrics: str  # UPSTREAM_METRICS_URL: its figures; empty: none
    model: str  # MODEL: its name there
    key: str | None  # APP_KEY_FILE: callers must present it as a bearer token
    host: str  # APP_HOST
    port: int  # APP_PORT
    tls_cert: str | None  # APP_TLS_CERT, APP_TLS_KEY: serve TLS when given
    tls_key: str | None
    data: Path  # DATA_DIR
    timeout_s: float  # UPSTREAM_TIMEOUT_S
    lame_duck_s: float  # APP_LAME_DUCK_S: /health says 503 for so long before the socket closes
    drain_s: float  # APP_DRAIN_S: requests in flight get so long to end
    max_body: int  # APP_MAX_BODY_BYTES

    @classmethod
    def read(cls, env: dict[str, str]) -> Settings:
        key = env.get("APP_KEY_FILE")
        return cls(
            upstream=env.get("UPSTREAM_URL", "http://127.0.0.1:8000").rstrip("/"),
            metrics=env.get("UPSTREAM_METRICS_URL", "http://127.0.0.1:8002/metrics"),
            model=env.get("MODEL", "model"),
            key=Path(key).read_text().strip() if key else None,
            host=env.get("APP_HOST", "127.0.0.1"),
            port=int(env.get("APP_PORT", "8080")),
            tls_cert=env.get("APP_TLS_CERT") or None,
            tls_key=env.get("APP_TLS_KEY") or None,
            data=Path(env.get("DATA_DIR", "/srv/data")),
            timeout_s=float(env.get("UPSTREAM_TIMEOUT_S", "120")),
            lame_duck_s=float(env.get("APP_LAME_DUCK_S", "1")),
            drain_s=float(env.get("APP_DRAIN_S", "30")),
            max_body=int(env.get("APP_MAX_BODY_BYTES", str(256 * 1024))),
        )


class Wrong(Exception):
    """The model server's answer: status and what it said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class App:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kinds = Kinds(settings.data)
        self.draining = False
        self.in_flight = 0
        self.statuses: dict[str, int] = {}
        self.times = [0.0] * (len(BUCKETS_S) + 2)
        self.proved_at = float("-inf")  # monotonic time of the last real answer
        self.probe: asyncio.Task[None] | None = None

    async def session(self, _: web.Application):  # type: ignore[no-untyped-def]
        timeout = aiohttp.ClientTimeout(total=self.settings.timeout_s, sock_connect=5)
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4), timeout=timeout)
        yield
        if self.probe:
            self.probe.cancel()
        await self.http.close()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=self.settings.max_body)
        application.cleanup_ctx.append(self.session)
        application.add_routes(
            [web.post(ROUTE, self.ocr), web.get("/health", self.health), web.get("/metrics", self.show_metrics)]
        )
        return application

    async def ocr(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        self.in_flight += 1
        status = "aborted"
        try:
            response = await self._ocr(request)
            status = str(response.status)
            if self.draining:
                response.force_close()
            return response
        finally:
            self.in_flight -= 1
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self._observe(time.monotonic() - began)

    async def _ocr(self, request: web.Request) -> web.Response:
        if not self.allowed(request):
            return problem(401, "a valid key is needed")
        try:
            image = picture(json.loads(await request.read()))
        except web.HTTPRequestEntityTooLarge:
            return problem(413, "the body is too large")
        except ValueError as error:
            return problem(400, str(error))
        try:
            text, confidence = await self.read(image)
        except Wrong as error:
            return problem(400 if error.status < 500 or "not a picture" in str(error) else 502, str(error))
        except TimeoutError:
            self.proved_at = float("-inf")
            return problem(504, "the model server took too long")
        except aiohttp.ClientError:
            self.proved_at = float("-inf")
            return problem(502, "the model server is not there")
        return web.json_response({"text": text, "confidence": round(confidence, 4), "kind": self.kinds.of(text)})

    async def read(self, image: str) -> tuple[str, float]:
        """The text of a line and how sure the model is. Raises Wrong, TimeoutError, aiohttp.ClientError."""
        row = {"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": [image]}
        url = f"{self.settings.upstream}/v2/models/{self.settings.model}/infer"
        async with self.http.post(url, json={"inputs": [row]}) as answer:
            told = await answer.json(content_type=None)
            if answer.status != 200:
                raise Wrong(answer.status, str(told.get("error", answer.status))[:200])
        values = {output["name"]: output["data"][0] for output in told["outputs"]}
        self.proved_at = time.monotonic()
        return values["TEXT"], float(values["SCORE"])

    def allowed(self, request: web.Request) -> bool:
        shown = request.headers.get("Authorization", "")
        return self.settings.key is None or hmac.compare_digest(shown.encode(), f"Bearer {self.settings.key}".encode())

    async def health(self, _: web.Request) -> web.Response:
        """200 only while the model server really answers: a user's answer counts, else a blank picture is read."""
        if self.draining:
            return problem(503, "draining")
        if time.monotonic() - self.proved_at > PROOF_AGE_S:
            if self.probe is None or self.probe.done():
                self.probe = asyncio.ensure_future(self.ask_once())
            await asyncio.shield(self.probe)
        if time.monotonic() - self.proved_at > PROOF_AGE_S:
            return problem(503, "the model server does not answer")
        return web.json_response({"status": "ok"})

    async def ask_once(self) -> None:
        with suppress(aiohttp.ClientError, TimeoutError, ValueError, KeyError, Wrong):
            await asyncio.wait_for(self.read(BLANK), PROBE_TIMEOUT_S)

    async def show_metrics(self, request: web.Request) -> web.Response:
        if not self.allowed(request):
            return problem(401, "a valid key is needed")
        up = 0
        with suppress(aiohttp.ClientError, TimeoutError):
            ready = f"{self.settings.upstream}/v2/models/{self.settings.model}/ready"
            async with self.http.get(ready, timeout=aiohttp.ClientTimeout(total=3)) as answer:
                up = int(answer.status == 200)
        theirs = ""
        with suppress(aiohttp.ClientError, TimeoutError, ValueError):
            async with self.http.get(self.settings.metrics, timeout=aiohttp.ClientTimeout(total=3)) as answer:
                theirs = await answer.text() if answer.status == 200 else ""
        lines = ["# TYPE app_upstream_up gauge", f"app_upstream_up {up}"]
        lines += ["# TYPE app_kinds gauge", f"app_kinds {len(self.kinds.patterns())}"]
        lines += ["# TYPE app_requests_total counter"]
        lines += [f'app_requests_total{{status="{s}"}} {n}' for s, n in sorted(self.statuses.items())]
        lines += ["# TYPE app_in_flight gauge", f"app_in_flight {self.in_flight}"]
        lines += ["# TYPE app_request_seconds histogram"]
        lines += [f'app_request_seconds_bucket{{le="{b}"}} {self.times[i]:.0f}' for i, b in enumerate(BUCKETS_S)]
        lines += [f'app_request_seconds_bucket{{le="+Inf"}} {self.times[-2]:.0f}']
        lines += [f"app_request_seconds_count {self.times[-2]:.0f}", f"app_request_seconds_sum {self.times[-1]:.6f}"]
        return web.Response(text="\n".join(lines) + "\n" + theirs, content_type="text/plain")

    def _observe(self, seconds: float) -> None:
        for place, bound in enumerate(BUCKETS_S):
            self.times[place] += seconds <= bound
        self.times[-2] += 1
        self.times[-1] += seconds


def picture(body: object) -> str:
    """The picture of a request, still as base64. Raises ValueError with what is wrong."""
    image = body.get("image") if isinstance(body, dict) else None
    if not isinstance(image, str) or not image:
        raise ValueError("the body must be a JSON object with a picture as base64 in `image`")
    try:
        data = base64.b64decode(image, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("image is not base64") from None
    if not data.startswith(BEGINNINGS):
        raise ValueError("image is neither PNG nor JPEG")
    return image


def problem(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then drain: say so on /health, stop accepting, let answers end."""
    app = App(settings)
    runner = web.AppRunner(app.application(), access_log=None)
    await runner.setup()
    tls = None
    if settings.tls_cert:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(settings.tls_cert, settings.tls_key)
    loop = asyncio.get_running_loop()
    # Our own server socket: aiohttp's site would cut answers in flight when it stops.
    server = await loop.create_server(runner.server, settings.host, settings.port, ssl=tls, backlog=1024)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    print(f"serving on port {settings.port}, model server {settings.upstream}", flush=True)
    await stop.wait()
    app.draining = True
    await asyncio.sleep(settings.lame_duck_s)
    server.close()
    deadline = time.monotonic() + settings.drain_s
    while app.in_flight and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    print(f"drained, {app.in_flight} requests cut", flush=True)
    await runner.cleanup()


def ask_health(settings: Settings) -> int:
    """For the image's HEALTHCHECK: 0 when this app's own /health says 200."""
    tls = ssl._create_unverified_context() if settings.tls_cert else None  # noqa: S323 - loopback, the name is not ours
    url = f"{'https' if tls else 'http'}://127.0.0.1:{settings.port}/health"
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S, context=tls) as answer:  # noqa: S310 - loopback
            return 0 if answer.status == 200 else 1
    except OSError:
        return 1


if __name__ == "__main__":
    chosen = Settings.read(dict(os.environ))
    if sys.argv[1:] == ["--health"]:
        raise SystemExit(ask_health(chosen))
    asyncio.run(serve(chosen))
