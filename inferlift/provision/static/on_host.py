"""Runs on a host by `python3 - COMMAND JSON` over SSH: looks at it, claims it, gives it back. Standard library only."""

# Plain os calls: it also runs where our environment is not.

from __future__ import annotations

import glob
import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from typing import Any

HOME = "/var/lib/inferlift-claim"  # claim.json is written last: without it nothing of ours is on the host
CLAIM, BEFORE, ETC = f"{HOME}/claim.json", f"{HOME}/before.json", f"{HOME}/etc.tar"
MANIFESTS = "/etc/inferlift"
PREREQUISITES = ("python3-apt", "rsync")  # for Ansible's apt and for the copy of data


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """What the host is. Changes nothing."""
    release = _pairs("/etc/os-release")
    gpus = [d for d in glob.glob("/sys/bus/pci/devices/*") if _gpu(d)]
    disk = os.statvfs("/")
    return {
        "root": os.geteuid() == 0,
        "machine": _text("/etc/machine-id"),
        "distribution": release.get("ID", ""),
        "version": release.get("VERSION_ID", ""),
        "systemd": _run("systemctl", "is-system-running", "--wait").strip(),
        "cores": _cores(),
        "memory_bytes": _memory(),
        "gpus": sorted(os.path.basename(d) for d in gpus),
        "gpu_names": _run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines() if gpus else [],
        "link_mbps": _link(),
        "free_bytes": disk.f_bavail * disk.f_frsize,
        "listening": sorted(_listening()),
        "manifests": _roles(),
        "claim": _read(CLAIM),
    }


def claim(asked: dict[str, Any]) -> dict[str, Any]:
    """Make the host ours: first how it was, then our name, then what the configuration stands on."""
    known = _read(CLAIM)
    if known and known["owner"] != asked["owner"]:
        return {"refused": f"it belongs to {known['owner']}"}
    if not known:
        os.makedirs(HOME, mode=0o700, exist_ok=True)
        _write(BEFORE, _state())
        with tarfile.open(ETC + ".new", "w") as tar:
            tar.add("/etc", recursive=True)
        os.chmod(ETC + ".new", 0o600)
        os.replace(ETC + ".new", ETC)
        known = {**asked, "installed": []}
        _write(CLAIM, known)
    missing = [p for p in PREREQUISITES if p not in _packages()]
    if missing:
        _write(CLAIM, {**known, "installed": sorted({*known["installed"], *missing})})  # before they are there
        _apt("update")
        _apt("install", "-y", "--no-install-recommends", *missing)
    return {"ok": True, "installed": missing}


def note(asked: dict[str, Any]) -> dict[str, Any]:
    """Remember what the roles put here, since their manifests go with them."""
    known = _read(CLAIM)
    if known is None or known["owner"] != asked["owner"]:
        return {"refused": "it is not ours"}
    files, units = set(known.get("files", [])), set(known.get("units", []))
    for path in glob.glob(f"{MANIFESTS}/*.json"):
        record = _read(path) or {}
        files |= set(record.get("files", {}))
        units |= {*record.get("facts", {}).get("services", []), *record.get("facts", {}).get("masked", [])}
    _write(CLAIM, {**known, "files": sorted(files), "units": sorted(units)})
    return {"ok": True}


def release(asked: dict[str, Any]) -> dict[str, Any]:
    """Give the host back: what was replaced is restored, what packages leave behind goes, then our name."""
    known = _read(CLAIM)
    if known is None:
        shutil.rmtree(HOME, ignore_errors=True)
        return {"left": []}
    if known["owner"] != asked["owner"]:
        return {"left": [f"nothing of ours: it belongs to {known['owner']}"]}
    if roles := _roles():
        return {"left": [f"role {role}" for role in roles]}
    before = _read(BEFORE) or {}
    _restore(known.get("files", []))
    if installed := [p for p in known["installed"] if p in _packages() and p not in before["packages"]]:
        _apt("purge", "-y", "--autoremove", *installed)
    for row in asked["leftovers"]:
        _clean(row, before)
    _services(known.get("units", []), before)
    left = _left(before)
    if not left:
        shutil.rmtree(HOME)
    return {"left": left}


# --- how it was, and again ---------------------------------------------------------------------------------------


def _state() -> dict[str, Any]:
    return {
        "packages": sorted(_packages()),
        "users": sorted(u.pw_name for u in pwd.getpwall()),
        "groups": sorted(g.gr_name for g in grp.getgrall()),
        "enabled": _units("list-unit-files", "--state=enabled"),
        "masked": _units("list-unit-files", "--state=masked"),
        "active": _units("list-units", "--state=active"),
        "folders": sorted(p for place in ("/", "/etc", "/opt", "/root", "/srv", "/var/cache", "/var/lib", "/var/log",
                                          "/var/tmp", "/usr/local", "/usr/local/lib", "/var/lib/prometheus")
                          if os.path.isdir(place)
                          for p in (os.path.join(place, n) for n in os.listdir(place))),
    }  # fmt: skip


