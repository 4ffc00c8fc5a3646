"""Images on hosts before they are needed: pulled by digest from a registry, with a deadline and evidence."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inferlift import ssh
from inferlift.artifacts import Check, Host
from inferlift.errors import CheckFailed
from inferlift.images import on_host
from inferlift.images.registry import Registry

_SCRIPT = Path(on_host.__file__)
_FILLED = 'SECRET: dict[str, str] = {"login": "", "ca": ""}'


def pull(
    hosts: Sequence[Host], reference: str, tag: str | None, registry: Registry, say: Callable[[str], None], *,
    deadline_s: float = 600,
) -> list[Check]:  # fmt: skip
    """Have HOST/REPOSITORY@sha256:... on every host, as `tag` too. Returns the evidence: a check a host, its seconds.

    The login reaches a host over SSH, lies in its memory while it pulls, and is in no argument.
    Raises CheckFailed naming the hosts that do not have it within `deadline_s`, Retryable (a host does not answer).
    """
    digest = reference.rpartition("@")[2]
    asked = json.dumps({"reference": reference, "digest": digest, "tag": tag, "deadline_s": deadline_s})
    script = _script(registry)

    def one(host: Host) -> Check:
        command = shlex.join(["python3", "-", asked])
        done = ssh.run(host, command, timeout_s=deadline_s + 120, stdin=script, check=False)
        name = f"image on {host.name}"
        if done.returncode:
            return Check(name=name, ok=False, detail=done.stderr.strip().splitlines()[-1][:300])
        told = json.loads(done.stdout)
        if "refused" in told:
            return Check(name=name, ok=False, detail=str(told["refused"]))
        how = "was there" if told["there"] else f"pulled in {told['seconds']:.1f} s"
        return Check(name=name, ok=True, detail=f"{told['digest']} {how}")

    say(f"pulling {reference} on {len(hosts)} hosts")
    with ThreadPoolExecutor(max(1, min(16, len(hosts)))) as pool:
        found = list(pool.map(one, hosts))
    if bad := [c for c in found if not c.ok]:
        raise CheckFailed(
            f"{len(bad)} of {len(hosts)} hosts do not have the image",
            why="; ".join(f"{c.name}: {c.detail}" for c in bad),
            next_command="the same command again goes on",
        )
    for check in found:
        say(f"{check.name}: {check.detail}")
    return found


def without_podman(hosts: Sequence[Host]) -> list[Host]:
    """Hosts that nothing can be pulled on before their first role. Raises Retryable (a host does not answer)."""

    def lacks(host: Host) -> bool:
        return ssh.run(host, "command -v podman", timeout_s=30, check=False).returncode != 0

    with ThreadPoolExecutor(max(1, min(16, len(hosts)))) as pool:
        return [host for host, lacking in zip(hosts, pool.map(lacks, hosts), strict=True) if lacking]


def _script(registry: Registry) -> str:
    text = _SCRIPT.read_text(encoding="utf-8")
    assert _FILLED in text  # noqa: S101 - our own file
    known = registry.credentials()
    login = ""
    if known is not None:
        auth = base64.b64encode(f"{known[0]}:{known[1]}".encode()).decode()
        login = json.dumps({"auths": {registry.host: {"auth": auth}}})
    ca = Path(registry.ca).read_text(encoding="utf-8") if registry.ca else ""
    return text.replace(_FILLED, f"SECRET = {json.dumps({'login': login, 'ca': ca})}")
