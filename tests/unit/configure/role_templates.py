"""A role's template rendered by Ansible itself on this machine, with the role's own defaults and variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from inferlift.profile import ROOT

ROLES = ROOT / "playbooks" / "roles"


def render(folder: Path, role: str, template: str, cases: dict[str, dict[str, object]]) -> dict[str, str]:
    """case -> text. All cases in one run: starting Ansible takes longer than rendering."""
    defaults: dict[str, Any] = yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text())
    settings = {**defaults, "ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"hosts": cases, "vars": {**settings, "role_path": str(ROLES / role)}}}
    path = ROLES / role / "templates" / template
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars_files": [str(file) for file in sorted((ROLES / role / "vars").rglob("*.yml"))],
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": f"{{{{ lookup('ansible.builtin.template', '{path}') }}}}",
                    "dest": f"{folder}/{{{{ inventory_hostname }}}}",
                }
            }
        ],
    }
    (folder / "inventory.json").write_text(json.dumps(inventory))
    (folder / "play.json").write_text(json.dumps([play]))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(folder / "inventory.json")]
    environment = {"ANSIBLE_CONFIG": str(ROOT / "playbooks" / "ansible.cfg"), "ANSIBLE_HOME": str(folder)}
    done = subprocess.run(
        [*command, str(folder / "play.json")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (folder / name).read_text() for name in cases}
