"""Ansible module: put many small text files on a host in one run, so that a role costs one start of Python, not ten."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: host_files
short_description: Folders, files and absences in one run
options:
  folders: {type: list, elements: dict, description: "path, and optionally mode (0755), owner, group (root)"}
  files: {type: list, elements: dict, description: "path, content, and optionally mode (0644), owner, group (root)"}
  absent: {type: list, elements: str, description: "files and links that must not be there"}
"""


def main() -> None:
    place = {"path": {"type": "path", "required": True}, "owner": {"default": "root"}, "group": {"default": "root"}}
    module = AnsibleModule(
        argument_spec={
            "folders": {
                "type": "list", "elements": "dict", "default": [],
                "options": {**place, "mode": {"default": "0755"}},
            },
            "files": {
                "type": "list", "elements": "dict", "default": [],
                "options": {**place, "mode": {"default": "0644"}, "content": {"required": True, "no_log": True}},
            },
            "absent": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )  # fmt: skip
    changed: list[str] = []
    try:
        for folder in module.params["folders"]:
            if not Path(folder["path"]).is_dir():
                changed.append(folder["path"])
                if not module.check_mode:
                    Path(folder["path"]).mkdir(parents=True)
            if own(folder, check=module.check_mode):
                changed.append(folder["path"])
        for file in module.params["files"]:
            if write(file, check=module.check_mode):
                changed.append(file["path"])
        for name in module.params["absent"]:
            if os.path.lexists(name):
                changed.append(name)
                if not module.check_mode:
                    Path(name).unlink()
    except (OSError, KeyError) as error:
        module.fail_json(msg=str(error), changed_paths=changed)
    module.exit_json(changed=bool(changed), changed_paths=sorted(set(changed)))


def write(file: dict[str, str], *, check: bool) -> bool:
    """Replaced as a whole, so that no reader sees half a file. A secret is never readable by others, not even briefly."""
    path, content = Path(file["path"]), file["content"].encode()
    if path.is_file() and path.read_bytes() == content:
        return own(file, check=check)
    if check:
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)
    own(file | {"path": str(new)}, check=False)
    new.rename(path)
    return True


def own(item: dict[str, str], *, check: bool) -> bool:
    """Owner, group and mode as asked for; True where something had to change."""
    mode, uid, gid = int(item["mode"], 8), pwd.getpwnam(item["owner"]).pw_uid, grp.getgrnam(item["group"]).gr_gid
    try:
        now = os.stat(item["path"])
    except FileNotFoundError:
        return True  # check mode: the folder above would have been made
    different = (now.st_mode & 0o7777, now.st_uid, now.st_gid) != (mode, uid, gid)
    if different and not check:
        os.chown(item["path"], uid, gid)
        os.chmod(item["path"], mode)
    return different


if __name__ == "__main__":
    main()
