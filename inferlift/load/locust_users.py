"""One of several Locust workers: its users send a share of a load test's requests, measured as everywhere here.

    python -m inferlift.load.locust_users MASTER_HOST:PORT

Locust is the engine (users, their distribution, the connection to the master); connection, protocol and answer are
the load engine's own. Everything to be done comes from the master; a key comes as a reference, resolved on this host.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import gevent.socket
from locust import User, constant, events, task
from locust.env import Environment
from locust.exception import StopUser

from inferlift.errors import InferliftError
from inferlift.load.exchange import Exchange, broken
from inferlift.load.hidden import hider
from inferlift.load.link import Link
from inferlift.load.resolve import addresses
from inferlift.load.samples import Sample, line
from inferlift.load.scenario import DONE, GO, PART, PLAN, READY, STOP, protocol_of, target_of

BATCH = 500  # samples of one message
BATCH_S = 0.5


class Share:
    """This worker's part of the test, and what came of it."""

    def __init__(self, plan: dict[str, Any], folder: Path) -> None:
        self.plan = plan
        self.target, self.protocol = target_of(plan), protocol_of(plan, folder)
        self.head, self.hide = self.protocol.head(self.target), hider(self.target)
        self.context, self.addresses = self.target.ssl_context(), addresses(self.target)
        self.go = gevent.event.Event()
        self.mine = list(range(plan["index"], plan["requests"], plan["workers"]))
        self.due: list[float] | None = plan["due_s"]
        self.start = self.end = 0.0
        self.next = self.done = self.connections = self.opened = 0
        self.stopped = self.stamped = False
        self.offset = time.time() - time.monotonic()
        self.gaps: dict[int, int] = {}
        self.lags: dict[int, int] = {}
        self.lines: list[str] = []
        self.asking: set[Any] = set()  # users with a request under way
        self.polled = self.before = time.monotonic()  # when the sockets were asked the last time, and the time before
        self._check = gevent.get_hub().loop.check(ref=False)
        self._check.start(self._turn)

    def _turn(self) -> None:
        self.before, self.polled = self.polled, time.monotonic()

    @property
    def over(self) -> bool:
        late = self.start > 0 and time.monotonic() - self.start > self.plan["deadline_s"]
        return self.stopped or late or self.next >= len(self.mine)

    def stop(self) -> None:
        """Send nothing further and cut what is in flight."""
        self.stopped = True
        for user in list(self.asking):
            user.greenlet.throw(_Cut)


class _Cut(Exception):
    """Stopped by hand."""


