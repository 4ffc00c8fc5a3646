"""Name servers and a gateway on loopback, for measurements and tests: Debian's own packages, unpacked into a folder.

Nothing is installed and no service is started or stopped; no root is needed. Servers listen on high ports.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inferlift import process
from inferlift.errors import Refusal, Retryable

PACKAGES = ("knot", "pdns-server", "pdns-backend-sqlite3", "haproxy", "socat", "nginx-light")
START_S = 15.0


@dataclass(frozen=True)
class Server:
    """One that runs. `port`: DNS, or the gateway's front; `api`: the API's port; `secret`: its key."""

    folder: Path
    port: int
    api: int
    secret: str
    pid: int


@dataclass(frozen=True)
class Programs:
    """Where the unpacked packages are."""

    root: Path

    def path(self, name: str) -> str:
        """A program by name: the unpacked one, else the machine's. Raises Refusal when there is none."""
        for folder in ("usr/sbin", "usr/bin"):
            if (self.root / folder / name).exists():
                return str(self.root / folder / name)
        if found := shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            return found
        raise Refusal(f"{name} is not there", why=f"neither under {self.root} nor on PATH")

    def env(self) -> dict[str, str]:
        libraries = sorted({str(f.parent) for f in self.root.glob("usr/lib/*/*.so*")})
        return {**process.unmarked(), "LD_LIBRARY_PATH": ":".join(libraries)}

    def file(self, name: str) -> Path:
        """A data file of a package, unpacked or installed."""
        unpacked = self.root / name.lstrip("/")
        return unpacked if unpacked.exists() else Path(name)


def programs(folder: Path, packages: Sequence[str] = PACKAGES) -> Programs:
    """Fetch what the machine lacks of these packages and unpack it under `folder`; done once.

    Raises Refusal without apt-get, Retryable when the packages cannot be fetched.
    """
    root, done = folder / "root", folder / "done"
    wanted = " ".join(packages)
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return Programs(root)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Refusal("the name servers come from Debian's packages, and there is no apt-get here")
    debs = folder / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    missing: list[str] = []
    for attempt in (1, 2):
        plan = process.run(
            ["apt-get", "install", "-s", "-q", "--no-install-recommends", *packages], timeout_s=60, check=False
        )
        missing = [line.split()[1] for line in plan.stdout.splitlines() if line.startswith("Inst ")]
        got = process.run(
            ["sh", "-c", 'cd "$0" && exec apt-get download -q "$@"', str(debs), *missing], timeout_s=300, check=False
        )
        if plan.returncode == 0 and got.returncode == 0:
            break
        if attempt == 2:
            why = (plan.stderr + got.stderr).strip()[-300:]
            raise Retryable(f"{wanted} cannot be fetched from the machine's Debian sources", why=why)
        process.run(["apt-get", "update", "-q"], timeout_s=300, check=False)
    for deb in sorted(debs.glob("*.deb")):
        process.run(["dpkg-deb", "-x", str(deb), str(root)], timeout_s=60)
    root.mkdir(exist_ok=True)
    done.write_text(wanted, encoding="utf-8")
    return Programs(root)


def free_port() -> int:
    """A port that is free for TCP and UDP on 127.0.0.1 now."""
    for _ in range(50):
        with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port = int(tcp.getsockname()[1])
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Retryable("no free port on 127.0.0.1")


@contextmanager
def knot(
    found: Programs, folder: Path, zone: str, records: Sequence[str], *, names: Sequence[str] = (), more: str = "",
    address: str = "127.0.0.1", port: int | None = None,
) -> Iterator[Server]:  # fmt: skip
    """Knot with one zone of `records` (lines `NAME TTL TYPE DATA`) and one TSIG key named `inferlift`.

    The key may update A and TXT at `names` only (none given: all of the zone). `more` is added to the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "db").mkdir(exist_ok=True)
    port, key = port or free_port(), base64.b64encode(secrets.token_bytes(32)).decode()
    lines = [f"@ 60 SOA ns1.{zone} hostmaster.{zone} 1 3600 600 86400 5", f"@ 60 NS ns1.{zone}", "ns1 60 A 127.0.0.1"]
    (folder / "zone").write_text(f"$ORIGIN {zone}\n" + "\n".join([*lines, *records]) + "\n", encoding="utf-8")
    narrow = ""
    if names:
        narrow = f"    update-owner: name\n    update-owner-match: equal\n    update-owner-name: [{', '.join(names)}]\n"
        narrow += "    update-type: [A, TXT]\n"
    (folder / "knot.conf").write_text(
        f"""server:
    rundir: {folder}
    listen: {address}@{port}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: {folder}/db
key:
  - id: inferlift
    algorithm: hmac-sha256
    secret: {key}
acl:
  - id: switch
    key: inferlift
    action: update
{narrow}  - id: look
    action: query
zone:
  - domain: {zone}
    file: {folder}/zone
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: changes
    acl: [switch, look]
{more}""",
        encoding="utf-8",
    )
    (folder / "knot.conf").chmod(0o600)
    argv = [found.path("knotd"), "-c", str(folder / "knot.conf")]
    with _running(found, argv, folder, lambda: _dns_answers(port, zone, address)) as pid:
        yield Server(folder, port, 0, key, pid)


@contextmanager
def powerdns(
    found: Programs, folder: Path, zone: str, records: Sequence[tuple[str, str, int, str]], address: str = "127.0.0.1"
) -> Iterator[Server]:
    """PowerDNS with API, SQLite and Lua records; `records` are (name, type, TTL, content), names without a dot.
    `address`: another one of this machine, where lab hosts reach it."""
    folder.mkdir(parents=True, exist_ok=True)
    port, api, key = free_port(), free_port(), secrets.token_hex(16)
    unpacked = sorted(found.root.glob("usr/lib/*/pdns"))
    modules = unpacked[0] if unpacked else next(iter(sorted(Path("/usr/lib").glob("*/pdns"))), Path("/usr/lib/pdns"))
    (folder / "pdns.conf").write_text(
        f"""launch=gsqlite3