def _restore(files: list[str]) -> None:
    """Files of /etc that a role had replaced and whose removal left nothing in their place."""
    wanted = {path.lstrip("/") for path in files if path.startswith("/etc/") and not os.path.lexists(path)}
    if not wanted or not os.path.exists(ETC):
        return
    with tarfile.open(ETC) as tar:
        for member in tar:
            if member.name in wanted and os.path.isdir(os.path.dirname("/" + member.name)):
                tar.extract(member, "/", numeric_owner=True)


def _services(units: list[str], before: dict[str, Any]) -> None:
    """Services that were enabled or ran before a role took them over do so again, as they were set up then."""
    enabled, active = _units("list-unit-files", "--state=enabled"), _units("list-units", "--state=active")
    for unit in units:
        if unit in before["masked"]:
            _run("systemctl", "mask", "--quiet", unit)
        if unit in before["enabled"] and unit not in enabled:
            _run("systemctl", "enable", "--quiet", unit)
        if unit in before["active"] and unit not in active:
            _run("systemctl", "start", unit)


def _clean(row: dict[str, Any], before: dict[str, Any]) -> None:
    """What a package makes while it works and its purge leaves: only where the package came with us and is gone."""
    package = row["package"]
    if package and (package in before["packages"] or package in _packages()):
        return
    for folder in row["folders"]:
        if folder not in before["folders"] and os.path.isdir(folder) and not os.path.islink(folder):
            shutil.rmtree(folder, ignore_errors=True)
    for user in row["users"]:
        if user not in before["users"] and user in {u.pw_name for u in pwd.getpwall()}:
            _run("userdel", user)
        if user not in before["groups"] and user in {g.gr_name for g in grp.getgrall()}:
            _run("groupdel", user)


def _left(before: dict[str, Any]) -> list[str]:
    places = (MANIFESTS, "/usr/local/lib/inferlift", "/etc/apt/preferences.d/inferlift-nvidia")
    left = [path for path in places if os.path.lexists(path)]
    if "inet inferlift" in _run("nft", "list", "tables"):
        left.append("nftables table inet inferlift")
    return left


# --- looking -----------------------------------------------------------------------------------------------------


def _roles() -> list[str]:
    return sorted(os.path.basename(path)[:-5] for path in glob.glob(f"{MANIFESTS}/*.json"))


def _gpu(device: str) -> bool:
    return _text(device + "/vendor") == "0x10de" and _text(device + "/class").startswith("0x03")


def _cores() -> float:
    """Cores that may be used: a container's quota counts, in either version of cgroups."""
    count = float(len(os.sched_getaffinity(0)))
    quota, _, period = _text("/sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        quota = _text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _text("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    return min(count, int(quota) / int(period)) if quota.isdigit() and period.isdigit() and int(period) else count


def _memory() -> int:
    lines = _text("/proc/meminfo").splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))
    limits = [_text(f"/sys/fs/cgroup/{name}") for name in ("memory.max", "memory/memory.limit_in_bytes")]
    return min([total, *(int(limit) for limit in limits if limit.isdigit())])


def _link() -> int | None:
    """Megabits a second of the fastest link that is up; None where no driver says."""
    speeds = [_text(path) for path in glob.glob("/sys/class/net/*/speed")]
    known = [int(s) for s in speeds if s.isdigit() and int(s) > 0]
    return max(known) if known and os.path.exists("/sys/class/net") and not _virtual() else None


def _virtual() -> bool:
    """A virtual link's figure (10 Gbit/s of a veth) is made up."""
    return not glob.glob("/sys/class/net/*/device")


def _listening() -> set[int]:
    ports = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _text(name).splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def _packages() -> set[str]:
    found, name = set(), ""
    for line in _text("/var/lib/dpkg/status").splitlines():
        if line.startswith("Package: "):
            name = line[9:]
        elif line.startswith("Status: ") and line.endswith(" installed"):
            found.add(name)
    return found


def _units(*how: str) -> list[str]:
    return [line.split()[0] for line in _run("systemctl", *how, "--plain", "--no-legend").splitlines() if line.strip()]


def _apt(*arguments: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-300:]}")


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _pairs(path: str) -> dict[str, str]:
    rows = (line.partition("=") for line in _text(path).splitlines())
    return {key: value.strip('"') for key, _, value in rows}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(path: str, content: dict[str, Any]) -> None:
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def main(arguments: list[str]) -> int:
    commands: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "look": look, "claim": claim, "note": note, "release": release,
    }  # fmt: skip
    try:
        print(json.dumps(commands[arguments[0]](json.loads(arguments[1]))))
    except OSError as error:
        print(f"{error.filename or ''} {error.strerror or error}".strip(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
