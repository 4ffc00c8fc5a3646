#!/usr/bin/python3
"""All files of one role in one call: written whole or not at all, checked before they replace anything.

With them what they belong to: system accounts, and packages that are to stay at their versions. One call to a host
costs more than what is done in it.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import shlex
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: config_files
short_description: Writes the files of a role and a manifest of their checksums
description:
  - Each file is written beside its place, checked with O(files[].validate), and renamed over it.
  - The manifest, C(/etc/inferlift/ROLE.json), lets a validator notice any later change. The digest returned covers
    paths, owners, modes and contents; of secret files it covers all but the content.
  - Files of the earlier manifest that are no longer listed are removed.
  - Accounts and holds that were made here are kept in the manifest, so that they can be taken away again; those that
    somebody else had made are left as they are.
options:
  role:
    description: Name of the role; names the manifest.
    type: str
    required: true
  facts:
    description: Further values that the digest and the manifest carry, for the validator.
    type: dict
    default: {}
  kept:
    description:
      - Lists of what the role has put on the host besides files (C(packages), C(folders), C(held)). Each is joined with
        what the earlier manifest says, so that it can be taken away again; the digest leaves it out.
      - C(folders) and C(stores) that held something before the role was here, and that no other role keeps, are
        somebody's. They are kept as C(theirs), which removal leaves and names.
      - C(made) names folders that the role makes where there are none; those that are there already are not kept.
      - C(stores) names folders that a program fills for several roles (podman's).
    type: dict
    default: {}
  announce:
    description: Only note O(kept), before it is made, so that what a kill leaves can be taken away again.
    type: bool
    default: false
  groups:
    description: System groups; C(gid) where another system counts on the number.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name.
        type: str
        required: true
      gid:
        description: Number.
        type: int
  users:
    description: System users without a login, each with a group of its name.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name.
        type: str
        required: true
      home:
        description: Home directory; it is not made.
        type: path
        default: /nonexistent
  hold:
    description: Packages to put on hold.
    type: list
    elements: str
    default: []
  skips:
    description: Lines to pass on as what is left out on this host, and why.
    type: list
    elements: str
    default: []
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path on the host.
        type: path
        required: true
      content:
        description: The text.
        type: str
      secret:
        description: The text, if it is a secret.
        type: str
      mode:
        description: Octal mode.
        type: str
        default: "0644"
      owner:
        description: User.
        type: str
        default: root
      group:
        description: Group.
        type: str
        default: root
      validate:
        description: Command that must succeed; C(%s) is the path of the new file.
        type: str
author:
  - inferlift
"""

EXAMPLES = r"""
- name: Note what will be installed
  config_files:
    role: gateway
    announce: true
    kept: {packages: [haproxy]}
    files: []
- name: Write the files
  config_files:
    role: gateway
    files:
      - path: /etc/haproxy/haproxy.cfg
        content: "{{ lookup('ansible.builtin.template', 'haproxy.cfg.j2') }}"
        validate: haproxy -c -q -f %s
"""

RETURN = r"""
changed_paths:
  description: Files written or removed.
  returned: always
  type: list
"""

MANIFESTS = Path("/etc/inferlift")


def main():
    # its invocation is never logged: several lines of a secret would pass the host's own masking
    module = AnsibleModule(
        no_log=True,
        argument_spec={
            "role": {"type": "str", "required": True},
            "facts": {"type": "dict", "default": {}},
            "kept": {"type": "dict", "default": {}},
            "announce": {"type": "bool", "default": False},
            "groups": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"type": "str", "required": True}, "gid": {"type": "int"}},
            },
            "users": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "home": {"type": "path", "default": "/nonexistent"},
                },
            },
            "hold": {"type": "list", "elements": "str", "default": []},
            "skips": {"type": "list", "elements": "str", "default": []},
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str"},
                    "secret": {"type": "str", "no_log": True},
                    "mode": {"type": "str", "default": "0644"},
                    "owner": {"type": "str", "default": "root"},
                    "group": {"type": "str", "default": "root"},
                    "validate": {"type": "str"},
                },
                "required_one_of": [("content", "secret")],
                "mutually_exclusive": [("content", "secret")],
            },
        },
        supports_check_mode=True,
    )
    role, files, before = module.params["role"], module.params["files"], earlier(module.params["role"])
    manifest = {entry["path"]: row_of(entry) for entry in files}
    new = new_accounts(module.params["groups"], module.params["users"])
    given = {kind: [row["name"] for row in rows] for kind, rows in new.items() if rows}
    given |= {"held": module.params["hold"]} if module.params["hold"] else {}
    made = [folder for folder in module.params["kept"].pop("made", []) if not Path(folder).exists()]
    made += new_folders(files)
    before.get("kept", {}).pop("begun", None)
    ours, theirs = told_apart(module.params["kept"], before.get("kept", {}))
    there = {kind: names for kind, names in (("made", made), ("theirs", theirs)) if names}
    kept = joined(before.get("kept", {}), joined(ours, given | there))
    begin(module, role, before, kept, [entry["path"] for entry in files if not Path(entry["path"]).exists()])
    if module.params["announce"]:
        module.exit_json(changed=kept != before.get("kept", {}))
    make_accounts(module, new)
    if module.params["hold"]:
        do(module, ["apt-mark", "hold", *module.params["hold"]])
    changed, diffs = [f"{kind}: {name}" for kind, names in given.items() for name in names], []
    for entry in files:
        if put(module, entry, data_of(entry)):
            changed.append(entry["path"])
            if entry["content"] is not None:
                diffs.append({"before_header": entry["path"], "before": "", "after": entry["content"]})
    changed += remove_old(module, before.get("files", {}), manifest)
    digest = digest_of(manifest, module.params["facts"])
    whole = {"digest": digest, "facts": module.params["facts"], "files": manifest, "kept": kept}
    if record(module, role, whole) and before != whole:
        changed.append(str(MANIFESTS / f"{role}.json"))
    module.exit_json(
        changed=bool(changed),
        changed_paths=changed,
        diff=diffs,
        inferlift_digests={role: digest},
        inferlift_skipped=module.params["skips"],
    )


