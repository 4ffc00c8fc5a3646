from __future__ import annotations

import string

import pytest
from dns_standins import NAME, NEW, OLD, journal, simple, stands
from hypothesis import given
from hypothesis import strategies as st

from inferlift.dns import settle
from inferlift.dns.record import RRset, agrees, decode, describe, difference, encode, script, shares

ADDRESSES = st.ip_addresses(v=4).map(str)
WEIGHTS = st.dictionaries(ADDRESSES, st.integers(0, 255), min_size=1, max_size=4).filter(lambda w: sum(w.values()))


LONG = journal(run="x" * 300)


@given(WEIGHTS, st.text(string.printable + "äß漢", max_size=400), st.integers(1, 10**9))
def test_a_journal_survives_the_txt_record(weights: dict[str, int], run: str, sequence: int) -> None:
    book = journal(intended=weights, run=run, sequence=sequence)
    texts = encode(book)
    assert all(len(t.encode()) <= 255 and t.isascii() and ";" not in t for t in texts)
    assert decode(tuple(reversed(texts))) == book


@pytest.mark.parametrize("texts", [("v=spf1 -all",), encode(LONG)[:-1], (*encode(LONG), "x"), ("01/01 {}",)])
def test_a_txt_that_is_no_journal_makes_the_record_foreign(texts: tuple[str, ...]) -> None:
    state = describe(NAME, simple(10).raw, texts)
    assert state.kind == "foreign"
    assert "no journal of this product" in state.why


@given(WEIGHTS)
def test_weights_read_back_as_written_and_zero_is_never_listed(weights: dict[str, int]) -> None:
    text = script(weights)
    assert "{0," not in text
    state = describe(NAME, (RRset(type="LUA", ttl_s=5, contents=(f'A "{text}"',)),), ())
    assert state.kind == "weighted"
    assert shares(state.weights) == shares(weights)


@pytest.mark.parametrize(
    ("rrsets", "kind"),
    [
        ((), "absent"),
        ((("A", ("192.0.2.1",)),), "simple"),
        ((("CNAME", ("other.test.",)),), "foreign"),
        ((("A", ("192.0.2.1",)), ("AAAA", ("2001:db8::1",))), "foreign"),
        ((("A", ("192.0.2.1",)), ("LUA", ("A \"pickwrandom({{1,'192.0.2.1'}})\"",))), "foreign"),
        ((("LUA", ("A \"ifportup(443, {'192.0.2.1'})\"",)),), "foreign"),
        ((("LUA", ("A \"pickwrandom({{0,'192.0.2.1'}})\"",)),), "foreign"),
        ((("LUA", ("A \"pickwrandom({{1,'192.0.2.1'}})\"", 'TXT "os.date()"')),), "foreign"),
        ((("A with disabled entries", ("192.0.2.1",)),), "foreign"),
    ],
)
def test_only_plain_addresses_and_plain_weights_are_ours_to_move(
    rrsets: tuple[tuple[str, tuple[str, ...]], ...], kind: str
) -> None:
    state = describe(NAME, tuple(RRset(type=t, ttl_s=5, contents=c) for t, c in rrsets), ())
    assert state.kind == kind
    assert bool(state.why) == (kind == "foreign")


def test_a_simple_record_agrees_with_a_hundred_percent() -> None:
    assert agrees(stands({OLD: 1}, None, "simple"), journal(intended={OLD: 100, NEW: 0}))


def test_a_foreign_change_is_named() -> None:
    assert difference(stands({OLD: 90, NEW: 10}, journal())) == ""
    assert f"{NEW} 50%" in difference(stands({OLD: 50, NEW: 50}, journal()))
    assert "TTL is 60 s" in difference(stands({OLD: 90, NEW: 10}, journal(), ttl_s=60))
    gone = describe(NAME, (), encode(journal()))
    assert "no address record any more" in difference(gone)


MEANT = journal()
FIRST = journal(sequence=1, phase="ttl-lowered", intended={OLD: 100, NEW: 0})
EARLIER = journal(sequence=2, phase="weighted", intended={OLD: 100, NEW: 0})


@pytest.mark.parametrize(
    ("state", "meant", "outcome"),
    [
        (stands({OLD: 90, NEW: 10}, MEANT), MEANT, "done"),
        (stands({OLD: 100}, EARLIER), MEANT, "absent"),
        (stands({OLD: 50, NEW: 50}, journal(sequence=9, intended={OLD: 50, NEW: 50})), MEANT, "done"),
        (simple(10), FIRST, "absent"),
        (stands({OLD: 1}, FIRST, "simple"), FIRST, "done"),
        (simple(60), FIRST, "foreign"),  # not the record that was there before
        (simple(10), MEANT, "foreign"),  # the journal is gone
        (stands({OLD: 50, NEW: 50}, MEANT), MEANT, "foreign"),
        (stands({OLD: 50, NEW: 50}, EARLIER), MEANT, "foreign"),
        (stands({OLD: 90, NEW: 10}, journal(owner="another")), MEANT, "foreign"),
        (stands({OLD: 90, NEW: 10}, journal(run="another")), MEANT, "foreign"),
        (describe(NAME, (), encode(MEANT)), MEANT, "foreign"),
    ],
)
def test_settle(state: object, meant: object, outcome: str) -> None:
    assert settle(state, meant) == outcome  # type: ignore[arg-type]
    assert settle(state, meant.model_dump(mode="json")) == outcome  # type: ignore[arg-type,attr-defined]


def test_settle_of_a_record_given_back() -> None:
    planned = {"restored": [r.model_dump(mode="json") for r in simple(10).raw]}
    assert settle(simple(10), planned) == "done"
    assert settle(stands({OLD: 90, NEW: 10}, MEANT), planned) == "absent"
    assert settle(simple(60), planned) == "foreign"
    assert settle(stands({OLD: 50, NEW: 50}, MEANT), planned) == "foreign"
