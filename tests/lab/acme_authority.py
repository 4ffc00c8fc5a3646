"""A real ACME authority on loopback: Pebble, made for tests by Let's Encrypt, from its Go module."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

from inferlift import process
from inferlift.configure import ensure_ca, issue
from inferlift.configure.acme import Dns, obtain
from inferlift.toolchain.python_packages import go_from_wheel
from inferlift.toolchain.store import cache

MODULE, VERSION = "github.com/letsencrypt/pebble/v2/cmd", "v2.10.3"
NAMES = ("ocr.demo.test", "chat.demo.test")


def programs() -> Path:
    """Built once into the cache; the Go module's checksum is Go's to check."""
    folder = cache() / "pebble" / VERSION
    if not (folder / "pebble-challtestsrv").exists():
        go = go_from_wheel(print)
        for name in ("pebble", "pebble-challtestsrv"):
            argv = [str(go), "install", f"{MODULE}/{name}@{VERSION}"]
            subprocess.run(argv, env={**os.environ, "GOBIN": str(folder), "GOFLAGS": ""}, check=True, timeout=600)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Authority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("acme", "management", "dns", "dns-management")}
        self.ca = ensure_ca(folder / "tls", "the authority's own TLS")
        cert, key = issue(self.ca, folder / "tls", "authority", ips=["127.0.0.1"])
        config = {
            "listenAddress": f"127.0.0.1:{self.ports['acme']}",
            "managementListenAddress": f"127.0.0.1:{self.ports['management']}",
            "certificate": str(cert), "privateKey": str(key), "httpPort": 1, "tlsPort": 1, "ocspResponderURL": "",
            "externalAccountBindingRequired": False, "retryAfter": {"authz": 1, "order": 1},
            "domainBlocklist": ["blocked.example"], "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "usual", "validityPeriod": 7_776_000}},
        }  # fmt: skip
        (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        self.children: list[subprocess.Popen[bytes]] = []
        self.published: list[str] = []

    @property
    def directory(self) -> str:
        return f"https://127.0.0.1:{self.ports['acme']}/dir"

    def start(self, dns: str | None = None) -> None:
        """`dns`: a name server of the caller's, in place of the one made for tests of ACME."""
        where, asked = programs(), dns or f"127.0.0.1:{self.ports['dns']}"
        commands = {"acme": [str(where / "pebble"), f"-config={self.folder / 'pebble.json'}", "-strict"]}
        commands["acme"].append(f"-dnsserver={asked}")
        if dns is None:
            off = [f"-{name}=" for name in ("http01", "https01", "tlsalpn01", "doh")]
            management = f"-management=127.0.0.1:{self.ports['dns-management']}"
            zone = [str(where / "pebble-challtestsrv"), f"-dnsserver={asked}", management, *off]
            commands = {"dns-management": zone, **commands}
        # Some of its answers refuse a good nonce on purpose: every client must cope.
        env = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "20"}
        log = (self.folder / "log").open("wb")
        self.children = [subprocess.Popen(argv, env=env, stdout=log, stderr=log) for argv in commands.values()]
        for name in commands:
            deadline = time.monotonic() + 20
            while socket.socket().connect_ex(("127.0.0.1", self.ports[name])):
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.1)

    def end(self) -> None:
        process.end([child.pid for child in self.children])

    def tell(self, path: str, **body: str) -> None:
        url = f"http://127.0.0.1:{self.ports['dns-management']}/{path}"
        urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=5).close()

    def publish(self, name: str, value: str) -> None:
        self.published.append(name)
        self.tell("set-txt", host=f"{name}.", value=value)

    def withdraw(self, name: str, value: str) -> None:
        self.published.remove(name)
        self.tell("clear-txt", host=f"{name}.")

    def obtain(self, folder: Path, names: tuple[str, ...] = NAMES, dns: Dns | None = None, days: int = 0) -> Path:
        dns = dns or Dns(self.publish, self.withdraw)
        now = datetime.now(UTC) + timedelta(days=days)
        return obtain(self.directory, folder, names, dns, print, ca=self.ca.cert, now=lambda: now)[0]

    @property
    def root(self) -> str:
        """Of what it issues; new at each start."""
        tls = ssl.create_default_context(cafile=str(self.ca.cert))
        url = f"https://127.0.0.1:{self.ports['management']}/roots/0"
        return str(urllib.request.urlopen(url, timeout=5, context=tls).read().decode())
