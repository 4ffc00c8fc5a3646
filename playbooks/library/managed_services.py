#!/usr/bin/python3
"""Services that run with the files they have now, also when an earlier run was killed between write and restart."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: managed_services
short_description: Starts, enables, restarts and masks systemd units by the content of their files
description:
  - A service is restarted (or reloaded) when the files it depends on differ from those it was last started with here
    (remembered under C(/run/inferlift)), unless it was started after the newest of them was written, as at boot. So a
    run that was killed between writing and restarting is made good by the next, and a reboot changes nothing.
options:
  services:
    description: Units to run.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Unit name.
        type: str
        required: true
      files:
        description: Files whose content the running service depends on; the unit's own files belong here.
        type: list
        elements: path
        default: []
      proof:
        description: Command that succeeds while what the unit set up is in force; when it fails, the unit is restarted.
        type: list
        elements: str
        default: []
      reload:
        description: Reload in place of restart where the service runs and no unit file changed.
        type: bool
        default: false
  masked:
    description: Units that must not run, nor be started by anything.
    type: list
    elements: str
    default: []
  validator:
    description: The role's validator and its arguments, run once the services do; the module fails where it says no.
    type: list
    elements: str
    default: []
author:
  - inferlift
"""

EXAMPLES = r"""
- name: Run HAProxy with these files
  managed_services:
    services:
      - name: haproxy.service
        files: [/etc/haproxy/haproxy.cfg]
        reload: true
"""

RETURN = r"""
actions:
  description: What was done, one line each.
  returned: always
  type: list
"""

STAMPS = Path("/run/inferlift")
UNITS = "/etc/systemd/system/"
CONTROL = "/dev/nvidiactl"  # there while the driver is loaded
PROPERTIES = ("ActiveState", "UnitFileState", "NeedDaemonReload", "ActiveEnterTimestampMonotonic")


def main():
    module = AnsibleModule(
        argument_spec={
            "services": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "files": {"type": "list", "elements": "path", "default": []},
                    "proof": {"type": "list", "elements": "str", "default": []},
                    "reload": {"type": "bool", "default": False},
                },
            },
            "masked": {"type": "list", "elements": "str", "default": []},
            "validator": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    host = Host(module)
    host.mask(module.params["masked"])
    host.run(module.params["services"])
    if module.params["validator"] and not module.check_mode:
        host.validate(module.params["validator"])
    module.exit_json(changed=bool(host.actions), actions=host.actions)


