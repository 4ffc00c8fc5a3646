"""The app's promises: keys, both reply forms, retries, broken streams, health, metrics, drain."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import app as chat_app
import pytest
from aiohttp.test_utils import TestServer

CHAT = chat_app.CHAT
Started = Any  # (client, stand-in, app), see conftest.py
Question = Callable[..., dict[str, Any]]


async def test_whole_reply_is_prepared_and_trimmed(started: Started, question: Question) -> None:
    client, stand_in, _ = started
    async with client.post(CHAT, json=question(seed=7)) as answer:
        assert answer.status == 200
        assert (await answer.json())["choices"][0]["message"]["content"] == "Hello there"
    sent = stand_in.requests[0]
    assert sent["messages"][0] == {"role": "system", "content": "Answer briefly."}
    assert sent["messages"][1]["content"] == "What is DNS (domain name system)?"
    assert (sent["max_tokens"], sent["seed"]) == (8, 7)
    assert stand_in.keys == ["Bearer up-key"]


async def test_stream_is_trimmed_whole_and_asks_for_usage(started: Started, question: Question) -> None:
    client, stand_in, tried = started
    async with client.post(CHAT, json=question(stream=True)) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        raw = await answer.read()
    events = [e.removeprefix(b"data: ") for e in raw.split(b"\n\n") if e]
    assert events[-1] == b"[DONE]"
    deltas = [json.loads(e)["choices"][0]["delta"].get("content") for e in events[:-2]]
    assert deltas == [None, "Hello", " there", " "]
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 3
    assert stand_in.requests[0]["stream_options"] == {"include_usage": True}
    assert "app_ttft_seconds_count 1" in tried.metrics.text()


async def test_stream_is_not_held_back(started: Started, question: Question) -> None:
    client, stand_in, _ = started
    stand_in.hold.clear()
    async with client.post(CHAT, json=question(stream=True)) as answer:
        seen = b""
        while b"there" not in seen:  # before the model server was allowed to end
            seen += await asyncio.wait_for(answer.content.readany(), 2)
        stand_in.hold.set()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("mode", ["cut", "no done"])
async def test_broken_stream_does_not_end_clean(started: Started, mode: str, question: Question) -> None:
    client, stand_in, tried = started
    stand_in.mode = mode
    async with client.post(CHAT, json=question(stream=True)) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    assert 'app_requests_total{status="aborted"} 1' in tried.metrics.text()
    assert tried.metrics.in_flight == 0


async def test_closed_connection_is_retried_once(started: Started, question: Question) -> None:
    client, stand_in, tried = started
    stand_in.mode = "drop once"
    async with client.post(CHAT, json=question()) as answer:
        assert answer.status == 200
    assert tried.metrics.retries == 1
    stand_in.mode = "drop"
    async with client.post(CHAT, json=question()) as answer:
        assert answer.status == 502
    assert len(stand_in.requests) == 4


async def test_absent_and_failing_model_server(start: Callable[..., Any], question: Question) -> None:
    async with start() as (client, stand_in, _):
        stand_in.mode = "503"
        async with client.post(CHAT, json=question()) as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["message"] == "loading"
        async with client.post(CHAT, json=question(stream=True)) as answer:
            assert answer.status == 503
    async with start(upstream="http://127.0.0.1:9") as (client, _, _), client.post(CHAT, json=question()) as answer:
        assert answer.status == 502


async def test_slow_model_server_is_a_504(start: Callable[..., Any], question: Question) -> None:
    async with start(timeout_s=0.1) as (client, stand_in, _):
        stand_in.hold.clear()
        async with client.post(CHAT, json=question()) as answer:
            assert answer.status == 504
        stand_in.hold.set()


@pytest.mark.parametrize("header", ["Bearer other", "app-key", "", "Bearer app-kéy"])
async def test_wrong_keys(started: Started, header: str, question: Question) -> None:
    client, stand_in, _ = started
    for answer in (
        await client.post(CHAT, json=question(), headers={"Authorization": header}),
        await client.get("/metrics", headers={"Authorization": header}),
    ):
        assert answer.status == 401
        answer.release()
    assert not stand_in.requests


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{", "Expecting"),
        (b"\xff", "utf-8"),
        (b"[]", "object"),
        (b"{}", "messages"),
        (b'{"messages":[]}', "messages"),
        (b'{"messages":["a"]}', "content"),
        (b'{"messages":[{"role":"user","content":1}]}', "content"),
        (b'{"messages":[{"role":"root","content":"a"}]}', "role"),
        (b'{"messages":[{"role":"user","content":"a"}],"max_tokens":0}', "max_tokens"),
        (b'{"messages":[{"role":"user","content":"a"}],"max_tokens":true}', "max_tokens"),
        (b'{"messages":[{"role":"user","content":"a"}],"document":"../glossary"}', "document"),
        (b'{"messages":[{"role":"user","content":"a"}],"document":"kb-9999"}', "document"),
    ],
)
async def test_wrong_bodies_say_what_is_wrong(started: Started, body: bytes, named: str) -> None:
    client, stand_in, _ = started
    async with client.post(CHAT, data=body) as answer:
        assert answer.status == 400
        assert named in (await answer.json())["error"]["message"]
    assert not stand_in.requests


async def test_too_large_a_body(started: Started) -> None:
    client, _, _ = started
    async with client.post(CHAT, data=b"x" * 300_000) as answer:
        assert answer.status == 413


async def test_health_needs_a_completion(started: Started, question: Question) -> None:
    client, stand_in, tried = started
    stand_in.mode = "503"
    async with client.get("/health", headers={"Authorization": ""}) as answer:
        assert answer.status == 503
    stand_in.mode = "ok"
    for _ in range(3):
        async with client.get("/health") as answer:
            assert answer.status == 200
    assert len(stand_in.requests) == 2  # one proof serves for a while
    stand_in.mode = "503"
    async with client.post(CHAT, json=question()) as answer:
        assert answer.status == 503
    async with client.get("/health") as answer:  # a failed completion ends the proof at once
        assert answer.status == 503
    tried.draining = True
    async with client.get("/health") as answer:
        assert answer.status == 503
        assert (await answer.json())["error"]["message"] == "draining"


async def test_a_users_reply_answers_a_waiting_health(started: Started) -> None:
    client, stand_in, tried = started
    stand_in.hold.clear()  # the probe waits behind a full queue
    waiting = asyncio.ensure_future(client.get("/health"))
    while not stand_in.requests:
        await asyncio.sleep(0.005)
    tried.proved()
    answer = await asyncio.wait_for(waiting, 2)
    assert answer.status == 200
    stand_in.hold.set()


async def test_metrics_hold_both_sides(started: Started, question: Question) -> None:
    client, _, _ = started
    async with client.post(CHAT, json=question()) as answer:
        assert answer.status == 200
    async with client.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    for line in (
        'app_requests_total{status="200"} 1',
        "app_upstream_up 1",
        "app_glossary_terms 2",
        "app_request_seconds_count 1",
        "llamacpp:tokens_predicted_total 7",
    ):
        assert line in lines


async def test_cheap(started: Started, question: Question) -> None:
    """2 ms of CPU a request are the app's share; client and stand-in in this process cost as much again, or more."""
    client, _, _ = started
    began = time.process_time()
    for _ in range(100):
        async with client.post(CHAT, json=question()) as answer:
            await answer.read()
    assert (time.process_time() - began) / 100 < 0.012


