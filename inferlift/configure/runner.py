"""One playbook run: a fresh folder for each attempt, secrets in a file of their own, judged by the hosts expected."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferlift import process, ssh
from inferlift.artifacts import Configured, Host
from inferlift.configure.events import Log, forms_of, scrub
from inferlift.errors import CheckFailed, DeclarationError, Interrupted
from inferlift.profile import ROOT
from inferlift.secret import resolve

PLAYBOOKS = ROOT / "playbooks"
RUN = "INFERLIFT_PLAYBOOK_RUN"  # marks all children of one run


def apply(
    hosts: Sequence[Host],
    playbook: str,
    variables: Mapping[str, object],
    secrets: Mapping[str, str],
    workdir: Path,
    say: Callable[[str], None],
    tags: Sequence[str] = (),
    limit: Sequence[str] = (),
    forks: int = 8,
    *,
    check: bool = False,
    timeout_s: float = 900,
) -> Configured:
    """Run `playbooks/PLAYBOOK` over the hosts; every host is in a group named after its role.

    `secrets` maps variable names to references (`env:`, `file:`), read here and removed again. `limit` names the
    hosts to run on (all are in the inventory). `check` changes nothing. Digests of what was deployed are kept in
    `workdir/digests.json` for `validate`. Raises Retryable (a host does not answer), CheckFailed (a task failed,
    a host was not processed, timeout), Interrupted (Ctrl-C; no child is left).
    """
    expected = _expected(hosts, limit)
    path = PLAYBOOKS / playbook
    if not path.is_file():
        raise DeclarationError(f"there is no playbook {playbook}", why=f"looked in {PLAYBOOKS}")
    values = {name: resolve(reference) for name, reference in secrets.items()}
    folder = _fresh(workdir)
    sockets = _sockets(workdir)
    secret_file = folder / "secrets.json"
    started = time.monotonic()
    log = Log(secrets=forms_of(values.values()))
    try:
        _write(folder / "variables.json", variables)
        _write(folder / "hosts.json", _inventory(hosts))
        _write(secret_file, values)
        _play(path, folder, sockets, log, say, tags, expected, limit, forks, check, timeout_s)
        counts = log.judge(expected)
    finally:
        secret_file.unlink(missing_ok=True)
        shutil.rmtree(sockets, ignore_errors=True)
        _scrub_artifacts(folder, values.values())
    if not check:
        _remember(workdir / "digests.json", log.digests, log.removed)
    return Configured(
        hosts=counts,
        changed=sum(row["changed"] for row in counts.values()),
        seconds=round(time.monotonic() - started, 3),
        skipped=tuple(log.skipped),
    )


def _expected(hosts: Sequence[Host], limit: Sequence[str]) -> list[str]:
    names = [h.name for h in hosts]
    unknown = sorted(set(limit) - set(names))
    if unknown or not names or len(set(names)) != len(names):
        raise DeclarationError(
            "the hosts to configure are not clear",
            why=f"unknown: {', '.join(unknown)}" if unknown else "no host, or one name twice",
        )
    return [n for n in names if not limit or n in limit]


def _fresh(workdir: Path) -> Path:
    """A folder nobody used before: a private_data_dir used twice feeds stale inputs."""
    base = workdir / "ansible"
    base.mkdir(parents=True, exist_ok=True)
    attempts = sorted(base.iterdir(), key=lambda p: p.stat().st_mtime)
    for old in attempts:
        (old / "secrets.json").unlink(missing_ok=True)  # what a killed run could not remove
    for old in attempts[:-9]:
        shutil.rmtree(old, ignore_errors=True)  # the last ten attempts are kept
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%dT%H%M%S-", time.gmtime()), dir=base))


def _sockets(workdir: Path) -> Path:
    """A folder for ssh's control sockets: short, since their paths end at 108 characters."""
    prefix = f"il-{hashlib.sha256(str(workdir.resolve()).encode()).hexdigest()[:10]}-"
    for old in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        shutil.rmtree(old, ignore_errors=True)  # of a killed run
    return Path(tempfile.mkdtemp(prefix=prefix))


