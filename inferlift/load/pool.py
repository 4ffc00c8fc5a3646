"""The load client's connections: opened, lent, given back, dropped. One epoll over all of them."""

from __future__ import annotations

import contextlib
import select
import time
from typing import TYPE_CHECKING

from inferlift.load.link import Link
from inferlift.load.resolve import addresses
from inferlift.load.target import Target

if TYPE_CHECKING:
    from inferlift.load.exchange import Exchange

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
READY_MOST = 1024  # sockets served between two looks at the clock


class Pool:
    """As many connections as are asked for, to each of the target's addresses in turn; the last one back is lent first.

    Where the name has no address, `open` raises what the resolver said.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._context = target.ssl_context()
        self._why = "the name has no address"
        self.addresses: tuple[str, ...] = ()
        try:
            self.addresses = addresses(target)
        except OSError as error:
            self._why = str(error)
        self._poll = select.epoll()
        self._turn = 0
        self._idle: list[Link] = []
        self.links: dict[int, Link] = {}

    def watch(self, fd: int) -> None:
        """Report something that is no connection."""
        self._poll.register(fd, READ)

    def ready(self, wait: float, *, exact: bool) -> list[tuple[int, int]]:
        """(descriptor, events). epoll waits in whole milliseconds; `exact` waits by select, in microseconds."""
        if exact and wait > 0 and self._poll.fileno() < 1024:
            return self._poll.poll(0, READY_MOST) if select.select([self._poll.fileno()], (), (), wait)[0] else []
        return self._poll.poll(wait, READY_MOST)

    def open(self, exchange: Exchange | None) -> None:
        """Begin a connection, for a request or to be kept for one. Raises OSError."""
        if not self.addresses:
            raise OSError(self._why)
        address = self.addresses[self._turn % len(self.addresses)]
        self._turn += 1
        link = Link(address, self._target.port, self._context, self._target.name, time.monotonic())
        link.exchange = exchange
        if exchange is not None:
            exchange.link = link
        self.links[link.fd] = link
        self._poll.register(link.fd, READ | WRITE)

    def connecting(self) -> int:
        return sum(not link.established for link in self.links.values())

    def lend(self) -> Link | None:
        return self._idle.pop() if self._idle else None

    def give_back(self, link: Link) -> None:
        link.exchange = None
        link.kept = True
        self._idle.append(link)

    def wants(self, link: Link) -> None:
        """After a write: whether the socket has to be waited for."""
        self._poll.modify(link.fd, READ | WRITE if link.wants_write else READ)

    def drop(self, link: Link) -> None:
        if self.links.pop(link.fd, None) is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._poll.unregister(link.fd)
        link.close()
        if link.exchange is None:
            with contextlib.suppress(ValueError):
                self._idle.remove(link)
        link.exchange = None

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        self._poll.close()