async def test_sigterm_drains(data: Path, tmp_path: Path, stand_in: Any, question: Question) -> None:
    """The process itself: a reply in flight ends, new connections are refused, then it exits with 0."""
    stand_in.hold.clear()
    key = tmp_path / "key"
    key.write_text("app-key\n")
    async with TestServer(stand_in.application()) as upstream:
        port = _free_port()
        env = dict(
            os.environ, UPSTREAM_URL=str(upstream.make_url("/")), APP_PORT=str(port), DATA_DIR=str(data),
            APP_KEY_FILE=str(key), APP_LAME_DUCK_S="0.1",
        )  # fmt: skip
        child = subprocess.Popen(
            [sys.executable, chat_app.__file__], env=env, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        try:
            assert child.stdout is not None
            assert "serving" in await asyncio.to_thread(child.stdout.readline)
            headers = {"Authorization": "Bearer app-key"}
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:
                pending = asyncio.ensure_future(session.post(CHAT, json=question()))
                while not stand_in.requests:
                    await asyncio.sleep(0.01)
                child.send_signal(signal.SIGTERM)
                await asyncio.wait_for(_refused(port), 5)
                assert child.poll() is None
                stand_in.hold.set()
                answer = await asyncio.wait_for(pending, 5)
                assert answer.status == 200
                assert (await answer.json())["choices"][0]["message"]["content"] == "Hello there"
            assert await asyncio.to_thread(child.wait, 5) == 0
            assert "drained, 0 requests cut" in child.stdout.read()
        finally:
            child.kill()
            child.wait()


def test_health_command_without_a_server() -> None:
    env = dict(os.environ, APP_PORT=str(_free_port()))
    done = subprocess.run([sys.executable, chat_app.__file__, "--health"], env=env, check=False, timeout=20)
    assert done.returncode == 1


async def _refused(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        writer.close()
        await asyncio.sleep(0.02)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
