"""One class a fault: `plant` breaks something for real, `heal` puts it right again. Names are those in faults.yaml."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from inferlift import process, toolchain
from inferlift.artifacts import World
from inferlift.dns import answers
from inferlift.errors import CheckFailed, Retryable
from inferlift.rehearsal.standing import Standing, write_profile

MODEL = "/opt/llamacpp/current/model.gguf"
CONTRACT = "/etc/haproxy/contract.pem"
DATA = "/srv/data"


class Fault(ABC):
    """Both are called on a standing migration; `heal` also after a `plant` that failed half-way."""

    @abstractmethod
    def plant(self, lab: Standing) -> None: ...

    def heal(self, lab: Standing) -> None:  # noqa: B027 - most faults need nothing
        """Nothing to do where the command itself must put it right."""


class NoCapacity(Fault):
    """Only the rehearsal's own copy of the profile is changed."""

    def plant(self, lab: Standing) -> None:
        self._write(lab, {"lab": {"model_memory_mb": 4_000_000}})

    def heal(self, lab: Standing) -> None:
        self._write(lab, {})

    def _write(self, lab: Standing, changes: dict[str, Any]) -> None:
        path = lab.place.profile_path
        write_profile(path, Path(path.stem.removesuffix("-rehearsal")), changes)


class HostLost(Fault):
    def plant(self, lab: Standing) -> None:
        podman("rm", "--force", "--time", "0", str(lab.hosts("model")[-1].container))


class KillAfterCreate(Fault):
    """The kill must come after the create and before the end, or there was no fault: that is an error here."""

    def plant(self, lab: Standing) -> None:
        victim = lab.hosts("model")[-1]
        podman("rm", "--force", "--time", "0", str(victim.container))
        run = lab.start("deploy --to scale")
        deadline = time.monotonic() + 120
        try:
            while not self._there(lab, victim.name):
                if run.poll() is not None or time.monotonic() > deadline:
                    raise CheckFailed(f"{victim.name} was not made anew by the run that was to be killed")
                time.sleep(0.05)
            if run.poll() is not None:
                raise CheckFailed("the run ended before it could be killed")
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()

    def _there(self, lab: Standing, name: str) -> bool:
        label = f"label=inferlift.owner={lab.place.owner}/fleet"
        listed = podman("ps", "--all", "--filter", label, "--format", "{{.Names}}").split()
        return any(container.endswith(f"-{name}") for container in listed)


class ModelCrash(Fault):
    def plant(self, lab: Standing) -> None:
        lab.on(lab.hosts("model")[0], "systemctl kill --signal=KILL llamacpp")


class BadModel(Fault):
    """Random bytes over a tenth of the weights' blocks: the file loads, and the answers are nonsense."""

    def plant(self, lab: Standing) -> None:
        script = f"""
import os, random, shutil
path = os.path.realpath({MODEL!r})
shutil.copyfile(path, path + ".good")
shutil.copyfile(path, path + ".bad")
random.seed(1)
with open(path + ".bad", "r+b") as file:
    size = os.path.getsize(path)
    for at in range(size // 3, size - 4096, 40960):
        file.seek(at)
        file.write(random.randbytes(4096))
os.chmod(path + ".bad", os.stat(path).st_mode)
os.replace(path + ".bad", path)
"""
        for host in lab.hosts("model"):
            lab.on(host, f"python3 -c {shlex.quote(script)} && systemctl restart llamacpp")

    def heal(self, lab: Standing) -> None:
        back = f"p=$(readlink -f {MODEL}); test ! -e $p.good || {{ mv $p.good $p; systemctl restart llamacpp; }}"
        for host in lab.hosts("model"):
            lab.on(host, back)


class SlowModel(Fault):
    """Stopped for most of each second: a quota of its unit is not kept where a host is a container."""

    turns = "systemctl kill --signal=STOP llamacpp; sleep 0.96; systemctl kill --signal=CONT llamacpp; sleep 0.04"

    def plant(self, lab: Standing) -> None:
        for host in lab.hosts("model"):
            lab.on(host, f"systemd-run --quiet --unit slower sh -c 'while :; do {self.turns}; done'")

    def heal(self, lab: Standing) -> None:
        for host in lab.hosts("model"):
            lab.on(host, "systemctl stop slower 2>/dev/null; systemctl kill --signal=CONT llamacpp")


class HealthLies(Fault):
    """In the model server's place something that is healthy by its own word."""

    def plant(self, lab: Standing) -> None:
        for host in lab.hosts("model"):
            port = json.loads(lab.on(host, "cat /etc/llamacpp/server.json"))["port"]
            program = f"""
import http.server
class Liar(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200, b'{{"status":"ok"}}')
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(503, b'{{"error":{{"message":"loading model"}}}}')
    def log_message(self, *a):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", {port}), Liar).serve_forever()
"""
            lab.on(host, "systemctl stop llamacpp")
            lab.on(host, f"systemd-run --quiet --unit liar python3 -c {shlex.quote(program.replace('$', '$$'))}")

    def heal(self, lab: Standing) -> None:
        for host in lab.hosts("model"):
            lab.on(host, "systemctl stop liar 2>/dev/null; systemctl start llamacpp")


class DnsRefused(Fault):
    """The API goes on reading to us and writes nothing any more; names are answered as before."""

    file, before = "/etc/nginx/nginx.conf", "/root/nginx.before"

    def plant(self, lab: Standing) -> None:
        change = "s|location /api/ {|location /api/ { limit_except GET { deny all; }|"
        edit = f"cp {self.file} {self.before} && sed -i '{change}' {self.file}"
        lab.on(lab.world().authority, f"{edit} && nginx -t -q && systemctl reload nginx")

    def heal(self, lab: Standing) -> None:
        back = f"mv {self.before} {self.file}; systemctl reload nginx"
        lab.on(lab.world().authority, f"test ! -e {self.before} || {{ {back}; }}")


