"""Commands on a host over SSH, with the host's key pinned."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from pathlib import Path

from inferlift import process
from inferlift.artifacts import Host, Jump
from inferlift.errors import DeclarationError, Refusal, Retryable

JUMP = "jump"  # what the jump host is called in its own config file


def known_hosts(host: Host) -> Path:
    """A known_hosts file that holds just this host's pinned key; written once, named by its content."""
    return _written(host, _known(host))


def options(host: Host) -> list[str]:
    """Options for ssh, scp and rsync -e: our key, the pinned host key, no agent, no config of the user's."""
    way = ["-F", "/dev/null"] if host.jump is None else ["-F", str(_jump_config(host, host.jump)), "-J", JUMP]
    return [
        *way,
        "-i", host.ssh_key,
        "-o", "IdentitiesOnly=yes",
        "-o", "BatchMode=yes",
        "-o", "StrictHostKeyChecking=yes",
        "-o", f"UserKnownHostsFile={known_hosts(host)}",
        "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", "ConnectTimeout=10",
        "-o", "LogLevel=ERROR",
    ]  # fmt: skip


def _jump_config(host: Host, jump: Jump) -> Path:
    """The way to the jump host as a file: ssh hands its own options on to the jump by no other means."""
    return _written(
        host,
        f"Host {JUMP}\n"
        f"  HostName {jump.address}\n  Port {jump.ssh_port}\n  User {jump.user}\n"
        f"  IdentityFile {host.ssh_key}\n  IdentitiesOnly yes\n  BatchMode yes\n  StrictHostKeyChecking yes\n"
        f"  UserKnownHostsFile {_written(host, _known(jump))}\n  GlobalKnownHostsFile /dev/null\n"
        "  ConnectTimeout 10\n  LogLevel ERROR\n",
    )


def _known(host: Host | Jump) -> str:
    name = host.address if host.ssh_port == 22 else f"[{host.address}]:{host.ssh_port}"
    return f"{name} {host.host_key}\n"


def _written(host: Host, text: str) -> Path:
    folder = Path(host.ssh_key).parent / "known_hosts"
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.rename(path)
    return path


def argv(host: Host, command: str) -> list[str]:
    return ["ssh", *options(host), "-p", str(host.ssh_port), f"{host.user}@{host.address}", "--", command]


def run(
    host: Host, command: str, *, timeout_s: float = 60, stdin: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a shell command on the host.

    Raises Retryable when the host cannot be reached (ssh's own 255), CheckFailed when the command fails.
    """
    done = process.run(argv(host, command), timeout_s=timeout_s, stdin=stdin, check=False)
    if done.returncode == 255:
        raise Retryable(f"{host.name} ({host.address}) does not answer over SSH", why=done.stderr.strip()[-300:])
    if check and done.returncode:
        process_error = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        from inferlift.errors import CheckFailed

        raise CheckFailed(f"a command on {host.name} exited with {done.returncode}", why=process_error)
    return done


class Tunnel:
    """A connection to a port of the host, as the host itself reaches it, carried by one SSH connection.

    `socket` is its end here. Nothing listens on this machine; whoever closes the socket, or dies, ends it.
    """

    def __init__(self, host: Host, port: int) -> None:
        self.socket, theirs = socket.socketpair()
        there = ["-p", str(host.ssh_port), "-W", f"{host.address}:{port}", f"{host.user}@{host.address}"]
        with theirs:
            self._child = subprocess.Popen(
                ["ssh", *options(host), *there], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE,
                text=True, start_new_session=True,
            )  # fmt: skip

    def why_closed(self, wait_s: float = 2.0) -> str | None:
        """What ssh said as it ended; None while it runs."""
        try:
            _, said = self._child.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            return None
        return said.strip()[-300:] or f"ssh ended with {self._child.returncode}"

    def close(self) -> None:
        self.socket.close()
        self._child.terminate()
        self._child.wait()
        if self._child.stderr is not None:
            self._child.stderr.close()


_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


def known_key(address: str, port: int, known_hosts: Path) -> str | None:
    """The key that a known_hosts file, hashed or not, has for a host, the best type first; None when it has none."""
    name = address if port == 22 else f"[{address}]:{port}"
    done = process.run(["ssh-keygen", "-F", name, "-f", str(known_hosts)], timeout_s=20, check=False)
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith(("#", "@"))]
    by_type = {words[1]: words[2] for words in rows if len(words) > 2}
    return next((f"{kind} {by_type[kind]}" for kind in _KEY_TYPES if kind in by_type), None)


def linked_key(key: Path, folder: Path) -> Path:
    """The operator's key by a link in our folder: what belongs to it (pinned host keys) is kept beside the link."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    link = folder / "operator"
    if not link.is_symlink() or link.readlink() != key:
        temporary = folder / ".operator"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(key)
        temporary.replace(link)
    return link


def operators_host(
    place: tuple[str, str, int], *, name: str, role: str, key: str, known_hosts: str, folder: Path
) -> Host:
    """A host that the operator can log in to (user, address, port), by the operator's key, with its own as the
    operator's known_hosts has it: never learned from the network.

    Raises DeclarationError without the key's file, Refusal where the host's own is not known.
    """
    user, address, port = place
    mine, known = Path(key).expanduser(), Path(known_hosts).expanduser()
    if not mine.is_file():
        raise DeclarationError(
            f"there is no SSH key {mine}",
            next_command=f"ssh-keygen -t ed25519 -f {key}, then ssh-copy-id {user}@{address}",
        )
    pinned = known_key(address, port, known)
    if pinned is None:
        raise Refusal(
            f"the host key of {address} is not in {known}",
            why="a host whose key nobody compared could be anybody",
            next_command=f"ssh {f'-p {port} ' if port != 22 else ''}{user}@{address}, compare the fingerprint, yes",
        )
    return Host.model_validate(
        {
            "name": name, "role": role, "address": address, "user": user, "ssh_port": port,
            "ssh_key": str(linked_key(mine.resolve(), folder)), "host_key": pinned,
        }
    )  # fmt: skip
