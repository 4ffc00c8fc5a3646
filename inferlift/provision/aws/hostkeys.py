"""Host keys of instances, read from their console through AWS and thus not from the network; kept once known."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from inferlift.errors import Retryable
from inferlift.provision.aws.session import Session, calling

Say = Callable[[str], None]
# cloud-init writes them between these lines: https://cloudinit.readthedocs.io/en/latest/reference/modules.html#ssh
_BLOCK = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----", re.DOTALL)
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]+")


def from_console(text: str) -> str | None:
    """The ed25519 key of the last boot that printed one."""
    found = [match[0] for block in _BLOCK.findall(text) if (match := _KEY.search(block))]
    return found[-1] if found else None


def host_keys(
    instances: Iterable[tuple[str, str]],
    session: Session,
    note: Path,
    say: Say,
    *,
    limit_s: float = 420,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Instance id -> key, for (id, region) pairs. AWS shows a console one to four minutes after the boot.

    Raises Retryable naming the instances that showed none in time.
    """
    wanted = list(instances)
    known: dict[str, str] = json.loads(note.read_text()) if note.exists() else {}
    deadline, told = time.monotonic() + limit_s, False
    while missing := [(i, r) for i, r in wanted if i not in known]:
        for identity, region in missing:
            with calling("read a console", region):
                answer = session.client("ec2", region).get_console_output(InstanceId=identity, Latest=True)
            if (key := from_console(str(answer.get("Output") or ""))) is not None:
                known[identity] = key
        if all(i in known for i, _ in missing):
            break
        if time.monotonic() > deadline:
            names = ", ".join(i for i, _ in wanted if i not in known)
            raise Retryable(
                f"no host key is known of {names}",
                why=f"their consoles showed none within {limit_s:.0f} s",
                next_command="run the same command again: the hosts are made, and are not made twice",
            )
        if not told:
            say(f"waiting for {len(missing)} consoles to show their host keys")
            told = True
        sleep(5)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(known, indent=1, sort_keys=True))
    return {i: known[i] for i, _ in wanted}
