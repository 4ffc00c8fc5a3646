"""What the validators share: each check is {name, ok, detail, skipped}; a validator prints a list and exits 0 or 1."""

import argparse
import grp
import hashlib
import http.client
import json
import pwd
import ssl
import subprocess
import sys
import time
import traceback
from pathlib import Path

MANIFESTS = Path("/etc/inferlift")
TLS = "/etc/inferlift/tls"


def check(name, ok, detail="", skipped=False):
    return {"name": name, "ok": bool(ok), "detail": str(detail)[:400], "skipped": skipped}


def main(role, checks):
    """Run `checks(manifest, options)`. A check that fails by an exception is a failed check, never a skipped one."""
    parser = argparse.ArgumentParser(description=f"Validator of the role {role}")
    parser.add_argument("--digest", help="what was deployed, as the operator remembers it")
    parser.add_argument("--local", action="store_true", help="only this host: others may not be ready yet")
    parser.add_argument("--patience", type=float, default=0, help="seconds that what has just been started may take")
    options = parser.parse_args()
    results = []
    try:
        manifest = json.loads(read(MANIFESTS / f"{role}.json"))
        results += files(role, manifest, options.digest)
        for result in checks(manifest["facts"], options):
            results.append(result)  # one by one: those before a failing one are kept
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        results.append(check(f"{role}: validator", False, f"{type(error).__name__}: {error} ({line.name})"))
    print(json.dumps(results))
    sys.exit(0 if results and all(r["ok"] for r in results) else 1)


def files(role, manifest, expected):
    """Each file as deployed, and all of them what the operator deployed last."""
    wrong = []
    for path, row in manifest["files"].items():
        try:
            digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            now = Path(path).stat()
        except OSError as error:
            wrong.append(f"{path}: {error.strerror}")
            continue
        if digest != row["sha256"]:
            wrong.append(f"{path}: content changed")
        elif now.st_mode & 0o7777 != int(row["mode"], 8):
            wrong.append(f"{path}: mode is {now.st_mode & 0o7777:o}")
        elif (pwd.getpwuid(now.st_uid).pw_name, grp.getgrgid(now.st_gid).gr_name) != (row["owner"], row["group"]):
            wrong.append(f"{path}: owner changed")
    results = [check(f"{role}: files", not wrong, "; ".join(wrong) or f"{len(manifest['files'])} as deployed")]
    if expected is not None:
        same = manifest["digest"] == expected
        detail = "as deployed last" if same else "deployed by somebody else, or by another version"
        results.append(check(f"{role}: digest", same, detail))
    return results


PASSING = ("reloading", "activating")  # states that end by themselves
down = set()  # services that are: what they should open or answer is asked for once, and not waited for


def services(names, seconds=5):
    """Active, all of them, by one question to systemd; what has just been reloaded gets a few seconds."""
    if not names:
        return []  # systemd would tell of itself
    deadline = time.monotonic() + seconds
    while True:
        results = _services(names)
        passing = [r for r in results if r["detail"].startswith(PASSING)]
        if not passing or time.monotonic() > deadline:
            down.update(r["name"] for r in results if not r["ok"])
            return results
        time.sleep(0.1)


def _services(names):
    shown = run(["systemctl", "show", "--property=Id,ActiveState,SubState,NRestarts", "--", *names])
    blocks = [
        dict(line.split("=", 1) for line in b.splitlines() if "=" in line) for b in shown.split("\n\n") if b.strip()
    ]
    results = []
    for name, state in zip(names, blocks, strict=True):
        active = state.get("ActiveState") == "active"
        detail = f"{state.get('ActiveState')}/{state.get('SubState')}, {state.get('NRestarts')} restarts"
        results.append(check(name, active, detail))
    return results


def listening(ports, seconds=5):
    """A service that has just been started gets a few seconds to open its port."""
    return [until(seconds, lambda p=port: _listens(p)) for port in ports]


def _listens(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with Path(table).open(encoding="ascii") as file:
            for line in file:
                parts = line.split()
                if parts[3] == "0A" and int(parts[1].rsplit(":", 1)[1], 16) == port:
                    return check(f"port {port}", True, "listening")
    return check(f"port {port}", False, "nobody listens")


def request(method, port, path, *, tls=False, client_cert=False, headers=None, body=None, timeout=8):
    """(status, text) of a request to this host. TLS is verified with the fleet's CA, by the host's own name."""
    if tls:
        context = ssl.create_default_context(cafile=TLS + "/ca.pem")
        if client_cert:
            context.load_cert_chain(TLS + "/host.pem", TLS + "/host.key")
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def memory_bytes(meminfo=Path("/proc/meminfo"), cgroup=Path("/sys/fs/cgroup")):
    total = next(int(line.split()[1]) * 1024 for line in read(meminfo).splitlines() if line.startswith("MemTotal:"))
    limits = [cgroup / name for name in ("memory.max", "memory/memory.limit_in_bytes")]
    texts = [read(path) for path in limits if path.exists()]
    return min([total, *(int(text) for text in texts if text.isdigit())])


def gpus_inside(container, count):
    """As a process of the container sees them: what the host has does not help a server that is not given it."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        ["podman", "exec", container, *query], capture_output=True, timeout=60, check=False, text=True
    )
    rows = [line.split(", ") for line in done.stdout.splitlines() if line.count(", ") == 1]
    told = "; ".join(f"{name}, {mib} MiB" for name, mib in rows) or (done.stderr or done.stdout).strip()[-200:]
    return check(f"GPUs inside {container}", not done.returncode and len(rows) >= count, f"{told}; needed: {count}")


def until(seconds, attempt):
    """The first result of `attempt()` that is ok, or the last one when the time is over."""
    deadline = time.monotonic() + (0 if down else seconds)
    while True:
        try:
            result = attempt()
        except OSError as error:
            result = check("answer", False, f"{type(error).__name__}: {error}")
        if result["ok"] or time.monotonic() >= deadline:
            return result
        time.sleep(0.25)


def run(command, timeout=20):
    done = subprocess.run(command, capture_output=True, timeout=timeout, check=False, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()[-200:]}")
    return done.stdout


def read(path):
    return Path(path).read_text(encoding="utf-8").strip()
