"""The loop that sends and measures: one asyncio loop, one task a user (closed loop) or a request (open loop)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import yarl

from inferlift.load.answer import Answer
from inferlift.load.connection import error_class, session, stale
from inferlift.load.figures import LoopLag
from inferlift.load.plan import LoadPlan
from inferlift.load.samples import Sample
from inferlift.load.sse import SseParser
from inferlift.load.target import request_body

TICK_S = 0.02  # how often the loop checks how late it runs


class Worker:
    """State of one run. `main` runs in its own thread; the caller's thread reads `samples` and calls the
    three methods after it."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.finished = threading.Event()
        self.failure: BaseException | None = None
        self.samples: list[Sample] = []  # only ever appended to
        self.sent = 0
        self.errors: dict[str, int] = {}
        self.in_flight = 0
        self.peak = 0
        self.curve: list[tuple[float, int]] = []
        self.lag = LoopLag()
        self.start = 0.0
        self.seconds = 0.0
        self.busy_share: float | None = None
        self._url = yarl.URL(plan.target.url)
        self._bodies = [
            request_body(p, plan.max_tokens, stream=plan.stream, model=plan.target.model) for p in plan.prompts
        ]
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._cut = ("timeout", "the run's deadline passed")
        self._loop: asyncio.AbstractEventLoop | None = None

    def main(self) -> None:
        """Target of the thread: an error of our own code ends in `failure`, never in silence."""
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self.failure = error
        finally:
            self.finished.set()

    def no_more(self) -> None:
        """Send nothing further; what is in flight is awaited."""
        self._stopping = True
        self._in_loop(lambda: self._wake.set())

    def abort(self) -> None:
        """Cut what is in flight and end."""
        self._cut = ("timeout", "the run was interrupted")
        self._in_loop(self._cancel)

    def _in_loop(self, work: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended by itself meanwhile
                self._loop.call_soon_threadsafe(work)

    # --- in the loop's thread

    async def _main(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        cpu = time.thread_time()
        trace = _trace()
        keep = session(self.plan.target, traces=[trace])
        fresh = session(self.plan.target, keep=False, traces=[trace])
        self.start = loop.time()
        loop.call_later(TICK_S, self._tick, self.start + TICK_S)
        deadline = loop.call_later(self.plan.deadline_s, self._cancel)
        async with keep, fresh:
            self._sessions = (keep, fresh)
            if self.plan.users is not None:
                users = min(self.plan.users, self.plan.requests)
                for _ in range(users):
                    self._spawn(self._user())
            else:
                await self._schedule()
            while self._tasks:
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    self._tasks.discard(task)
                    if not task.cancelled() and (error := task.exception()) is not None:
                        self._cancel()
                        raise error
        deadline.cancel()
        self.seconds = loop.time() - self.start
        self.busy_share = (time.thread_time() - cpu) / self.seconds if self.seconds > 0 else None

    async def _user(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping and self._next < self.plan.requests:
            i = self._next
            self._next += 1
            await self._one(i, loop.time())

    async def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        for i, offset in enumerate(self.plan.schedule_s or ()):
            wait = self.start + offset - loop.time()
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait)
            elif i % 64 == 63:
                await asyncio.sleep(0)  # far behind: what was sent must still be read
            if self._stopping:
                return
            self._spawn(self._one(i, self.start + offset))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        if self.plan.schedule_s is not None:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)

    async def _one(self, i: int, scheduled: float) -> None:
        """One request, from its scheduled time to its record. Only errors of our own code pass through."""
        loop = asyncio.get_running_loop()
        exchange = _Exchange(self, Sample(i=i, at_s=scheduled - self.start))
        sample, answer = exchange.sample, exchange.answer
        self.sent += 1
        sent = loop.time()
        sample.delay_ms = (sent - scheduled) * 1000
        try:
            async with asyncio.timeout_at(sent + self.plan.request_timeout_s):
                await self._exchange(exchange)
        except asyncio.CancelledError:
            sample.error, sample.detail = self._cut
        except Exception as error:
            sample.error, sample.detail = error_class(error)
        now = loop.time()
        if exchange.on_wire:
            self.in_flight -= 1
        end = exchange.end or now
        sample.total_ms = (end - scheduled) * 1000
        sample.chunks, sample.tokens, sample.prompt_tokens = answer.chunks, answer.tokens, answer.prompt_tokens
        for name, moment in (
            ("ttft_ms", answer.first), ("first_content_ms", answer.first_content), ("last_token_ms", answer.last),
        ):  # fmt: skip
            if moment is not None:
                setattr(sample, name, (moment - scheduled) * 1000)
        if sample.error is not None:
            self.errors[sample.error] = self.errors.get(sample.error, 0) + 1
        self.samples.append(sample)

    async def _exchange(self, exchange: _Exchange) -> None:
        keep, fresh = self._sessions
        try:
            await self._post(keep, exchange)
        except aiohttp.ClientError as error:
            kept = exchange.sample.connect_ms is None
            if not (kept and exchange.sample.status is None and stale(error)):
                raise
            exchange.sample.retried = True
            await self._post(fresh, exchange)

    async def _post(self, client: aiohttp.ClientSession, exchange: _Exchange) -> None:
        sample, answer = exchange.sample, exchange.answer
        body = self._bodies[sample.i % len(self._bodies)]
        time_now = asyncio.get_running_loop().time
        async with client.post(self._url, data=body, allow_redirects=False, trace_request_ctx=exchange) as response:
            sample.status = response.status
            if response.status != 200:
                text = await response.content.read(300)
                sample.error = _status_class(response.status)
                sample.detail = f"status {response.status}: {text.decode(errors='replace')[:120]}"
            elif not self.plan.stream:
                data = await response.read()
                exchange.end = time_now()
                answer.body(data, exchange.end)
            elif response.content_type != "text/event-stream":
                await response.read()
                sample.error, sample.detail = "content", f"asked for a stream, got {response.content_type}"
            else:
                parser = SseParser()
                async for chunk in response.content.iter_any():
                    now = time_now()
                    try:
                        events = parser.feed(chunk)
                    except ValueError as error:
                        sample.error, sample.detail = "content", str(error)
                        return
                    for event in events:
                        answer.event(event, now)
                    if answer.done:
                        exchange.end = exchange.end or now
                        await _drain(response)
                        break
                else:
                    for event in parser.finish():
                        answer.event(event, time_now())
        if sample.error is None and (problem := answer.problem()) is not None:
            sample.error, sample.detail = problem

    def _tick(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self.lag.tick(now, now - due)
        if not self.curve or now - self.start - self.curve[-1][0] >= 0.25:
            self.curve.append((now - self.start, self.in_flight))
        loop.call_at(now + TICK_S, self._tick, now + TICK_S)

    def _cancel(self) -> None:
        self._stopping = True
        self._wake.set()
        for task in tuple(self._tasks):
            task.cancel()


class _Exchange:
    """A request under way: its sample, its answer, and what the connection told."""

    __slots__ = ("answer", "connecting", "end", "on_wire", "sample", "worker")

    def __init__(self, worker: Worker, sample: Sample) -> None:
        self.worker = worker
        self.sample = sample
        self.answer = Answer()
        self.connecting = 0.0
        self.end: float | None = None
        self.on_wire = False


def _trace() -> aiohttp.TraceConfig:
    """Stamps connection set-ups, and counts a request as in flight from the moment its header is sent."""

    async def connecting(_: object, context: Any, __: object) -> None:
        context.trace_request_ctx.connecting = asyncio.get_running_loop().time()

    async def connected(_: object, context: Any, __: object) -> None:
        exchange: _Exchange = context.trace_request_ctx
        exchange.sample.connect_ms = (asyncio.get_running_loop().time() - exchange.connecting) * 1000

    async def sent(_: object, context: Any, __: object) -> None:
        exchange: _Exchange = context.trace_request_ctx
        if not exchange.on_wire:
            exchange.on_wire = True
            worker = exchange.worker
            worker.in_flight += 1
            worker.peak = max(worker.peak, worker.in_flight)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(connecting)
    trace.on_connection_create_end.append(connected)
    trace.on_request_headers_sent.append(sent)
    return trace


async def _drain(response: aiohttp.ClientResponse) -> None:
    """After [DONE] only the end of the body is missing: read it, so that the connection can be kept."""
    if response.content.at_eof():
        return
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(1.0):
            await response.content.read()


def _status_class(status: int) -> str:
    if 400 <= status < 500:
        return "http_4xx"
    return "http_5xx" if status >= 500 else "content"
