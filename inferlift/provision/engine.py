"""Pulumi's engine through the Automation API: inline programs, a file backend in the work folder, clean interrupts.

The command line runs in a session of its own, so that a Ctrl-C reaches it exactly once, from here, and the
update ends with its lock released and nothing pending. If this process dies, the kernel sends that one SIGINT.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pulumi import automation
from pulumi.automation._cmd import CommandResult, OnOutput
from pulumi.automation.errors import create_command_error
from semver import VersionInfo

from inferlift.errors import CheckFailed, Refusal, Uncertain
from inferlift.provision.lab_provider import install
from inferlift.provision.models import Drift, Tools
from inferlift.provision.settling import PARENT, StackFiles, parent_mark

Say = Callable[[str], None]
_QUIET_S = 90.0  # how long an interrupted update may take to end its calls in progress


class Engine:
    """One stack (project, name), with a program of ours.

    `kinds`: how the types of what is told about begin. `more_path`: a folder with a provider that is on no PATH.
    """

    def __init__(
        self,
        workdir: Path,
        project: str,
        stack: str,
        tools: Tools,
        *,
        kinds: str = "inferlift-lab:",
        more_path: Path | None = None,
    ) -> None:
        self.files = StackFiles(workdir, project, stack)
        self._tools = tools
        self._kinds, self._more_path = kinds, more_path
        self._errors: list[str] = []
        self.failed: list[dict[str, Any]] = []  # creates of the last `up` that failed: type, urn, inputs

    def up(self, program: Callable[[], None], say: Say) -> None:
        """Bring the stack to what the program says, whatever happened behind its back.

        Raises CheckFailed with the engine's own diagnostics, Uncertain when another update holds the lock.
        """
        stack = self._stack(program)
        self.failed.clear()
        with self._judged("up"):
            stack.up(refresh=True, color="never", suppress_outputs=True, on_event=self._teller(say))

    def refresh_preview(self, program: Callable[[], None]) -> list[Drift]:
        """What an `up` would change, asked of the machines themselves; the state is not written."""
        stack = self._stack(program)
        found: dict[str, str] = {}

        def note(event: Any) -> None:
            self._note_error(event)
            if (step := event.resource_pre_event) is not None:
                change = _CHANGES.get(str(getattr(step.metadata.op, "value", step.metadata.op)))
                if change and step.metadata.type.startswith(self._kinds):
                    found[_words(step.metadata)] = change

        with self._judged("preview"):
            stack.preview(refresh=True, color="never", suppress_outputs=True, on_event=note)
        return [Drift(resource=name, change=change) for name, change in sorted(found.items())]

    def ask(self, program: Callable[[], None]) -> list[tuple[str, str, str, dict[str, Any]]]:
        """(operation, type, name, inputs) of every resource that the program asks for; nothing is changed."""
        stack = self._stack(program)
        found: list[tuple[str, str, str, dict[str, Any]]] = []

        def note(event: Any) -> None:
            self._note_error(event)
            step = event.resource_pre_event
            if step is not None and step.metadata.type.startswith(self._kinds) and step.metadata.new is not None:
                op = str(getattr(step.metadata.op, "value", step.metadata.op))
                name = step.metadata.urn.rpartition("::")[2]
                found.append((op, step.metadata.type, name, dict(step.metadata.new.inputs)))

        with self._judged("preview"):
            stack.preview(color="never", suppress_outputs=True, on_event=note)
        return found

    def destroy(self, say: Say) -> None:
        """Remove what the state knows. Removing what is gone already is no error."""
        if not self.files.checkpoint.exists():
            return
        stack = self._stack(lambda: None)
        with self._judged("destroy"):
            stack.destroy(color="never", suppress_outputs=True, on_event=self._teller(say))

    def clear_pending(self) -> None:
        """Take a dead update's lock away and forget its pending entries: creates are get-or-create, and repeated.

        Only for `settle`, which has made sure that no update is alive.
        """
        self.files.restore_torn()
        for lock in self.files.locks():
            lock.unlink(missing_ok=True)
        if not self.files.pending():
            return
        stack = self._stack(lambda: None)
        with self._judged("settle"):
            exported = stack.export_stack()
            deployment = dict(exported.deployment or {})
            deployment["pending_operations"] = []
            deployment.setdefault("resources", [])
            stack.import_stack(automation.Deployment(version=exported.version, deployment=deployment))

    # --- helpers ---------------------------------------------------------------------------------------------

    def _stack(self, program: Callable[[], None]) -> automation.Stack:
        files = self.files
        files.prepare()
        passphrase(files.passphrase)
        install(files.bin)
        env = {
            **environment(files, self._tools),
            "PATH": os.pathsep.join(
                [
                    str(files.bin),
                    *([str(self._more_path)] if self._more_path else []),
                    os.environ.get("PATH", os.defpath),
                ]
            ),
        }
        settings = automation.ProjectSettings(name=files.project, runtime="python", main=str(files.work))
        with self._judged("stack select"):
            return automation.create_or_select_stack(
                files.stack,
                project_name=files.project,
                program=program,
                opts=automation.LocalWorkspaceOptions(
                    work_dir=str(files.work),
                    pulumi_home=str(files.home),
                    env_vars=env,
                    project_settings=settings,
                    pulumi_command=InterruptibleCommand(self._tools.pulumi_bin, files.home),
                ),
            )

    def _teller(self, say: Say) -> Callable[[Any], None]:
        started: dict[str, float] = {}

        def tell(event: Any) -> None:
            self._note_error(event)
            if (step := event.res_op_failed_event) is not None:
                self._note_failed(step.metadata)
            elif (step := event.resource_pre_event) is not None:
                started[step.metadata.urn] = time.monotonic()
            elif (step := event.res_outputs_event) is not None:
                op = str(getattr(step.metadata.op, "value", step.metadata.op))
                word = {"create": "made", "create-replacement": "made anew", "delete": "removed"}.get(op)
                if word and step.metadata.type.startswith(self._kinds):
                    seconds = time.monotonic() - started.get(step.metadata.urn, time.monotonic())
                    say(f"{word} {_words(step.metadata)} ({seconds:.1f} s)")

        return tell

    def _note_failed(self, metadata: Any) -> None:
        op = str(getattr(metadata.op, "value", metadata.op))
        if op.startswith("create") and metadata.new is not None:
            self.failed.append({"type": metadata.type, "urn": metadata.urn, "inputs": dict(metadata.new.inputs)})

    def _note_error(self, event: Any) -> None:
        diagnostic = event.diagnostic_event
        if diagnostic is not None and diagnostic.severity == "error":
            self._errors.append(re.sub(r"<\{%[^%]*%\}>", "", diagnostic.message).strip())

    @contextlib.contextmanager
    def _judged(self, what: str) -> Iterator[None]:
        """The engine's failures as ours. Its own error text holds the whole output, which may hold secrets."""
        self._errors.clear()
        try:
            yield
        except automation.ConcurrentUpdateError:
            raise Uncertain(
                "another update of these hosts is running, or was killed",
                why=f"the lock under {self.files.state} is held",
                next_command="run the same command again: it settles what a killed run left",
            ) from None
        except automation.CommandError as error:
            said = re.findall(r"^\s*error: (.{1,200})", str(error), re.MULTILINE)  # its own sentence, nothing around it
            why = "\n".join(dict.fromkeys(self._errors or said))[-800:] or "the engine gave no reason"
            if "is not ours" in why:
                raise Refusal("a name that the lab needs is taken", why=why) from None
            raise CheckFailed(f"pulumi {what} failed", why=why) from None