gsqlite3-database={folder}/zone.sqlite3
gsqlite3-pragma-synchronous=0
module-dir={modules}
socket-dir={folder}
local-address={address}
local-port={port}
api=yes
api-key={key}
webserver=yes
webserver-address={address}
webserver-allow-from=0.0.0.0/0
webserver-port={api}
enable-lua-records=yes
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
""",
        encoding="utf-8",
    )
    (folder / "pdns.conf").chmod(0o600)
    apex = zone.rstrip(".")
    whole = [
        (apex, "SOA", 60, f"ns1.{apex} hostmaster.{apex} 1 3600 600 86400 5"),
        (apex, "NS", 60, f"ns1.{apex}"),
        (f"ns1.{apex}", "A", 60, "127.0.0.1"),
        *records,
    ]
    (folder / "zone.sqlite3").unlink(missing_ok=True)
    with sqlite3.connect(folder / "zone.sqlite3") as base:
        base.executescript(found.file("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql").read_text())
        base.execute("INSERT INTO domains (name, type) VALUES (?, 'NATIVE')", (apex,))
        base.executemany(
            "INSERT INTO records (domain_id, name, type, ttl, content, auth) VALUES (1, ?, ?, ?, ?, 1)", whole
        )
    base.close()
    argv = [found.path("pdns_server"), f"--config-dir={folder}", "--guardian=no", "--daemon=no", "--disable-syslog=yes"]
    with _running(found, argv, folder, lambda: _dns_answers(port, zone, address) and _listens(api, address)) as pid:
        yield Server(folder, port, api, key, pid)


@contextmanager
def haproxy(
    found: Programs, folder: Path, servers: dict[str, tuple[str, int]], *, backend: str, more: str = ""
) -> Iterator[Server]:
    """HAProxy with one backend of `servers` (name -> address and port), weight 100 on the first, 0 on the others.
    `more` is added to its frontend."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = [f"    server {n} {a}:{p} weight {0 if i else 100}" for i, (n, (a, p)) in enumerate(servers.items())]
    (folder / "haproxy.cfg").write_text(
        f"""global
    stats socket {folder}/admin.sock mode 600 level admin
    server-state-file {folder}/servers
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
    load-server-state-from-file global
frontend users
    bind 127.0.0.1:{port}
    {more}
    default_backend {backend}
backend {backend}
    balance roundrobin
"""
        + "\n".join(lines)
        + "\n",
        encoding="utf-8",
    )
    argv = [found.path("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]
    with _running(found, argv, folder, lambda: _listens(port)) as pid:
        yield Server(folder, port, 0, "", pid)


@contextmanager
def unbound(
    found: Programs, folder: Path, zone: str, authority: Server, address: str, *, stale_s: int = 0
) -> Iterator[Server]:
    """A caching resolver on `address` (of 127.0.0.0/8) and the authority's own port. `stale_s`: it keeps answers for
    at least so long, whatever their TTL, and serves them when they are over: as some resolvers of users do."""
    folder.mkdir(parents=True, exist_ok=True)
    old = f"cache-min-ttl: {stale_s}\n    serve-expired: yes" if stale_s else ""
    (folder / "unbound.conf").write_text(
        f"""server:
    interface: {address}@{authority.port}
    do-daemonize: no
    chroot: ""
    username: ""
    directory: "{folder}"
    pidfile: "{folder}/pid"
    use-syslog: no
    num-threads: 1
    access-control: 127.0.0.0/8 allow
    do-not-query-localhost: no
    module-config: "iterator"
    local-zone: "{zone.rstrip(".").rpartition(".")[2]}." nodefault
    domain-insecure: "{zone}"
    {old}
remote-control:
    control-enable: no
stub-zone:
    name: "{zone}"
    stub-addr: 127.0.0.1@{authority.port}
""",
        encoding="utf-8",
    )
    argv = [found.path("unbound"), "-d", "-c", str(folder / "unbound.conf")]
    with _running(found, argv, folder, lambda: _resolves(authority.port, f"ns1.{zone}", address)) as pid:
        yield Server(folder, authority.port, 0, "", pid)


@contextmanager
def _running(found: Programs, argv: Sequence[str], folder: Path, ready: Callable[[], bool]) -> Iterator[int]:
    with (folder / "log").open("ab") as log:
        child = subprocess.Popen(argv, env=found.env(), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_S
        while not ready():
            if child.poll() is not None or time.monotonic() > until:
                said = (folder / "log").read_text(errors="replace").strip()[-400:]
                raise Retryable(f"{Path(argv[0]).name} does not start on loopback", why=said)
            time.sleep(0.05)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _resolves(port: int, name: str, address: str) -> bool:
    from inferlift.dns import answers

    try:
        return bool(answers.resolver_answers(address, name, port=port)[0])
    except Retryable:
        return False


def _dns_answers(port: int, zone: str, address: str = "127.0.0.1") -> bool:
    from inferlift.dns import answers

    try:
        return answers.serial(address, zone, port=port, timeout_s=0.3) > 0
    except Retryable:
        return False


def _listens(port: int, address: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((address, port), timeout=0.3).close()
    except OSError:
        return False
    return True
