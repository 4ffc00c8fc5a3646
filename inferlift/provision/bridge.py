"""A lab network's bridge keeps its hardware address when a host leaves it."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

from inferlift import process
from inferlift.provision import leftovers

_BY_HAND = "3"  # /sys/class/net/X/addr_assign_type: NET_ADDR_SET, set from outside


def pin(subnet: IPv4Network, links: Path = Path("/sys/class/net")) -> None:
    """Set the bridge's address to what it is.

    Left alone, a Linux bridge takes the lowest address of its ports: when that port's host loses power, all others
    go on sending to an address that nobody has until their ARP entry expires, up to a minute of silence for every
    open connection. Source: br_stp_recalculate_bridge_id in the kernel's net/bridge/br_stp_if.c.
    """
    for name in leftovers.links(subnet):
        link = links / name
        try:
            if not (link / "bridge").is_dir() or (link / "addr_assign_type").read_text().strip() == _BY_HAND:
                continue
            address = (link / "address").read_text().strip()
        except OSError:  # it went away meanwhile
            continue
        process.run(["ip", "link", "set", "dev", name, "address", address], timeout_s=10, check=False)
