#!/usr/bin/python3
"""Takes away what a role put on a host, by its manifest, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: role_removed
short_description: Undoes a role by the manifest that config_files wrote
description:
  - Stops and disables the services of the role, removes its files, then the packages, folders, users and groups that
    its manifest keeps. A role without a manifest was never here, so nothing is changed.
  - A folder that held something before the role was here is left as it is by then, and a line says so.
  - Drop-ins of services that the system had before are removed and the service is started again as it was.
options:
  role:
    description: Name of the role.
    type: str
    required: true
author:
  - inferlift
"""

EXAMPLES = r"""
- name: Take the model server away
  role_removed:
    role: llamacpp
"""

RETURN = r"""
removed:
  description: What was taken away, one line each.
  returned: always
  type: list
"""

MANIFESTS = Path("/etc/inferlift")
STAMPS = Path("/run/inferlift")
UNITS = Path("/etc/systemd/system")
GONE = 127  # status of a program that is not there
SYSTEM = ("ssh.service", "systemd-journald.service", "systemd-timesyncd.service")  # ran before us, and run on


def main():
    module = AnsibleModule(argument_spec={"role": {"type": "str", "required": True}}, supports_check_mode=True)
    role = module.params["role"]
    manifest = MANIFESTS / f"{role}.json"
    try:
        record = json.loads(manifest.read_text(encoding="utf-8"))
    except FileNotFoundError:
        module.exit_json(changed=False, removed=[], inferlift_removed=[role])
    host = Host(module, record)
    host.stop()
    host.files()
    host.images()
    host.packages()
    host.rest()
    host.empty_folders()
    host.act(f"manifest {manifest}", manifest.unlink)
    if MANIFESTS.is_dir() and not any(MANIFESTS.iterdir()):
        MANIFESTS.rmdir()
    left = [f"{path} held something before role {role} came: it is left as it is" for path in host.theirs()]
    module.exit_json(changed=True, removed=host.removed, inferlift_removed=[role], inferlift_skipped=left)


class Host:
    def __init__(self, module, record):
        self.module, self.record = module, record
        self.kept = record.get("kept", {})
        self.removed = []

    def theirs(self):
        return [path for path in self.kept.get("theirs", []) if Path(path).exists()]

    def act(self, line, do):
        self.removed.append(line)
        if not self.module.check_mode:
            do()

    def run(self, *command):
        return self.module.run_command(list(command))

    def stop(self):
        for unit in self.record["facts"].get("services", []):
            if unit not in SYSTEM:
                self.act(f"service {unit}", lambda u=unit: self.run("systemctl", "disable", "--now", "--quiet", u))
            (STAMPS / f"{unit}.started-with").unlink(missing_ok=True)
        for unit in self.record["facts"].get("masked", []):
            self.act(f"mask of {unit}", lambda u=unit: self.run("systemctl", "unmask", "--quiet", u))

    def empty_folders(self):
        """Those that were made for our files, deepest first, where nothing else is in them."""
        for folder in sorted(map(Path, self.kept.get("made", [])), reverse=True):
            if not self.module.check_mode and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def files(self):
        # `begun`: of a run that was killed while it wrote them
        paths = [Path(path) for path in (*self.record["files"], *self.kept.get("begun", []))]
        for path in paths:
            if path.exists():
                self.act(f"file {path}", path.unlink)
        if self.module.check_mode:
            return
        self.empty_folders()
        if any(path.is_relative_to(UNITS) for path in paths):
            self.run("systemctl", "daemon-reload")
        for unit in set(self.record["facts"].get("services", [])) & set(SYSTEM):
            self.run("systemctl", "try-reload-or-restart", unit)

    def images(self):
        """By podman, while it is there; one that somebody else's container uses stays."""
        # Tags first: what has another name is untagged only, and a digest is no tag.
        for name in sorted(self.kept.get("images", []), key=lambda n: "@" in n):
            if not self.podman("image", "exists", name)[0]:
                self.act(f"image {name}", lambda n=name: self.podman("rmi", n))

    def podman(self, *arguments):
        """(status, output); the status is not 0 where there is no podman."""
        try:
            status, out, _err = self.module.run_command(["podman", *arguments], handle_exceptions=False)
        except OSError:
            return GONE, ""
        return status, out

    def stores(self):
        """What podman filled for us alone: nobody else's image, container or volume is in it."""
        kinds = (("images", "-q"), ("ps", "-a", "-q"), ("volume", "ls", "-q"))
        if not self.kept.get("stores"):
            return
        told = [self.podman(*kind) for kind in kinds]
        if any(out.strip() or status not in (0, GONE) for status, out in told):
            return
        for store in map(Path, self.kept["stores"]):
            if any(store.glob("*")):
                self.act(f"content of {store}", lambda s=store: self.emptied(s))

    def emptied(self, store):
        for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
            point = line.split()[1]
            if Path(point).is_relative_to(store) and Path(point) != store:
                self.run("umount", "--lazy", point)
        for found in store.glob("*"):
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()

    def packages(self):
        held = self.kept.get("held", [])
        if held:
            self.act("holds of " + " ".join(held), lambda: self.run("apt-mark", "unhold", *held))
        names = self.there(self.kept.get("packages", []))
        if not names:
            return
        command = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120", "purge", "--autoremove", *names]

        def purge():
            status, out, err = self.module.run_command(
                command, environ_update={"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
            )
            if status:
                self.module.fail_json(msg=f"{' '.join(command)}: {(err or out).strip()[-800:]}", removed=self.removed)
            self.forgotten()

        self.act("packages " + " ".join(names), purge)

    def forgotten(self):
        """Units that went with their packages and had failed: systemd would call the host degraded for ever."""
        listed = self.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--state=not-found")[1]
        gone = [row.split()[0] for row in listed.splitlines() if "failed" in row.split()[:4]]
        if gone:
            self.run("systemctl", "reset-failed", *gone)

    def there(self, names):
        """Those that dpkg has anything of: a killed run had noted all that it was to install."""
        if not names:
            return []
        form = "--showformat=${Package} ${db:Status-Status}\\n"
        rows = [line.split() for line in self.run("dpkg-query", "--show", form, *names)[1].splitlines()]
        known = {name for name, status in rows if status != "not-installed"}
        return [name for name in names if name.partition(":")[0] in known]

    def rest(self):
        self.stores()
        for folder in self.kept.get("folders", []):
            if Path(folder).is_dir():
                self.act(f"folder {folder}", lambda f=folder: shutil.rmtree(f))
            elif Path(folder).exists():
                self.act(f"file {folder}", Path(folder).unlink)
        for user in self.kept.get("users", []):
            self.act(f"user {user}", lambda u=user: self.run("userdel", u))
        for group in self.kept.get("groups", []):
            self.act(f"group {group}", lambda g=group: self.run("groupdel", g))


if __name__ == "__main__":
    main()
