"""The loop that sends and measures: one epoll loop in a thread of its own, without a framework between.

A read costs about as much as its system call, so that a thousand streams at once leave the core free; and what is
read late carries the kernel's own time of arrival (`link.py`).
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import ssl
import threading
import time

from inferlift.load.exchange import Exchange, broken
from inferlift.load.grpc_calls import GrpcCalls
from inferlift.load.hidden import hider
from inferlift.load.link import READ_BYTES, STAMP, Link
from inferlift.load.pacing import Pacer, pacer
from inferlift.load.plan import LoadPlan
from inferlift.load.pool import READ, WRITE, Pool
from inferlift.load.protocols import Protocol
from inferlift.load.samples import Sample
from inferlift.load.urgency import urgent

TICK_S = 0.02  # how often time limits are looked at
CURVE_S = 0.25
DRAIN_S = 1.0  # after [DONE] only the end of the body is missing: so long is it waited for
CONNECTING_MOST = 256  # connections set up side by side before a closed loop begins
CONNECT_S = 5.0  # ... and the time taken for it at most
OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)  # of this machine, not the server's
BURST = 64  # sends in a row before answers are looked at again


class Worker:
    """State of one run. `main` runs in its own thread; the caller's thread takes from `ended` and reads the rest."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.protocol: Protocol = plan.sends
        self.finished = threading.Event()
        self.failure: BaseException | None = None
        self.ended: collections.deque[Sample] = collections.deque()  # the caller takes from the left
        self.starved = 0  # requests for which this machine had no socket
        self.sent = self.done = self.connections = self.in_flight = self.peak = 0
        self.errors: dict[str, int] = {}
        self.done_when_sent: int | None = None  # how many had ended when the last one was sent
        self.curve: list[tuple[float, int]] = []
        self.gaps: dict[int, int] = {}  # gap between two texts in steps of 0.01 ms -> count
        self.lags: dict[int, int] = {}  # time from the kernel's stamp to our reading, in steps of 0.1 ms -> count
        self.start = 0.0
        self.seconds = 0.0
        self.busy_share: float | None = None
        self.stamped = False  # whether arrival times are the kernel's
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._orders: collections.deque[str] = collections.deque()
        self._stopping = False
        self._running: dict[int, Exchange] = {}  # in the order they were begun
        self._late: dict[int, Exchange] = {}  # done but for the end of the body
        self._polled = 0.0
        self._offset = 0.0

    def main(self) -> None:
        """Target of the thread: an error of our own code ends in `failure`, never in silence."""
        try:
            with urgent():
                self._main()
        except BaseException as error:
            self.failure = error
        finally:
            self.finished.set()
            os.close(self._wake_fd)

    def no_more(self) -> None:
        """Send nothing further; what is in flight is awaited."""
        self._order("stop")

    def abort(self) -> None:
        """Cut what is in flight and end."""
        self._order("abort")

    def _order(self, order: str) -> None:
        self._orders.append(order)
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the loop has ended meanwhile
            os.eventfd_write(self._wake_fd, 1)

    # --- in the loop's thread

    def _main(self) -> None:
        target = self.plan.target
        self._head, self._hide = self.protocol.head(target), hider(target)
        self._calls = GrpcCalls(target, self.protocol, self.wake) if self.protocol.transport == "grpc" else None
        self._pool = Pool(target)
        try:
            self._pool.watch(self._wake_fd)
            self._pacer: Pacer = pacer(self.plan)
            if self.plan.users is not None and self._pool.addresses and self._calls is None:
                self._open_ahead(min(self.plan.users, self.plan.requests))
            self._loop()
        finally:
            if self._calls is not None:
                self._calls.close()
            self._pool.close()

    def _open_ahead(self, wanted: int) -> None:
        """Connections of a closed loop's users, before the clock runs; what fails here is met again by a request."""
        give_up, tries = time.monotonic() + CONNECT_S, wanted
        while time.monotonic() < give_up and not self._orders:
            connecting = self._pool.connecting()
            while tries and connecting < CONNECTING_MOST:
                tries, connecting = tries - 1, connecting + 1
                try:
                    self._pool.open(None)
                except OSError:
                    return
            if not connecting:
                return
            self._step(0.05)

    def _loop(self) -> None:
        self._polled = self.start = time.monotonic()
        self._offset = time.time() - time.monotonic()
        cpu = time.thread_time()
        tick = self.start
        deadline = self.start + self.plan.deadline_s
        clock, pace = time.monotonic, self._pacer
        while True:
            now = clock()
            due = None
            if not self._stopping:
                for _ in range(BURST):
                    if not pace.next_is_due(now - self.start):
                        break
                    self._begin(pace.take(), now)
                    now = clock()
                due = pace.next_s()
                if pace.over and self.done_when_sent is None:
                    self.done_when_sent = self.done
            if (due is None or self._stopping) and not self._running and not self._late:
                if self._stopping or pace.over:
                    break
                raise RuntimeError("no request is under way and none is due")
            wait = tick - now if due is None or self._stopping else min(tick, self.start + due) - now
            self._step(max(0.0, wait), exact=due is not None)
            now = clock()
            if now >= tick:
                self._tick(now)
                tick = now + TICK_S
                if now >= deadline:
                    self._cut("timeout", "the run's deadline passed")
        self.seconds = clock() - self.start
        self.busy_share = (time.thread_time() - cpu) / self.seconds if self.seconds > 0 else None

    def _step(self, wait: float, *, exact: bool = False) -> None:
        """Wait for the sockets at most so long, then serve each that has something."""
        ready = self._pool.ready(wait, exact=exact)
        polled = time.monotonic()
        links = self._pool.links
        for fd, mask in ready:
            link = links.get(fd)
            if mask == READ and link is not None and link.quick:
                try:
                    self._read_quickly(link)
                except (OSError, ValueError) as error:
                    self._broken(link, error)
                continue
            if link is None:
                if fd == self._wake_fd:
                    self._woken()
                continue
            try:
                if mask & WRITE:
                    self._writable(link)
                if mask & ~WRITE and fd in links:
                    self._readable(link)
            except (OSError, ValueError) as error:
                self._broken(link, error)
        self._polled = polled

    def _begin(self, i: int, now: float) -> None:
        """Request `i` of the pacer, due now or before."""
        scheduled = self.start + self._pacer.scheduled_s(i, now - self.start)
        free = self._pacer.free_s(i)
        delay = now - (scheduled if free is None else self.start + free)
        exchange = Exchange(self.protocol.answer(self.gaps), Sample(i=i, at_s=scheduled - self.start), scheduled)
        exchange.sample.delay_ms = max(0.0, delay) * 1000
        exchange.limit = now + self.plan.request_timeout_s
        self.sent += 1
        self._running[i] = exchange
        try:
            exchange.body = self.protocol.body(i)
            if self._calls is not None:
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                self._calls.start(exchange, self.plan.request_timeout_s)
            elif (link := self._pool.lend()) is not None:
                self._send(exchange, link)
            else:
                self._pool.open(exchange)
        except ssl.SSLError as error:
            self._end(exchange, ("tls", str(error)[:200]))
        except OSError as error:
            self.starved += error.errno in OWN_LIMITS
            self._end(exchange, ("connect", str(error)[:200]))

    def _send(self, exchange: Exchange, link: Link) -> None:
        link.exchange, exchange.link = exchange, link
        sample = exchange.sample
        if link.connect_ms is not None:
            sample.connect_ms, sample.tls_ms, link.connect_ms = link.connect_ms, link.tls_ms, None
        self.in_flight += 1
        if self.in_flight > self.peak:
            self.peak = self.in_flight
        exchange.on_wire = True
        exchange.sent = time.monotonic()
        try:
            link.send(self._head(exchange.body))
        except OSError as error:
            self._broken(link, error)
            return
        if link.wants_write:
            self._pool.wants(link)

    def _writable(self, link: Link) -> None:
        established = link.established
        link.writable(time.monotonic())
        self._after_write(link, established)

    def _after_write(self, link: Link, established: bool) -> None:
        if not link.wants_write:
            self._pool.wants(link)
        if link.established and not established:
            self.connections += 1
            self.stamped = self.stamped or link.stamped
            exchange = link.exchange
            if exchange is None:
                self._pool.give_back(link)
            else:
                self._send(exchange, link)

    def _read_quickly(self, link: Link) -> None:
        """The usual read, a text of a stream over plain TCP, in as few steps as it takes; all else in `_arrived`."""
        try:
            data, extra, _, _ = link.receive(READ_BYTES, 64)
        except (BlockingIOError, InterruptedError):
            return
        now = time.monotonic()
        exchange = link.exchange
        if exchange is None or not data:
            self._arrived(link, data, now, now)
            return
        moment = now
        if extra:
            seconds, nanoseconds = STAMP.unpack(extra[0][2])
            moment = seconds + nanoseconds * 1e-9 - self._offset
            if not exchange.sent <= moment <= now:
                moment = now
            lags, late = self.lags, int((now - moment) * 10_000)
            lags[late] = lags.get(late, 0) + 1
        if not exchange.text_only(data, moment):
            self._arrived(link, data, now, moment)

    def _readable(self, link: Link) -> None:
        data, at = link.read()
        now = time.monotonic()
        if not link.established:
            link.handshake(now)
            self._after_write(link, False)
            return
        if data is None:
            return
        exchange, moment = link.exchange, now
        if at and exchange is not None and exchange.sent <= at - self._offset <= now:
            moment = at - self._offset
            late = int((now - moment) * 10_000)
            self.lags[late] = self.lags.get(late, 0) + 1
        self._arrived(link, data, now, moment)

    def _arrived(self, link: Link, data: bytes, now: float, moment: float) -> None:
        """Bytes that came at `moment` and were read at `now`; none: the server closed."""
        exchange = link.exchange
        if exchange is None:  # an idle connection that the server closed, or words nobody asked for
            self._pool.drop(link)
            return
        exchange.arrived(data, moment, self._polled, moment == now)
        if exchange.response.complete:
            self._whole(exchange, link)
        elif exchange.answer.done and exchange.sample.i not in self._late:
            exchange.limit = min(exchange.limit, now + DRAIN_S)
            self._late[exchange.sample.i] = exchange

    def _whole(self, exchange: Exchange, link: Link) -> None:
        if exchange.response.keep:
            exchange.link = None
            self._pool.give_back(link)
        self._end(exchange, exchange.problem(self.protocol))

    def _broken(self, link: Link, error: Exception) -> None:
        exchange = link.exchange
        self._pool.drop(link)
        if exchange is None:
            return
        exchange.link = None
        if exchange.answer.done:  # all was there but the end of the body
            self._end(exchange, exchange.problem(self.protocol))
            return
        problem = broken(exchange, link, error)
        if problem is None:
            self._again(exchange)
        else:
            self._end(exchange, problem)

    def _again(self, exchange: Exchange) -> None:
        """A kept connection that the server had closed: once more on a new one. Nothing of an answer was seen."""
        exchange.sample.retried = True
        exchange.on_wire = False
        self.in_flight -= 1
        try:
            self._pool.open(exchange)
        except OSError as error:
            self.starved += error.errno in OWN_LIMITS
            self._end(exchange, ("connect", str(error)[:200]))

    def _end(self, exchange: Exchange, problem: tuple[str, str] | None) -> None:
        """The record of a request that is over."""
        sample, now = exchange.sample, time.monotonic()
        if self._running.pop(sample.i, None) is None:
            return
        self._late.pop(sample.i, None)
        if exchange.on_wire or self._calls is not None:
            self.in_flight -= 1
        if exchange.link is not None:
            self._pool.drop(exchange.link)
        if problem is not None:
            problem = problem[0], self._hide(problem[1])
        exchange.fill(problem, now)
        if problem is not None:
            self.errors[problem[0]] = self.errors.get(problem[0], 0) + 1
        self.done += 1
        self.ended.append(sample)
        self._pacer.ended((exchange.end or now) - self.start)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        for exchange, problem in self._calls.finished() if self._calls is not None else ():
            self._end(exchange, problem)
        while self._orders:
            if self._orders.popleft() == "stop":
                self._stopping = True
            else:
                self._cut("interrupted", "the run was stopped by hand")

    def _tick(self, now: float) -> None:
        self._offset = time.time() - time.monotonic()
        if not self.curve or now - self.start - self.curve[-1][0] >= CURVE_S:
            self.curve.append((now - self.start, self.in_flight))
        for exchange in [x for x in self._late.values() if x.limit <= now]:
            self._end(exchange, exchange.problem(self.protocol))
        late = []
        for exchange in self._running.values():
            if exchange.limit > now:
                break  # they are in the order of their limits
            late.append(exchange)
        for exchange in late:
            self._end(exchange, ("timeout", "no whole answer in time"))

    def _cut(self, kind: str, why: str) -> None:
        self._stopping = True
        for exchange in list(self._running.values()):
            self._end(exchange, (kind, why))
