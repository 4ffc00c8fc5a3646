"""The text recognition app before a stand-in for the model server: that proves the app's part, not Triton's."""

from __future__ import annotations

import base64
import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from inferlift.profile import ROOT

FOLDER = ROOT / "templates" / "workloads" / "image"
PICTURE = {"image": base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()}
KEY = "planted-app-key"


def load_app() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("ocr_app", FOLDER / "app.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["ocr_app"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


ocr = load_app()


class StandIn:
    """Answers as KServe v2 does, with a text or a status of the test's choice."""

    def __init__(self) -> None:
        self.status, self.text, self.error, self.asked = 200, "Invoice 2026-118", "", 0

    async def figures(self, _: web.Request) -> web.Response:
        return web.Response(text="nv_inference_count 7\n")

    async def infer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.status != 200:
            return web.json_response({"error": self.error}, status=self.status)
        outputs = [{"name": "TEXT", "data": [self.text]}, {"name": "SCORE", "data": [0.98]}]
        return web.json_response({"outputs": outputs})


@asynccontextmanager
async def served(data: Path, upstream: str | None = None) -> AsyncIterator[tuple[Any, StandIn]]:
    stand_in = StandIn()
    application = web.Application()
    application.add_routes([web.post("/v2/models/model/infer", stand_in.infer), web.get("/metrics", stand_in.figures)])
    async with TestServer(application) as server:
        settings = ocr.Settings(
            upstream=upstream or str(server.make_url("")).rstrip("/"), metrics=str(server.make_url("/metrics")),
            model="model", key=KEY, host="127.0.0.1",
            port=0, tls_cert=None, tls_key=None, data=data, timeout_s=5, lame_duck_s=0, drain_s=0, max_body=65536,
        )  # fmt: skip
        async with TestClient(TestServer(ocr.App(settings).application())) as client:
            yield client, stand_in


def headers(key: str = KEY) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_pictures_text_comes_back_with_its_kind(tmp_path: Path) -> None:
    (tmp_path / "kinds.json").write_text((FOLDER / "data" / "kinds.json").read_text())
    async with served(tmp_path) as (client, _):
        answer = await client.post("/v1/ocr", json=PICTURE, headers=headers())
        assert await answer.json() == {"text": "Invoice 2026-118", "confidence": 0.98, "kind": "invoice"}


async def test_data_that_comes_later_is_used(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, _):
        first = await (await client.post("/v1/ocr", json=PICTURE, headers=headers())).json()
        (tmp_path / "kinds.json").write_text('{"bill": "^Invoice"}')
        second = await (await client.post("/v1/ocr", json=PICTURE, headers=headers())).json()
    assert (first["kind"], second["kind"]) == (None, "bill")


@pytest.mark.parametrize(
    ("body", "key", "status"),
    [
        (PICTURE, "wrong", 401),
        ({}, KEY, 400),
        ([], KEY, 400),
        ({"image": 5}, KEY, 400),
        ({"image": "!"}, KEY, 400),
        ({"image": base64.b64encode(b"GIF89a").decode()}, KEY, 400),
        ({"image": "A" * 100_000}, KEY, 413),
    ],
)
async def test_what_is_refused_and_never_asked(tmp_path: Path, body: Any, key: str, status: int) -> None:
    async with served(tmp_path) as (client, stand_in):
        answer = await client.post("/v1/ocr", json=body, headers=headers(key))
        assert answer.status == status
        assert stand_in.asked == 0


@pytest.mark.parametrize(
    ("status", "error", "expected"), [(503, "busy", 502), (500, "not a picture: x", 400), (400, "shape", 400)]
)
async def test_the_model_servers_errors_are_the_users_or_its_own(
    tmp_path: Path, status: int, error: str, expected: int
) -> None:
    async with served(tmp_path) as (client, stand_in):
        stand_in.status, stand_in.error = status, error
        assert (await client.post("/v1/ocr", json=PICTURE, headers=headers())).status == expected


async def test_health_is_a_real_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as (client, stand_in):
        stand_in.status = 503
        assert (await client.get("/health")).status == 503
        stand_in.status = 200
        assert (await client.get("/health")).status == 200
        asked = stand_in.asked
        assert (await client.get("/health")).status == 200
        assert stand_in.asked == asked  # an answer of a moment ago is proof enough


async def test_without_a_model_server_it_is_502_and_unhealthy(tmp_path: Path) -> None:
    async with served(tmp_path, "http://127.0.0.1:9") as (client, _):
        assert (await client.post("/v1/ocr", json=PICTURE, headers=headers())).status == 502
        assert (await client.get("/health")).status == 503
        metrics = await client.get("/metrics", headers=headers())
        text = await metrics.text()
    assert "app_upstream_up 0" in text
    assert "nv_inference_count 7" in text
    assert 'app_requests_total{status="502"} 1' in text


def test_a_damaged_file_of_kinds_changes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kinds = ocr.Kinds(tmp_path)
    kinds.path.write_text('{"date": "^[0-9-]+$"}')
    assert kinds.of("2026-11-30") == "date"
    kinds.path.write_text("x")
    os.utime(kinds.path, ns=(1, 1))
    assert kinds.of("2026-11-30") == "date"
    assert "stay as they were" in capfd.readouterr().err