class ResolverStale(Fault):
    """Answers are kept ten times their TTL, and the old one is in the cache."""

    def plant(self, lab: Standing) -> None:
        world = lab.world()
        kept = max(20, 5 * lab.place.profile.switch.ttl_s)
        lab.on(world.resolver, f"cp /etc/unbound/unbound.conf /root/unbound.before; {self._grow(kept)}")
        deadline = time.monotonic() + 20
        while True:  # until it has started: then the old answer is in its cache
            try:
                answers.resolver_answers(world.resolver.address, world.contract.name)
                return
            except Retryable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _grow(self, seconds: int) -> str:
        file = "/etc/unbound/unbound.conf"
        return f"sed -i 's/cache-min-ttl: 0/cache-min-ttl: {seconds}/' {file} && systemctl restart unbound"

    def heal(self, lab: Standing) -> None:
        before = "/root/unbound.before"
        lab.on(
            lab.world().resolver,
            f"test ! -e {before} || {{ mv {before} /etc/unbound/unbound.conf; systemctl restart unbound; }}",
        )


class NoMetrics(Fault):
    def plant(self, lab: Standing) -> None:
        lab.on(lab.hosts("monitor")[0], "systemctl stop prometheus")

    def heal(self, lab: Standing) -> None:
        lab.on(lab.hosts("monitor")[0], "systemctl start prometheus")


class GatewayRestart(Fault):
    """In the middle of the watch."""

    def plant(self, lab: Standing) -> None:
        lab.on(
            lab.hosts("gateway")[0],
            "systemd-run --quiet --on-active=8 --timer-property=AccuracySec=100ms systemctl restart haproxy",
        )


class DnsForeignChange(Fault):
    """By the API's own key, as somebody else with rights would."""

    def __init__(self) -> None:
        self.before: dict[str, Any] | None = None

    def plant(self, lab: Standing) -> None:
        world, new = lab.world(), lab.service().endpoint.address
        self.before = self._record(world)
        script = f"A \"pickwrandom({{{{50,'{world.origin.address}'}},{{50,'{new}'}}}})\""
        self._patch(world, {**self.before, "records": [{"disabled": False, "content": script}]})

    def heal(self, lab: Standing) -> None:
        if self.before is not None:
            self._patch(lab.world(), self.before)

    def _record(self, world: World) -> dict[str, Any]:
        body = self._call(world, "GET")
        name = f"{world.contract.name}."
        (found,) = [r for r in body["rrsets"] if r["name"] == name and r["type"] in ("LUA", "A")]
        return {"name": name, "type": found["type"], "ttl": found["ttl"], "records": found["records"]}

    def _patch(self, world: World, rrset: dict[str, Any]) -> None:
        self._call(world, "PATCH", {"rrsets": [{**rrset, "changetype": "REPLACE"}]})

    def _call(self, world: World, method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        import requests

        from inferlift.secret import resolve

        with requests.Session() as session:
            session.trust_env = False
            answer = session.request(
                method, f"{world.made.dns_api}/api/v1/servers/localhost/zones/{world.zone}", json=body,
                headers={"X-API-Key": resolve(world.made.dns_key)}, verify=world.contract.ca or True, timeout=10,
            )  # fmt: skip
        answer.raise_for_status()
        return dict(answer.json()) if answer.text else {}


class DiskFull(Fault):
    """A disk over the data folder that the data does not fit on: the copy fills it to its last byte."""

    def plant(self, lab: Standing) -> None:
        self._do(lab, f"mount -t tmpfs -o size=64k tmpfs {DATA}")

    def heal(self, lab: Standing) -> None:
        self._do(lab, f"! mountpoint -q {DATA} || umount {DATA}")

    def _do(self, lab: Standing, command: str) -> None:
        lab.on(lab.hosts("model")[0], command)


class CertExpired(Fault):
    """The gateway's own key, and a certificate for the users' name that ended yesterday."""

    def plant(self, lab: Standing) -> None:
        gateway, name = lab.hosts("gateway")[0], lab.world().contract.name
        lab.on(gateway, f"cp {CONTRACT} /root/contract.before")
        pem = _ended_yesterday(name)
        lab.on(gateway, f"printf %s {shlex.quote(pem)} >{CONTRACT}; systemctl reload haproxy")

    def heal(self, lab: Standing) -> None:
        gateway = lab.hosts("gateway")[0]
        lab.on(gateway, "rm -f /root/contract.before")


FAULTS: dict[str, type[Fault]] = {
    "no-capacity": NoCapacity, "kill-after-create": KillAfterCreate, "host-lost": HostLost, "model-crash": ModelCrash,
    "bad-model": BadModel, "slow-model": SlowModel, "health-lies": HealthLies, "dns-refused": DnsRefused,
    "resolver-stale": ResolverStale, "no-metrics": NoMetrics, "gateway-restart": GatewayRestart,
    "dns-foreign-change": DnsForeignChange, "disk-full": DiskFull, "cert-expired": CertExpired,
}  # fmt: skip


def podman(*arguments: str) -> str:
    env = {**process.unmarked(), **toolchain.podman_env()}
    return process.run(["podman", *arguments], timeout_s=60, env=env).stdout


def _ended_yesterday(name: str) -> str:
    """Certificate and key, PEM."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    yesterday = datetime.now(UTC) - timedelta(days=1)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(yesterday - timedelta(days=30))
        .not_valid_after(yesterday).add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM).decode() + private.decode()


__all__ = ["FAULTS", "Fault"]
