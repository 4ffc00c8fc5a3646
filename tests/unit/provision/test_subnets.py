from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlift.provision import subnets

POOL = IPv4Network("10.64.0.0/20")  # 16 networks: small enough to exhaust
owners = st.text(min_size=1, max_size=30)
networks = st.builds(
    lambda offset, prefix: IPv4Network((int(POOL.network_address) + offset * 256, prefix), strict=False),
    st.integers(0, 15),
    st.integers(18, 32),
)


@settings(deadline=None)
@given(owners, st.lists(networks, max_size=8))
def test_choices_are_exactly_the_free_ones(owner: str, taken: list[IPv4Network]) -> None:
    found = list(subnets.choices(owner, taken, POOL))
    free = [n for n in POOL.subnets(new_prefix=24) if not any(n.overlaps(t) for t in taken)]
    assert sorted(found) == free
    assert len(set(found)) == len(found)


@settings(deadline=None)
@given(owners, st.lists(networks, max_size=4))
def test_the_first_choice_depends_on_the_label_alone(owner: str, taken: list[IPv4Network]) -> None:
    first = next(subnets.choices(owner, [], POOL))
    found = list(subnets.choices(owner, taken, POOL))
    if first in found:
        assert found[0] == first


def test_a_default_route_takes_nothing() -> None:
    assert list(islice(subnets.choices("x", [IPv4Network("0.0.0.0/0")], POOL), 1))


def test_a_full_pool_has_no_choice() -> None:
    assert list(subnets.choices("x", [POOL], POOL)) == []


def test_the_pool_can_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert subnets.pool() == IPv4Network("10.64.0.0/10")
    monkeypatch.setenv(subnets.POOL_VARIABLE, "10.200.0.0/16")
    assert subnets.pool() == IPv4Network("10.200.0.0/16")


def test_hosts_have_addresses_of_their_own() -> None:
    net = IPv4Network("10.64.3.0/24")
    names = [(r, f"{r}-{n}") for r in ("gateway", "monitor") for n in range(1, 11)]
    names += [("model", f"model-{n}") for n in range(1, 101)]
    names += [(r, r) for r in ("origin", "authority", "resolver")]
    own = [next(subnets.addresses(net, role, name)) for role, name in names]
    assert len(set(own)) == len(own)
    assert net[1] not in own
    for role, name in names[:3]:
        everything = list(subnets.addresses(net, role, name))
        assert len(set(everything)) == len(everything) == 51
        assert not set(everything[1:]) & set(own)
        assert all(a in net and a not in (net[0], net[1], net[255]) for a in everything)


def test_too_many_hosts_of_a_role_are_refused() -> None:
    with pytest.raises(ValueError, match="room for 10 hosts of role gateway, not for gateway-11"):
        next(subnets.addresses(IPv4Network("10.64.3.0/24"), "gateway", "gateway-11"))


@settings(deadline=None)
@given(st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_one_hardware_address_for_each_address(a: IPv4Address, b: IPv4Address) -> None:
    assert (subnets.mac(a) == subnets.mac(b)) == (a == b)
    assert int(subnets.mac(a)[:2], 16) & 0b11 == 0b10  # locally administered, one host
    assert len(subnets.mac(a).split(":")) == 6
