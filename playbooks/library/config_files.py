#!/usr/bin/python3
"""All files of one role in one call: written whole or not at all, checked before they replace anything."""

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
      - Lists of what the role has put on the host besides files (C(packages), C(folders), C(users), C(groups)). Each
        is joined with what the earlier manifest says, so that it can be taken away again; the digest leaves it out.
      - C(made) names folders that the role makes where there are none; those that are there already are not kept.
    type: dict
    default: {}
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
    role, files = module.params["role"], module.params["files"]
    changed, manifest, diffs, made = [], {}, [], []
    for entry in files:
        data = (entry["secret"] if entry["content"] is None else entry["content"]).encode()
        if put(module, entry, data, made):
            changed.append(entry["path"])
            if entry["content"] is not None:
                diffs.append({"before_header": entry["path"], "before": "", "after": entry["content"]})
        manifest[entry["path"]] = {
            "sha256": hashlib.sha256(data).hexdigest(),
            "mode": entry["mode"],
            "owner": entry["owner"],
            "group": entry["group"],
            "secret": entry["content"] is None,
        }
    changed += remove_old(module, role, manifest)
    digest = digest_of(manifest, module.params["facts"])
    made += [folder for folder in module.params["kept"].pop("made", []) if not Path(folder).exists()]
    kept = joined(earlier(role).get("kept", {}), {**module.params["kept"], **({"made": made} if made else {})})
    record = json.dumps(
        {"digest": digest, "facts": module.params["facts"], "files": manifest, "kept": kept}, indent=1, sort_keys=True
    )
    place = {
        "path": str(MANIFESTS / f"{role}.json"),
        "mode": "0600",
        "owner": "root",
        "group": "root",
        "validate": None,
    }
    if put(module, place, record.encode()):
        changed.append(place["path"])
    module.exit_json(changed=bool(changed), changed_paths=changed, diff=diffs, inferlift_digests={role: digest})


def put(module, entry, data, made=None):
    """Make the file so; True when anything had to be changed. Folders that were made for it are told in `made`."""
    path = Path(entry["path"])
    same = path.is_file() and not path.is_symlink() and path.read_bytes() == data
    uid, gid = owner_of(module, entry)
    mode = int(entry["mode"], 8)
    if same:
        now = path.stat()
        if (now.st_uid, now.st_gid, now.st_mode & 0o7777) == (uid, gid, mode):
            return False
    if module.check_mode:
        return True
    if made is not None:
        made += [str(folder) for folder in (path.parent, *path.parent.parents) if not folder.exists()]
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


def remove_old(module, role, manifest):
    before = earlier(role).get("files", {})
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
