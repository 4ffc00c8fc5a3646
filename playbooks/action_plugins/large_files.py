"""Large files from the operator's machine to a host, whole or not at all, each sent once.

- large_files:
    src: [/here/MODEL-1.2.whl]
    folder: /there
    names: [MODEL-1.2.whl]                # on the host; by default as here
    unless: /there/what-they-are-for      # where this exists, nothing is sent

ansible.builtin.copy takes five calls to a host a file and reads each file on both sides at every run. Here a path names
its content (a version or a digest is in it), so one question to the host is enough: a file of the same size is there.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        names = given.get("names") or [Path(src).name for src in given["src"]]
        files = {f"{given['folder']}/{name}": Path(src) for name, src in zip(names, given["src"], strict=True)}
        lacking = self._lacking(files, given.get("unless"))
        result.update(changed=bool(lacking), sent=[] if self._task.check_mode else lacking)
        if not lacking or self._task.check_mode:
            return result
        try:
            for path in lacking:
                self._send(files[path], path)
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _lacking(self, files: dict[str, Path], unless: str | None) -> list[str]:
        have = "stat -c '%s %n' -- " + shlex.join(files) + " 2>/dev/null"
        answer = self._ask(f"test -e {shlex.quote(unless)} && echo all || {have}" if unless else have, check=False)
        rows = [line.split(" ", 1) for line in answer.splitlines()]
        if ["all"] in rows:
            return []
        there = {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}
        return [path for path, src in files.items() if there.get(path) != src.stat().st_size]

    def _send(self, src: Path, path: str) -> None:
        """Beside its place, then renamed; by way of a folder of the login's own where root is another."""
        folder, part = shlex.quote(str(Path(path).parent)), f"{path}.part"
        own = self._connection.become is None
        self._ask(f"mkdir -p {folder}")
        sent = part if own else self._connection._shell.join_path(self._make_tmp_path(), "sent")
        self._connection.put_file(str(src), sent)
        brought = "" if own else f"cp {shlex.quote(sent)} {shlex.quote(part)} && "
        size = src.stat().st_size
        self._ask(
            f"{brought}test $(stat -c %s {shlex.quote(part)}) = {size} && "
            f"chmod 0600 {shlex.quote(part)} && mv -f {shlex.quote(part)} {shlex.quote(path)}"
        )

    def _ask(self, command: str, *, check: bool = True) -> str:
        done = self._low_level_execute_command(command, sudoable=True)
        if check and done["rc"]:
            raise AnsibleActionFail(f"{command}: {done['stderr'] or done['stdout']}".strip())
        return str(done["stdout"])
