"""Do the hosts still do what was deployed? Each role's validator, asked over SSH, all hosts at once."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inferlift import ssh
from inferlift.artifacts import Check, Fleet, Host
from inferlift.errors import InferliftError
from inferlift.profile.servers import servers

SCRIPTS = "/usr/local/lib/inferlift"
ROLES = {
    "gateway": ("base", "gateway"),
    "monitor": ("base", "monitor", "guard"),
}


def validate(fleet: Fleet, workdir: Path, *, timeout_s: float = 60) -> list[Check]:
    """One check a line of every validator of every host, named `HOST: CHECK`.

    What each host must have is in `workdir/digests.json`, which `apply` wrote; a host that is not there has never been
    configured from here, and fails. A host that does not answer is a failed check, not an error.
    """
    path = workdir / "digests.json"
    digests: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
    if not fleet.hosts:
        return [Check(name="fleet", ok=False, detail="there are no hosts")]
    with ThreadPoolExecutor(max_workers=min(32, len(fleet.hosts))) as pool:
        rows = pool.map(lambda host: _host(host, digests.get(host.name, {}), timeout_s), fleet.hosts)
        return [check for checks in rows for check in checks]


def parse(host: str, role: str, output: str) -> list[Check]:
    """A validator's answer. Anything but a list of checks is a failed check."""
    try:
        rows = json.loads(output)
        checks = [Check(**{**row, "name": f"{host}: {row['name']}"}) for row in rows]
    except (ValueError, TypeError, KeyError):
        said = output.strip()[-200:] or "nothing"
        return [Check(name=f"{host}: validator of {role}", ok=False, detail=f"said {said}")]
    return checks or [Check(name=f"{host}: validator of {role}", ok=False, detail="checked nothing")]


def _host(host: Host, digests: dict[str, str], timeout_s: float) -> list[Check]:
    known = _of_models() if host.role == "model" else ROLES.get(host.role, ("base",))
    roles = [role for role in known if role in digests]
    if not roles:
        return [Check(name=f"{host.name}: configured", ok=False, detail="never configured from here")]
    try:
        done = ssh.run(host, _command(roles, digests), timeout_s=timeout_s, check=False)
    except InferliftError as error:
        return [Check(name=f"{host.name}: answers", ok=False, detail=f"{error.what} {error.why}".strip())]
    answers = done.stdout.splitlines()
    answers += [""] * (len(roles) - len(answers))
    return [check for role, line in zip(roles, answers, strict=False) for check in parse(host.name, role, line)]


def _of_models() -> list[str]:
    """Roles that a model host may have: what servers stand on, then every server's own."""
    own = [role for entry in servers().values() for role in entry["roles"]]
    return list(dict.fromkeys(["base", "nvidia", "scratch", "weights", "ray", *own]))


def _command(roles: Sequence[str], digests: dict[str, str]) -> str:
    """All validators of the host side by side, their answers in the order of the roles, one line each."""
    runs = [f"{SCRIPTS}/check-{role} --digest {shlex.quote(digests[role])}" for role in roles]
    started = " ".join(f"{run} >$d/{i} 2>&1 &" for i, run in enumerate(runs))
    shown = "; ".join(f"tail -n 1 $d/{i}; test -s $d/{i} || echo" for i in range(len(runs)))
    return f"d=$(mktemp -d) && trap 'rm -rf $d' EXIT; {started} wait; {shown}"
