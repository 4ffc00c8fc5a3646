"""What a killed podman leaves in the kernel: namespaces, links, firewall rules, processes it lost sight of.

Told by the subnet, which must be ours (journal) and of no network that exists any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from inferlift import process

NETNS = Path("/run/netns")


def routes() -> list[IPv4Network]:
    """Networks that this machine has a route, an address or a name server in (default routes excepted)."""
    found = []
    for item in json.loads(process.run(["ip", "-j", "-4", "route", "show", "table", "all"], timeout_s=10).stdout):
        with contextlib.suppress(ValueError):
            found.append(IPv4Network(item["dst"]))
    with contextlib.suppress(OSError):
        for line in Path("/etc/resolv.conf").read_text().splitlines():
            with contextlib.suppress(ValueError, IndexError):
                if line.split()[0] == "nameserver":
                    found.append(IPv4Network(line.split()[1]))
    return [n for n in found if n.prefixlen > 0]


def clear(subnet: IPv4Network) -> list[str]:
    """Remove every namespace, bridge and firewall rule of a subnet that has no network. Returns what stayed."""
    for name, addresses in _namespaces().items():
        if any(a in subnet for a in addresses):
            _drop_namespace(name)
    for link in links(subnet):
        for port in json.loads(_ip("-j", "link", "show", "master", link) or "[]"):
            _ip("link", "del", port["ifname"])
        _ip("link", "del", link)
    for table in ("nat", "filter"):
        _clear_rules(table, subnet)
    return [f"bridge {link} ({subnet})" for link in links(subnet)]


def clear_address(subnet: IPv4Network, address: IPv4Address, in_use: set[str]) -> None:
    """Remove a namespace that holds `address` and belongs to no running container."""
    used = {Path(p).name for p in in_use}
    for name, addresses in _namespaces().items():
        if name not in used and address in addresses and address in subnet:
            _drop_namespace(name)


def end_strays(container_id: str) -> None:
    """End the monitor and the processes of a removed container that still live.

    Podman shows a container as created, and removes it, while its processes go on, when its run state was lost.
    """
    for pid, argv in _processes():
        if Path(argv[0]).name == "conmon" and container_id in argv:
            for child, _ in _processes():
                if _parent(child) == pid:
                    _kill(child)
            _kill(pid)


def _namespaces() -> dict[str, list[IPv4Address]]:
    found: dict[str, list[IPv4Address]] = {}
    for path in sorted(NETNS.iterdir()) if NETNS.is_dir() else []:
        text = process.run(["ip", "-n", path.name, "-j", "-4", "addr"], timeout_s=10, check=False).stdout
        with contextlib.suppress(ValueError):
            found[path.name] = [
                IPv4Address(a["local"]) for link in json.loads(text or "[]") for a in link.get("addr_info", [])
            ]
    return found


def _drop_namespace(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        inode = (NETNS / name).stat().st_ino
        for pid, _ in _processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/net").stat().st_ino == inode:
                    _kill(pid)
    _ip("netns", "delete", name)


def links(subnet: IPv4Network) -> list[str]:
    """Names of the bridges of a lab network: links that hold its gateway address."""
    return [
        link["ifname"]
        for link in json.loads(_ip("-j", "-4", "addr") or "[]")
        if any(IPv4Address(a["local"]) == subnet[1] for a in link.get("addr_info", []))
    ]


def _clear_rules(table: str, subnet: IPv4Network) -> None:
    """Delete netavark's rules for the subnet, and the chain that only they used."""
    saved = process.run(["iptables-save", "-t", table], timeout_s=10, check=False).stdout.splitlines()
    of_subnet = [
        line for line in saved if line.startswith("-A ") and re.search(rf"-[sd] {re.escape(str(subnet))} ", line)
    ]
    chains = {m[1] for line in of_subnet if (m := re.search(r"-j (NETAVARK-[0-9A-F]+)", line))}
    for line in of_subnet:
        _iptables(table, "-D", *line.split()[1:])
    for chain in chains:
        if not any(f"-j {chain}" in line for line in saved if line not in of_subnet):
            _iptables(table, "-F", chain)
            _iptables(table, "-X", chain)


def _iptables(table: str, *args: str) -> None:
    process.run(["iptables", "-w", "-t", table, *args], timeout_s=20, check=False)


def _ip(*args: str) -> str:
    return process.run(["ip", *args], timeout_s=10, check=False).stdout


def _processes() -> list[tuple[int, list[str]]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found.append((int(entry.name), argv))
    return found


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