def environment(files: StackFiles, tools: Tools) -> dict[str, str]:
    """What the engine needs to know, apart from PATH and PULUMI_HOME."""
    return {
        "PULUMI_BACKEND_URL": f"file://{files.state}",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(files.passphrase),
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "1",
        "PULUMI_ERROR_OUTPUT_STRING": "1",
        **tools.podman_env,
    }


def write_shell_environment(files: StackFiles, tools: Tools) -> None:
    """A file to source before plain `pulumi` commands on the same stacks."""
    python = files.bin / "plugin-python"
    python.write_text(_PYTHON.format(python=shlex.quote(sys.executable)))
    python.chmod(0o755)
    values = {"PULUMI_HOME": str(files.home), "PULUMI_PYTHON_CMD": str(python), **environment(files, tools)}
    lines = [f"export {key}={shlex.quote(value)}" for key, value in values.items()]
    folders = [files.bin, tools.pulumi_bin.parent, *([tools.python_plugin] if tools.python_plugin else [])]
    path = os.pathsep.join(shlex.quote(str(folder)) for folder in folders)
    (files.root / "env").write_text("\n".join([*lines, f"export PATH={path}:$PATH"]) + "\n")


# The language plugin asks `python -m pip list`, but an environment that uv made has no pip: answer without it.
_PYTHON = """#!/bin/sh
if [ "$1 $2 $3" = "-m pip list" ]; then
  exec {python} -c '
import json, importlib.metadata as m
print(json.dumps([dict(name=d.name, version=d.version, location=str(d.locate_file(""))) for d in m.distributions()]))'
fi
exec {python} "$@"
"""


