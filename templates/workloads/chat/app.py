"""The users' chat app, which stands before the model server: keys, streams, health, metrics, drain.

OpenAI's chat completions on both sides; streams pass as they come. Settings are environment variables, listed in
`Settings`. What happens to the words is in wording.py.
"""

from __future__ import annotations

import asyncio
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
from wording import Data, Trimmer, prepare, trim

CHAT = "/v1/chat/completions"
PROOF_AGE_S = 2.0  # a completion this young proves that the model server completes
PROBE_TIMEOUT_S = 10.0
BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 120)
JSON = "application/json"


@dataclass(frozen=True)
class Settings:
    upstream: str  # UPSTREAM_URL: the model server
    upstream_key: str | None  # UPSTREAM_KEY_FILE: shown to the model server
    key: str | None  # APP_KEY_FILE: callers must present it as a bearer token
    host: str  # APP_HOST
    port: int  # APP_PORT
    tls_cert: str | None  # APP_TLS_CERT, APP_TLS_KEY: serve TLS when given
    tls_key: str | None
    data: Path  # DATA_DIR
    timeout_s: float  # UPSTREAM_TIMEOUT_S: no byte from the model server for so long is a 504
    lame_duck_s: float  # APP_LAME_DUCK_S: /health says 503 for so long before the socket closes
    drain_s: float  # APP_DRAIN_S: requests in flight get so long to end
    max_body: int  # APP_MAX_BODY_BYTES: a larger request is a 413

    @classmethod
    def read(cls, env: dict[str, str]) -> Settings:
        def secret(name: str) -> str | None:
            return Path(env[name]).read_text().strip() if env.get(name) else None

        return cls(
            upstream=env.get("UPSTREAM_URL", "http://127.0.0.1:8081").rstrip("/"),
            upstream_key=secret("UPSTREAM_KEY_FILE"),
            key=secret("APP_KEY_FILE"),
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


class Metrics:
    """Counters in Prometheus' text format."""

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.retries = 0
        self.in_flight = 0
        self.times: dict[str, list[float]] = {
            name: [0.0] * (len(BUCKETS_S) + 2) for name in ("app_request_seconds", "app_ttft_seconds")
        }

    def observe(self, name: str, seconds: float) -> None:
        row = self.times[name]
        for place, bound in enumerate(BUCKETS_S):
            row[place] += seconds <= bound
        row[-2] += 1
        row[-1] += seconds

    def text(self) -> str:
        lines = ["# TYPE app_requests_total counter"]
        lines += [f'app_requests_total{{status="{s}"}} {n}' for s, n in sorted(self.statuses.items())]
        lines += ["# TYPE app_upstream_retries_total counter", f"app_upstream_retries_total {self.retries}"]
        lines += ["# TYPE app_in_flight gauge", f"app_in_flight {self.in_flight}"]
        for name, row in self.times.items():
            lines.append(f"# TYPE {name} histogram")
            lines += [f'{name}_bucket{{le="{b}"}} {row[i]:.0f}' for i, b in enumerate(BUCKETS_S)]
            lines += [f'{name}_bucket{{le="+Inf"}} {row[-2]:.0f}', f"{name}_count {row[-2]:.0f}"]
            lines.append(f"{name}_sum {row[-1]:.6f}")
        return "\n".join(lines) + "\n"


class App:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.data = Data(settings.data)
        self.metrics = Metrics()
        self.draining = False
        self.proved_at = float("-inf")  # monotonic time of the last real completion
        self.proof = asyncio.Event()
        self.probe: asyncio.Task[None] | None = None
        self.headers = {"Authorization": f"Bearer {settings.upstream_key}"} if settings.upstream_key else {}

    async def sessions(self, _: web.Application):  # type: ignore[no-untyped-def]
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=self.settings.timeout_s)
        common = {"timeout": timeout, "headers": self.headers, "auto_decompress": False}
        self.kept = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4), **common)
        self.fresh = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True), **common)
        yield
        if self.probe:
            self.probe.cancel()
        await self.kept.close()
        await self.fresh.close()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=self.settings.max_body)
        application.cleanup_ctx.append(self.sessions)
        application.add_routes(
            [web.post(CHAT, self.chat), web.get("/health", self.health), web.get("/metrics", self.show_metrics)]
        )
        return application

    async def chat(self, request: web.Request) -> web.StreamResponse:
        began = time.monotonic()
        self.metrics.in_flight += 1
        status = "aborted"
        try:
            response = await self._chat(request, began)
            status = str(response.status)
            if self.draining:
                response.force_close()
        except BrokenStream as broken:
            # The users must not take a cut reply for a whole one: no clean end of the chunked body.
            if request.transport is not None:
                request.transport.abort()
            response = broken.response
        finally:
            self.metrics.in_flight -= 1
            self.metrics.statuses[status] = self.metrics.statuses.get(status, 0) + 1
            self.metrics.observe("app_request_seconds", time.monotonic() - began)
        return response

    async def _chat(self, request: web.Request, began: float) -> web.StreamResponse:
        if not self.allowed(request):
            return problem(401, "a valid key is needed")
        try:
            body = prepare(json.loads(await request.read()), self.data)
        except web.HTTPRequestEntityTooLarge:
            return problem(413, "the body is too large")
        except ValueError as error:
            return problem(400, str(error))
        try:
            async with await self.ask(body) as upstream:
                if upstream.status == 200 and body.get("stream"):
                    return await self.pass_on(request, upstream, began)
                answer = await upstream.read()
                if upstream.status != 200:
                    if upstream.status >= 500:
                        self.disproved()
                    return web.Response(status=upstream.status, body=answer, content_type=upstream.content_type)
        except TimeoutError:
            self.disproved()
            return problem(504, "the model server took too long")
        except aiohttp.ClientError:
            self.disproved()
            return problem(502, "the model server is not there")
        self.proved()
        return web.Response(body=trim(answer), content_type=JSON)

    async def ask(self, body: dict[str, object]) -> aiohttp.ClientResponse:
        """One retry, on a connection of its own, where a kept one was closed before the first byte."""
        payload = json.dumps(body, ensure_ascii=False).encode()
        url, headers = self.settings.upstream + CHAT, {"Content-Type": JSON}
        try:
            return await self.kept.post(url, data=payload, headers=headers)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            self.metrics.retries += 1
            return await self.fresh.post(url, data=payload, headers=headers)

    async def pass_on(self, request: web.Request, upstream: aiohttp.ClientResponse, began: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        trimmer = Trimmer()
        try:
            async for piece in upstream.content.iter_any():
                waited_for_text = not trimmer.text_seen
                events = trimmer.feed(piece)
                if trimmer.text_seen:
                    self.proved()
                    if waited_for_text:
                        self.metrics.observe("app_ttft_seconds", time.monotonic() - began)
                if events:
                    await response.write(events)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            raise BrokenStream(response) from None
        if not trimmer.done:
            raise BrokenStream(response)
        await response.write_eof()
        return response

    def allowed(self, request: web.Request) -> bool:
        shown = request.headers.get("Authorization", "")
        return self.settings.key is None or hmac.compare_digest(shown.encode(), f"Bearer {self.settings.key}".encode())

    def proved(self) -> None:
        self.proved_at = time.monotonic()
        self.proof.set()

    def disproved(self) -> None:
        self.proved_at = float("-inf")

    async def health(self, _: web.Request) -> web.Response:
        """200 only while the model server really completes: a user's reply counts, else one token is asked for."""
        if self.draining:
            return problem(503, "draining")
        if time.monotonic() - self.proved_at > PROOF_AGE_S:
            self.proof.clear()
            if self.probe is None or self.probe.done():
                self.probe = asyncio.ensure_future(self.complete_once())
            waiting = asyncio.ensure_future(self.proof.wait())
            # Behind a full queue the probe waits too; a user's reply that comes meanwhile is as good.
            await asyncio.wait({self.probe, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if time.monotonic() - self.proved_at > PROOF_AGE_S:
            return problem(503, "the model server does not complete")
        return web.json_response({"status": "ok"})

    async def complete_once(self) -> None:
        body: dict[str, object] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        with suppress(aiohttp.ClientError, TimeoutError, ValueError):
            async with await asyncio.wait_for(self.ask(body), PROBE_TIMEOUT_S) as answer:
                if answer.status == 200 and (await answer.json(content_type=None)).get("choices"):
                    self.proved()

    async def show_metrics(self, request: web.Request) -> web.Response:
        if not self.allowed(request):
            return problem(401, "a valid key is needed")
        theirs, up = "", 0
        with suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=3)
            async with self.fresh.get(self.settings.upstream + "/metrics", timeout=timeout) as answer:
                if answer.status == 200:
                    theirs, up = await answer.text(), 1
        own = f"# TYPE app_upstream_up gauge\napp_upstream_up {up}\n"
        own += f"# TYPE app_glossary_terms gauge\napp_glossary_terms {len(self.data.glossary()[1])}\n"
        return web.Response(text=self.metrics.text() + own + theirs, content_type="text/plain")


class BrokenStream(Exception):
    """The model server's stream ended before [DONE]."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__()
        self.response = response


def problem(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then drain: say so on /health, stop accepting, let replies end."""
    app = App(settings)
    runner = web.AppRunner(app.application(), access_log=None)
    await runner.setup()
    tls = None
    if settings.tls_cert:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(settings.tls_cert, settings.tls_key)
    loop = asyncio.get_running_loop()
    # Our own server socket: aiohttp's site would cut replies in flight when it stops.
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
    while app.metrics.in_flight and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    print(f"drained, {app.metrics.in_flight} requests cut", flush=True)
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