def begin(module, role, before, kept, paths):
    """What will be new is told before it is made, so that what a kill leaves can be taken away again."""
    if paths or kept != before.get("kept", {}):
        told = {"digest": "", "facts": module.params["facts"], "files": {}, **before}
        record(module, role, {**told, "kept": joined(kept, {"begun": paths} if paths else {})})


def row_of(entry):
    return {
        "sha256": hashlib.sha256(data_of(entry)).hexdigest(),
        "mode": entry["mode"],
        "owner": entry["owner"],
        "group": entry["group"],
        "secret": entry["content"] is None,
    }


def data_of(entry):
    return (entry["secret"] if entry["content"] is None else entry["content"]).encode()


def told_apart(asked, before):
    """What is asked to be kept without what held something of somebody's before, and the names of that."""
    manifests = [earlier(path.stem).get("kept", {}) for path in MANIFESTS.glob("*.json")]
    named, known = (
        {name for kept in many for kind in ("folders", "stores") for name in kept.get(kind, [])}
        for many in ([asked], manifests)
    )
    new = {name for name in named - known if holds(Path(name))}
    theirs = sorted(new | named & {*before.get("theirs", [])})
    ours = {kind: [name for name in names if name not in theirs] for kind, names in asked.items()}
    return {kind: names for kind, names in ours.items() if names}, theirs


def holds(path):
    return any(path.iterdir()) if path.is_dir() else path.exists()


def new_folders(files):
    """Folders that will be made for the files."""
    parents = {folder for entry in files for folder in Path(entry["path"]).parents}
    return sorted(str(folder) for folder in parents if not folder.exists())


def record(module, role, told):
    """Write the manifest; True when it was another one."""
    place = {
        "path": str(MANIFESTS / f"{role}.json"),
        "mode": "0600",
        "owner": "root",
        "group": "root",
        "validate": None,
    }
    return put(module, place, json.dumps(told, indent=1, sort_keys=True).encode())


def new_accounts(groups, users):
    """Those that are not there yet."""
    return {
        "groups": [row for row in groups if not known(grp.getgrnam, row["name"])],
        "users": [row for row in users if not known(pwd.getpwnam, row["name"])],
    }


def make_accounts(module, new):
    for row in new["groups"]:
        number = ["--gid", str(row["gid"])] if row["gid"] is not None else []
        do(module, ["groupadd", "--system", *number, row["name"]])
    for row in new["users"]:
        own = ["--gid", row["name"]] if known(grp.getgrnam, row["name"]) else ["--user-group"]
        home = ["--no-create-home", "--home-dir", row["home"], "--shell", "/usr/sbin/nologin"]
        do(module, ["useradd", "--system", *own, *home, row["name"]])


def do(module, command):
    if module.check_mode:
        return
    status, out, err = module.run_command(command)
    if status:
        module.fail_json(msg=f"{' '.join(command)}: {(err or out).strip()[-600:]}")


def known(ask, name):
    try:
        ask(name)
    except KeyError:
        return False
    return True


def differs(module, entry, data):
    path = Path(entry["path"])
    if not path.is_file() or path.is_symlink() or path.read_bytes() != data:
        return True
    now = path.stat()
    return (now.st_uid, now.st_gid, now.st_mode & 0o7777) != (*owner_of(module, entry), int(entry["mode"], 8))


def put(module, entry, data):
    """Make the file so; True when anything had to be changed."""
    path = Path(entry["path"])
    if not differs(module, entry, data):
        return False
    if module.check_mode:
        return True
    uid, gid = owner_of(module, entry)
    mode = int(entry["mode"], 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".inferlift-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chown(temporary, uid, gid)
        Path(temporary).chmod(mode)
        if entry["validate"]:
            command = [part.replace("%s", temporary) for part in shlex.split(entry["validate"])]
            status, out, err = module.run_command(command)
            if status:
                module.fail_json(msg=f"{path} would not be valid: {(err or out).strip()[-1200:]}")
        Path(temporary).rename(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def owner_of(module, entry):
    try:
        return pwd.getpwnam(entry["owner"]).pw_uid, grp.getgrnam(entry["group"]).gr_gid
    except KeyError as missing:
        if module.check_mode:  # an earlier task would have made it
            return -1, -1
        module.fail_json(msg=f"{entry['path']}: {missing}")


def earlier(role):
    try:
        before = json.loads((MANIFESTS / f"{role}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return before if isinstance(before, dict) else {}


def joined(before, now):
    return {kind: sorted({*before.get(kind, []), *now.get(kind, [])}) for kind in {*before, *now}}


def remove_old(module, before, manifest):
    gone = [path for path in before if path not in manifest and Path(path).exists()]
    if not module.check_mode:
        for path in gone:
            Path(path).unlink()
    return gone


def digest_of(manifest, facts):
    """Without the content of secrets: this digest leaves the host."""
    public = {
        path: {key: value for key, value in row.items() if not (row["secret"] and key == "sha256")}
        for path, row in manifest.items()
    }
    text = json.dumps({"facts": facts, "files": public}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main()
