"""DNS over UDP on loopback: a stand-in authority that answers from a list; it proves no server's behaviour."""

from __future__ import annotations

import itertools
import math
import socket
import threading
from collections.abc import Callable, Iterator

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from dns_standins import NAME, NEW, OLD, Clock, journal
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.dns import answers
from inferlift.dns.record import encode, journal_name
from inferlift.errors import Retryable

Answer = Callable[[dns.message.Message], "dns.message.Message | None"]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], int]]:
    sockets: list[socket.socket] = []

    def start(answer: Answer) -> int:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        sockets.append(udp)

        def loop() -> None:
            while True:
                try:
                    wire, peer = udp.recvfrom(4096)
                except OSError:
                    return
                reply = answer(dns.message.from_wire(wire))
                if reply is not None:
                    udp.sendto(reply.to_wire(), peer)

        threading.Thread(target=loop, daemon=True).start()
        return int(udp.getsockname()[1])

    yield start
    for udp in sockets:
        udp.close()


def a(query: dns.message.Message, address: str | None, authoritative: bool = True) -> dns.message.Message:
    reply = dns.message.make_response(query)
    if authoritative:
        reply.flags |= dns.flags.AA
    if address:
        reply.answer.append(dns.rrset.from_text(query.question[0].name, 5, "IN", "A", address))
    return reply


def test_shares_count_every_answer(serve: Callable[[Answer], int]) -> None:
    turn = itertools.cycle([OLD] * 9 + [NEW])
    port = serve(lambda q: a(q, next(turn)))
    got = answers.authority_share("127.0.0.1", NAME, 200, port=port)
    assert got.hits == {OLD: 180, NEW: 20}
    assert (got.asked, got.empty, got.ttl_s) == (200, 0, 5)
    assert got.share(NEW) == 0.1


def test_lost_queries_are_asked_again(serve: Callable[[Answer], int]) -> None:
    seen: set[int] = set()

    def lossy(query: dns.message.Message) -> dns.message.Message | None:
        if query.id % 7 == 0 and query.id not in seen:
            seen.add(query.id)
            return None
        return a(query, OLD)

    got = answers.authority_share("127.0.0.1", NAME, 50, port=serve(lossy), timeout_s=0.1)
    assert got.hits == {OLD: 50}
    assert seen


def test_servfail_and_no_data_count_as_empty(serve: Callable[[Answer], int]) -> None:
    def fail(query: dns.message.Message) -> dns.message.Message:
        reply = a(query, None)
        reply.set_rcode(dns.rcode.SERVFAIL)
        return reply

    got = answers.authority_share("127.0.0.1", NAME, 10, port=serve(fail))
    assert (got.empty, got.hits, got.share(NEW)) == (10, {}, None)


def test_silence_is_no_answer_not_an_empty_set(serve: Callable[[Answer], int]) -> None:
    with pytest.raises(Retryable, match="unanswered"):
        answers.authority_share("127.0.0.1", NAME, 5, port=serve(lambda q: None), timeout_s=0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Retryable):
        answers.authority_share("127.0.0.1", NAME, 5, port=port, timeout_s=0.05)


def test_a_resolver_is_no_authority(serve: Callable[[Answer], int]) -> None:
    with pytest.raises(Retryable, match="not an authority"):
        answers.authority_share("127.0.0.1", NAME, 5, port=serve(lambda q: a(q, OLD, authoritative=False)))


def test_resolver_answers_with_the_seconds_left(serve: Callable[[Answer], int]) -> None:
    assert answers.resolver_answers("127.0.0.1", NAME, port=serve(lambda q: a(q, NEW, False))) == ((NEW,), 5)


def test_the_journal_is_read_by_dns(serve: Callable[[Answer], int]) -> None:
    def txt(query: dns.message.Message) -> dns.message.Message:
        reply = a(query, None)
        texts = ['"' + t.replace("\\", "\\\\").replace('"', '\\"') + '"' for t in encode(journal())]
        reply.answer.append(dns.rrset.from_text(journal_name(NAME), 5, "IN", "TXT", *texts))
        return reply

    assert answers.journal_at("127.0.0.1", NAME, port=serve(txt)) == journal()
    assert answers.journal_at("127.0.0.1", NAME, port=serve(lambda q: a(q, None))) is None


def test_wait_visible_uses_the_clock_it_is_given() -> None:
    clock = Clock()
    start = clock.now
    assert answers.wait_visible(lambda: clock.now > start + 3, timeout_s=5, clock=clock, sleep=clock.sleep) is not None
    assert 3 < clock.now - start < 4
    assert answers.wait_visible(lambda: False, timeout_s=5, clock=clock, sleep=clock.sleep) is None


@pytest.mark.parametrize(
    ("weight", "asked", "hits", "ok"),
    [
        (0, 100, 0, True), (0, 100, 1, False), (100, 100, 100, True), (100, 100, 99, False),
        (1, 12, 0, True),  # twelve picks at 1 % mostly miss: no proof of anything
        (1, 300, 0, True), (1, 300, 12, False), (10, 300, 30, True), (10, 300, 60, False),
        (50, 300, 150, True), (50, 300, 100, False), (10, 300, 9, False),
    ],
)  # fmt: skip
def test_share_ok(weight: int, asked: int, hits: int, ok: bool) -> None:
    assert answers.share_ok(weight, asked, hits) is ok


@settings(max_examples=25)
@given(st.integers(1, 99), st.integers(1, 120))
def test_the_band_holds_at_least_999_of_1000_and_is_whole(weight: int, asked: int) -> None:
    p = weight / 100
    inside = [k for k in range(asked + 1) if answers.share_ok(weight, asked, k)]
    covered = math.fsum(math.comb(asked, k) * p**k * (1 - p) ** (asked - k) for k in inside)
    assert covered >= 0.999
    assert inside == list(range(inside[0], inside[-1] + 1))
