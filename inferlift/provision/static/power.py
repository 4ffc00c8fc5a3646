"""A host's loss, acted out: it is cut off from everything but SSH. The power of somebody's machine is not ours."""

from __future__ import annotations

from inferlift import ssh
from inferlift.artifacts import Host

MARK = "machine:"
_TABLE = "inferlift_loss"
_LIMIT = "20min"  # after which the host itself ends it, whatever became of us


def is_own(host: Host) -> bool:
    return bool(host.container and host.container.startswith(MARK))


def off(host: Host) -> None:
    """Nothing but SSH gets in any more: requests in flight on it are lost as if it had lost its power."""
    table = (
        f"table inet {_TABLE} {{ chain input {{ type filter hook input priority -300; policy accept; "
        f"iif lo accept; tcp dport {host.ssh_port} accept; drop; }}; }}"
    )
    end = f"systemd-run --quiet --collect --unit={_TABLE} --on-active={_LIMIT} nft delete table inet {_TABLE}"
    ssh.run(host, f"systemctl stop --quiet {_TABLE}.timer 2>/dev/null; {end} && nft '{table}'", timeout_s=30)


def on(host: Host) -> None:
    """As before. Nothing happens when it was not cut off."""
    ssh.run(
        host,
        f"nft delete table inet {_TABLE} 2>/dev/null; systemctl stop --quiet {_TABLE}.timer 2>/dev/null; "
        f"! nft list tables | grep -q {_TABLE}",
        timeout_s=30,
    )
