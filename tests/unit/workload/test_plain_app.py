"""The chat app with the plain wording: what stands before a model server that users called as it is."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import app as chat_app
import pytest
from test_plain_wording import plain  # noqa: F401  (a fixture)

TOOLS = {"messages": [{"role": "user", "content": [{"type": "text", "text": " Hi"}]}], "tools": [], "max_tokens": 9999}


@pytest.fixture
def without_words(plain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name in ("Data", "Trimmer", "prepare", "trim"):
        monkeypatch.setattr(chat_app, name, getattr(plain, name))


@pytest.mark.usefixtures("without_words")
async def test_what_is_asked_and_answered_passes_as_it_is(start: Callable[..., Any]) -> None:
    async with start() as (client, stand_in, _):
        async with client.post(chat_app.CHAT, json=TOOLS) as answer:
            assert (await answer.json())["choices"][0]["message"]["content"] == "".join(stand_in.pieces)
        assert stand_in.requests == [TOOLS]
        async with client.post(chat_app.CHAT, data=b"[]") as answer:
            assert answer.status == 400


@pytest.mark.usefixtures("without_words")
@pytest.mark.parametrize(("mode", "whole"), [(None, True), ("cut", False), ("no done", False)])
async def test_a_stream_that_was_cut_does_not_end_clean(
    start: Callable[..., Any], question: Callable[..., Any], mode: str | None, whole: bool
) -> None:
    async with start() as (client, stand_in, tried):
        stand_in.mode = mode or stand_in.mode
        async with client.post(chat_app.CHAT, json=question(stream=True)) as answer:
            if whole:
                raw = await answer.read()
                assert raw.endswith(b"data: [DONE]\n\n")
                assert "app_ttft_seconds_count 1" in tried.metrics.text()
            else:
                with pytest.raises(chat_app.aiohttp.ClientError):
                    await answer.read()


@pytest.mark.usefixtures("without_words")
async def test_bodies_as_large_as_the_old_side_took_them(
    start: Callable[..., Any], question: Callable[..., Any]
) -> None:
    async with start(max_body=1_000_000) as (client, _, _):
        async with client.post(chat_app.CHAT, json=question("x" * 900_000)) as answer:
            assert answer.status == 200
        async with client.post(chat_app.CHAT, json=question("x" * 1_000_000)) as answer:
            assert answer.status == 413