class InferenceUser(User):
    """Asks, waits for the answer, asks again, on a connection of its own."""

    wait_time = constant(0)
    share: Share | None = None  # the worker's, set before a user is made

    def on_start(self) -> None:
        self.link: Link | None = None
        self.free = 0.0
        assert self.share is not None  # noqa: S101
        with contextlib.suppress(OSError, gevent.Timeout), gevent.Timeout(5):
            self.link = self._connect()
            self.link.kept = True
        self.share.go.wait()
        self.free = self.share.start

    @task
    def ask(self) -> None:
        share = self.share
        assert share is not None  # noqa: S101
        if share.over:
            raise StopUser
        k, share.next = share.next, share.next + 1
        due = None if share.due is None else share.start + share.due[k]
        if due is not None and (wait := due - time.monotonic()) > 0:
            gevent.sleep(wait)
            if share.stopped:
                share.next -= 1
                raise StopUser
        self._one(share, share.mine[k], due)

    def _one(self, share: Share, i: int, due: float | None) -> None:
        now = time.monotonic()
        scheduled = now if due is None else due
        sample = Sample(i=i, at_s=scheduled - share.start)
        sample.delay_ms = max(0.0, now - (self.free if due is None else due)) * 1000
        exchange = Exchange(share.protocol.answer(share.gaps), sample, scheduled)
        left = share.start + share.plan["deadline_s"] - now
        limit = gevent.Timeout(max(0.001, min(share.plan["timeout_s"], left)))
        share.asking.add(self)
        problem: tuple[str, str] | None
        try:
            with limit:
                problem = self._exchange(share, exchange)
        except gevent.Timeout as over:
            if over is not limit:
                raise
            problem = "timeout", "no whole answer in time"
        except _Cut:
            problem = "interrupted", "the run was stopped by hand"
        finally:
            share.asking.discard(self)
        if problem is not None and not exchange.response.complete:
            self._drop()
        if problem is not None:
            problem = problem[0], share.hide(problem[1])
        share.end = self.free = time.monotonic()
        exchange.fill(problem, share.end)
        share.lines.append(line(sample))
        share.done += 1
        self.environment.events.request.fire(
            request_type=share.protocol.name, name=share.target.route.partition("?")[0],
            response_time=sample.total_ms or 0.0, response_length=0, context={},
            exception=None if problem is None else RuntimeError(problem[0]),
        )  # fmt: skip

    def _exchange(self, share: Share, exchange: Exchange) -> tuple[str, str] | None:
        exchange.body = share.protocol.body(exchange.sample.i)
        while True:
            try:
                if self.link is None:
                    self.link = self._connect()
            except (OSError, ValueError) as error:
                return ("tls" if "ssl" in type(error).__name__.lower() else "connect"), f"{error}"[:200]
            link = self.link
            try:
                for _ in self._answer(share, exchange, link):
                    pass
            except (OSError, ValueError) as error:
                self._drop()
                if exchange.answer.done:
                    return exchange.problem(share.protocol)
                problem = broken(exchange, link, error)
                if problem is not None:
                    return problem
                exchange.sample.retried = True
                continue
            if exchange.response.keep:
                link.kept = True
            else:
                self._drop()
            return exchange.problem(share.protocol)

    def _answer(self, share: Share, exchange: Exchange, link: Link) -> Iterator[None]:
        if link.connect_ms is not None:
            exchange.sample.connect_ms, exchange.sample.tls_ms, link.connect_ms = link.connect_ms, link.tls_ms, None
        exchange.sent = time.monotonic()
        link.send(share.head(exchange.body))
        while link.wants_write:
            gevent.socket.wait_write(link.fd)
            link.flush()
        while not exchange.response.complete:
            gevent.socket.wait_read(link.fd)
            data, at = link.read()
            if data is None:
                continue
            now = time.monotonic()
            moment = now
            if at and exchange.sent <= at - share.offset <= now:
                moment = at - share.offset
                late = int((now - moment) * 10_000)
                share.lags[late] = share.lags.get(late, 0) + 1
            exchange.arrived(data, moment, share.before, moment == now)
            yield

    def _connect(self) -> Link:
        share = self.share
        assert share is not None  # noqa: S101
        address = share.addresses[share.opened % len(share.addresses)]
        share.opened += 1
        link = Link(address, share.target.port, share.context, share.target.name, time.monotonic())
        try:
            gevent.socket.wait_write(link.fd)
            link.writable(time.monotonic())
            while not link.established:
                if link.wants_write:
                    gevent.socket.wait_write(link.fd)
                    link.flush()
                else:
                    gevent.socket.wait_read(link.fd)
                    link.read()
                    link.handshake(time.monotonic())
            while link.wants_write:
                gevent.socket.wait_write(link.fd)
                link.flush()
        except BaseException:
            link.close()
            raise
        share.connections += 1
        share.stamped = share.stamped or link.stamped
        return link

    def _drop(self) -> None:
        if self.link is not None:
            self.link.close()
        self.link = None


def work(host: str, port: int) -> None:
    """Until the master says quit."""
    environment = Environment(user_classes=[InferenceUser], events=events)
    runner = environment.create_worker_runner(host, port)
    holder = tempfile.TemporaryDirectory()  # files of the test, gone with this process

    def planned(environment: Environment, msg: Any) -> None:
        try:
            InferenceUser.share = Share(msg.data, Path(holder.name))
        except (InferliftError, OSError, ValueError) as error:
            runner.send_message(READY, {"problem": str(error)})
            return
        runner.send_message(READY, {"problem": ""})

    def go(environment: Environment, msg: Any) -> None:
        share = InferenceUser.share
        assert share is not None  # noqa: S101
        share.offset = time.time() - time.monotonic()
        share.start = share.end = time.monotonic()
        share.go.set()
        gevent.spawn(_report, runner, share)

    def stop(environment: Environment, msg: Any) -> None:
        if InferenceUser.share is not None:
            InferenceUser.share.stop()

    for name, listener in ((PLAN, planned), (GO, go), (STOP, stop)):
        runner.register_message(name, listener)
    runner.greenlet.join()


def _report(runner: Any, share: Share) -> None:
    """Samples as they come, and at the end what is beside them."""
    cpu, before = time.process_time(), time.monotonic()
    while True:
        gevent.sleep(BATCH_S if len(share.lines) < BATCH else 0)
        over = share.over and not share.asking and share.done == share.next
        while share.lines:
            runner.send_message(PART, {"lines": share.lines[:BATCH]})
            del share.lines[:BATCH]
        if over:
            break
    seconds = time.monotonic() - before
    runner.send_message(
        DONE,
        {
            "sent": share.done, "seconds": share.end - share.start, "connections": share.connections,
            "stamped": share.stamped, "gaps": list(share.gaps.items()), "lags": list(share.lags.items()),
            "cpu_share": (time.process_time() - cpu) / seconds if seconds > 0 else None,
        },
    )  # fmt: skip


if __name__ == "__main__":
    where, _, number = sys.argv[1].rpartition(":")
    work(where, int(number))