class InterruptibleCommand(automation.PulumiCommand):
    """The command line in a session of its own; an exception here becomes one SIGINT there."""

    def __init__(self, binary: Path, home: Path) -> None:
        self.command = str(binary)
        self.version = _version(binary, home)

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> CommandResult:
        argv = [self.command, "--non-interactive", *args]
        env = {**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true", PARENT: parent_mark()}
        # Into files, not pipes: when this process dies, a broken pipe would kill the engine before its clean end.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = None
            try:
                with _signals_later():
                    child = subprocess.Popen(
                        ["setpriv", "--pdeathsig", "INT", *argv],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        cwd=cwd,
                        env=env,
                        start_new_session=True,
                    )
                child.wait()
            except BaseException:
                if child is not None:
                    try:
                        _interrupt(child)
                    except KeyboardInterrupt:  # a second one, on the way into the first one's end
                        _interrupt(child)
                raise
            result = CommandResult(stdout=_text(out), stderr=_text(err), code=child.returncode)
        for text, tell in ((result.stdout, on_output), (result.stderr, on_error)):
            if tell:
                for line in text.splitlines():
                    tell(line)
        if child.returncode:
            raise create_command_error(result)
        return result


def passphrase(path: Path) -> None:
    """A random passphrase for the state's secrets, made once, readable by the owner alone."""
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(32))
    if not path.read_text():  # killed between creating and writing: no state was encrypted with it yet
        path.write_text(secrets.token_urlsafe(32))


_CHANGES = {
    "create": "gone",
    "create-replacement": "changed",
    "replace": "changed",
    "update": "changed",
    "delete": "not wanted",
}


def _words(metadata: Any) -> str:
    """`urn:...::inferlift-lab:index:Host::model-1` as `host model-1`."""
    kind = metadata.type.rpartition(":")[2].lower()
    return f"{kind} {metadata.urn.rpartition('::')[2]}" if kind != "network" else "network"


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """What comes while a child is started is raised when it is known: it could not be ended before."""
    if threading.current_thread() is not threading.main_thread():  # only there are signals heard
        yield
        return
    heard: list[int] = []
    before = {s: signal.signal(s, lambda n, _: heard.append(n)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in heard[:1]:
        signal.raise_signal(number)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Exactly one SIGINT, then wait for the clean end; further interrupts are not heard and do not shorten it."""
    mine = threading.current_thread() is threading.main_thread()  # only there may handlers be changed
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if mine else None
    try:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _QUIET_S
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    finally:
        if mine:
            signal.signal(signal.SIGINT, before)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return "\n".join(line.rstrip() for line in file.read().decode(errors="replace").splitlines())


def _version(binary: Path, home: Path) -> VersionInfo:
    """The engine's version, asked once for a given binary: asking costs 0.15 s."""
    try:
        stat = binary.stat()
    except FileNotFoundError:
        raise CheckFailed(f"Pulumi's engine is not at {binary}", next_command="./invoke doctor") from None
    key = f"{binary}:{stat.st_size}:{stat.st_mtime_ns}"
    note = home / "engine-version.json"
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(note.read_text())
        if known["key"] == key:
            return VersionInfo.parse(known["version"])
    env = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "1", "PULUMI_HOME": str(home)}
    text = subprocess.run([binary, "version"], capture_output=True, text=True, env=env, timeout=60, check=True).stdout
    version = VersionInfo.parse(text.strip().lstrip("v"))
    home.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"key": key, "version": str(version)}))
    return version
