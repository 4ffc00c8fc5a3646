"""The workload's app between a test client and a stand-in for the model server.

The stand-in proves nothing about a real model server's replies: the lab tests do that.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from inferlift.profile import ROOT

WORKLOAD = ROOT / "templates" / "workloads" / "chat"
sys.path.insert(0, str(WORKLOAD))

import app as chat_app  # noqa: E402


class StandInModelServer:
    """Answers as told by `mode`; `requests` holds the bodies it got."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.pieces = [" Hello", " there", " "]
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.connections = 0
        self.hold = asyncio.Event()
        self.hold.set()

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes([web.post(chat_app.CHAT, self.chat), web.get("/metrics", self.metrics)])
        return application

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(text="llamacpp:tokens_predicted_total 7\n")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        assert request.transport is not None
        if self.mode == "drop once":
            self.mode = "ok"
            request.transport.abort()
            return web.Response()
        if self.mode == "drop":
            request.transport.abort()
            return web.Response()
        if self.mode == "503":
            return web.json_response({"error": {"message": "loading", "code": 503}}, status=503)
        if not self.requests[-1].get("stream"):
            await self.hold.wait()
            return web.json_response(
                {"choices": [{"message": {"role": "assistant", "content": "".join(self.pieces)}}], "usage": {}}
            )
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
        deltas += [{"content": piece} for piece in self.pieces]
        for delta in deltas:
            event = json.dumps({"choices": [{"delta": delta}]}, ensure_ascii=False).encode()
            await response.write(b"data: " + event[:20])
            await response.write(event[20:] + b"\n\n")
            if self.mode == "cut" and delta.get("content"):
                request.transport.abort()
                return response
        await self.hold.wait()
        if self.mode != "no done":
            await response.write(b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\ndata: [DONE]\n\n')
        return response


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "prompts").mkdir(parents=True)
    (folder / "documents").mkdir()
    (folder / "glossary.json").write_text('{"DNS": "domain name system", "TTL": "time to live"}')
    (folder / "prompts" / "system.txt").write_text("Answer briefly.\n")
    (folder / "documents" / "kb-0001.md").write_text("# Note 1\nThe queue fills up.\n")
    return folder


Started = tuple[TestClient[Any, Any], StandInModelServer, "chat_app.App"]


@asynccontextmanager
async def _started(data: Path, **changes: Any) -> AsyncIterator[Started]:
    stand_in = StandInModelServer()
    async with TestServer(stand_in.application()) as upstream:
        settings = {
            "upstream": str(upstream.make_url("/")).rstrip("/"), "upstream_key": "up-key", "key": "app-key",
            "host": "127.0.0.1", "port": 0, "tls_cert": None, "tls_key": None, "data": data,
            "timeout_s": 5.0, "lame_duck_s": 0.0, "drain_s": 5.0, "max_body": 262144,
        }  # fmt: skip
        tried = chat_app.App(chat_app.Settings(**(settings | changes)))
        headers = {"Authorization": "Bearer app-key"}
        async with TestServer(tried.application()) as server, TestClient(server, headers=headers) as client:
            yield client, stand_in, tried


@pytest.fixture
async def started(data: Path) -> AsyncIterator[Started]:
    async with _started(data) as whole:
        yield whole


@pytest.fixture
def start(data: Path) -> Callable[..., Any]:
    return lambda **changes: _started(data, **changes)


@pytest.fixture
def stand_in() -> StandInModelServer:
    return StandInModelServer()


@pytest.fixture
def question() -> Callable[..., dict[str, Any]]:
    return lambda text="What is DNS?", **more: {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 8,
        **more,
    }