class Host:
    def __init__(self, module):
        self.module = module
        self.actions = []

    def mask(self, units):
        if not units:
            return
        states = self.show(units, "LoadState")
        wanted = [u for u in units if states[u].get("LoadState") not in ("masked", "not-found")]
        if wanted:
            self.act("mask " + " ".join(wanted), ["systemctl", "mask", "--now", *wanted])

    def run(self, services):
        if not services:
            return
        due, reload_units = [], False
        states = self.show([s["name"] for s in services], *PROPERTIES)
        for service in services:
            state = states[service["name"]]
            units, others = stamps_of(service["files"])
            fresh = started_after(state, service["files"])
            before = [units, others] if fresh else started_with(self.stamp(service), service["files"])
            units_changed = before[:1] != [units]
            reload_units = reload_units or units_changed or state.get("NeedDaemonReload") == "yes"
            active = state.get("ActiveState") == "active"
            if units_changed or before[1:] != [others] or not active or not self.proved(service):
                soft = service["reload"] and not units_changed and active
                due.append((service, "reload" if soft else "restart", units, others))
        if reload_units:
            self.reload()
        disabled = [s["name"] for s in services if states[s["name"]].get("UnitFileState") not in ("enabled", "static")]
        if disabled:
            self.act("enable " + " ".join(disabled), ["systemctl", "enable", "--no-reload", "--quiet", *disabled])
        for service, verb, units, others in due:
            name = service["name"]
            if not self.module.check_mode and verb == "restart":
                self.module.run_command(["systemctl", "reset-failed", name])
            self.act(verb + " " + name, ["systemctl", verb, name], journal=name)
            if not self.module.check_mode:
                STAMPS.mkdir(parents=True, exist_ok=True)
                self.stamp(service).write_text(f"{units} {others}", encoding="utf-8")

    def validate(self, command):
        status, out, err = self.module.run_command(command)
        if status:  # its answer names each check that said no
            self.module.fail_json(msg=f"{Path(command[0]).name} says no", stdout=out, stderr=err, actions=self.actions)

    def reload(self):
        """Reading units again takes the GPUs from running containers: those end before it, and are started after it."""
        holders = [unit for unit in gpu_containers(UNITS, CONTROL) if self.active(unit)]
        for unit in holders:
            self.act(f"stop {unit}, which would lose its GPUs", ["systemctl", "stop", unit])
        self.act("daemon-reload", ["systemctl", "daemon-reload"])
        for unit in holders:
            self.act(f"start {unit}", ["systemctl", "start", unit], journal=unit)

    def active(self, unit):
        return self.module.run_command(["systemctl", "is-active", "--quiet", unit])[0] == 0

    def proved(self, service):
        return not service["proof"] or self.module.run_command(service["proof"])[0] == 0

    def show(self, units, *properties):
        """unit -> property -> value, by one call."""
        command = ["systemctl", "show", "--property=Id," + ",".join(properties), "--", *units]
        status, out, err = self.module.run_command(command)
        if status:
            self.module.fail_json(msg="systemctl show: " + err.strip())
        blocks = [dict(line.split("=", 1) for line in b.splitlines() if "=" in line) for b in out.split("\n\n")]
        # In the order asked for: an alias answers with another Id.
        return dict(zip(units, [b for b in blocks if b], strict=True))

    def act(self, line, command, journal=None):
        self.actions.append(line)
        if self.module.check_mode:
            return
        status, out, err = self.module.run_command(command)
        if status:
            last = ""
            if journal:
                last = self.module.run_command(["journalctl", "-u", journal, "-n", "12", "-o", "cat", "--no-pager"])[1]
            self.module.fail_json(msg=f"{line} failed: {(err or out).strip()}\n{last.strip()[-1500:]}")

    @staticmethod
    def stamp(service):
        return STAMPS / f"{service['name']}.started-with"


def gpu_containers(units, control):
    """Units that run a container with GPUs; none on a host whose driver is not loaded."""
    if not Path(control).exists():
        return []
    own = [path for path in Path(units).glob("*.service") if path.is_file()]
    return sorted(path.name for path in own if "nvidia.com/gpu" in path.read_text(encoding="utf-8", errors="replace"))


def stamps_of(files):
    """Digests of the unit files and of the other files, as they are now."""
    parts = {True: hashlib.sha256(), False: hashlib.sha256()}
    for path in files:
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError:
            content = b""  # in check mode, files that would be written
        parts[path.startswith(UNITS)].update(path.encode() + b"\0" + hashlib.sha256(content).digest())
    return parts[True].hexdigest(), parts[False].hexdigest()


def started_after(state, files):
    """Was the unit started after the newest of its files was written? Then it runs with them."""
    if state.get("ActiveState") != "active" or not all(Path(f).exists() for f in files):
        return False
    started = time.time() - time.monotonic() + int(state.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    return all(Path(f).stat().st_mtime < started for f in files)


def started_with(stamp, files):
    """What the stamp says. Where a file that is no unit was written after it the service may run with another by now:
    somebody changed it and had it loaded, and it was put back since."""
    try:
        told, at = stamp.read_text(encoding="utf-8").split(), stamp.stat().st_mtime
    except FileNotFoundError:
        return []
    newer = [f for f in files if not f.startswith(UNITS) and Path(f).exists() and Path(f).stat().st_mtime > at]
    return told[:1] if newer else told


if __name__ == "__main__":
    main()