def _inventory(hosts: Sequence[Host]) -> dict[str, object]:
    groups: dict[str, dict[str, dict[str, object]]] = {}
    for host in hosts:
        row = {
            "ansible_host": host.address,
            "ansible_port": host.ssh_port,
            "ansible_user": host.user,
            "ansible_become": host.user != "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": shlex.join(ssh.options(host)),
            "inferlift_role": host.role,
            "inferlift_site": host.site,
            "inferlift_gpu_expected": host.gpu,
            "inferlift_ram_gib_expected": round(host.memory_bytes / 2**30, 2) if host.memory_bytes else 0,
        }
        groups.setdefault(host.role, {"hosts": {}})["hosts"][host.name] = row
    return {"all": {"children": groups}}


def _play(
    playbook: Path,
    folder: Path,
    sockets: Path,
    log: Log,
    say: Callable[[str], None],
    tags: Sequence[str],
    expected: Sequence[str],
    limit: Sequence[str],
    forks: int,
    check: bool,
    timeout_s: float,
) -> None:
    from ansible_runner.interface import run_async

    events: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    stop = threading.Event()
    ident = folder.name

    def keep(event: Mapping[str, Any]) -> bool:
        events.put(event)
        return True  # anything else makes ansible-runner forget the event

    options = ["--forks", str(forks), "-e", f"@{folder / 'variables.json'}", "-e", f"@{folder / 'secrets.json'}"]
    options += ["--tags", ",".join(tags)] if tags else []
    options += ["--limit", ",".join(expected)] if limit else []
    options += ["--check"] if check else []
    deadline = time.monotonic() + timeout_s
    thread, runner = run_async(  # type: ignore[no-untyped-call]
        private_data_dir=str(folder),
        ident=ident,
        playbook=str(playbook),
        inventory=str(folder / "hosts.json"),
        cmdline=shlex.join(options),
        envvars={
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
            "ANSIBLE_LOCAL_TEMP": str(sockets / "tmp"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            RUN: ident,
        },
        event_handler=keep,
        cancel_callback=stop.is_set,
        settings={"pexpect_timeout": 0.2},  # how often the callback is asked, in seconds; the default is 5
        quiet=True,
    )
    try:
        while thread.is_alive() or not events.empty():
            with contextlib.suppress(queue.Empty):
                line = log.take(events.get(timeout=0.1))
                if line:
                    say(line)
            if time.monotonic() > deadline:
                raise CheckFailed(f"the playbook took longer than {timeout_s:.0f} s", why=f"log: {folder}")
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped while hosts were being configured", next_command="run the same command again"
        ) from None
    finally:
        if thread.is_alive():
            stop.set()
            thread.join(timeout=10)
        process.end(_children(ident), grace_s=1)
    if runner.stats is None and log.stats is None:
        raise CheckFailed("ansible-playbook did not run to its end", why=_tail(folder, ident, log.secrets))


def _children(ident: str) -> list[int]:
    """Live processes of this run: the playbook (a session of its own), its workers, ssh and its masters."""
    needle = f"{RUN}={ident}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _scrub_artifacts(folder: Path, values: Iterable[str]) -> None:
    """ansible-runner stores the whole environment in `command`; and no file of the run may hold a secret."""
    forms = forms_of(values)
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        if path.name in ("command", "envvars"):
            path.unlink()
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        clean = scrub(text, forms)
        if clean != text:
            path.write_text(clean, encoding="utf-8")


def _remember(path: Path, digests: Mapping[str, Mapping[str, str]], removed: Mapping[str, Iterable[str]]) -> None:
    known: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
    for host, rows in digests.items():
        known.setdefault(host, {}).update(rows)
    for host, roles in removed.items():
        known[host] = {role: digest for role, digest in known.get(host, {}).items() if role not in roles}
    temporary = path.with_suffix(f".{os.getpid()}")
    _write(temporary, known)
    temporary.replace(path)


def forget(workdir: Path, hosts: Iterable[str]) -> None:
    """These hosts are other machines than they were: nothing is on them that `apply` remembers."""
    path = workdir / "digests.json"
    if path.is_file():
        _remember(path, {}, {host: tuple(rows) for host, rows in json.loads(path.read_text()).items() if host in hosts})


def _write(path: Path, value: object) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)


def _tail(folder: Path, ident: str, secrets: Sequence[str]) -> str:
    out = folder / "artifacts" / ident / "stdout"
    lines = out.read_text(errors="replace").strip().splitlines() if out.is_file() else []
    return scrub("\n".join(lines[-6:]), secrets) or f"log: {folder}"
