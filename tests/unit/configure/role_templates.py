"""Templates and variables of playbooks filled by Ansible itself.

In this process: starting ansible-playbook, and its modules once for each case, took a hundred times as long.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template

from inferlift.profile import ROOT

ROLES = ROOT / "playbooks" / "roles"


def render(role: str, template: str, cases: dict[str, dict[str, object]]) -> dict[str, str]:
    """case -> text. A case overrides defaults and is overridden by the role's variables, as an inventory's are."""
    folder = ROLES / role
    defaults = read(folder / "defaults" / "main.yml")
    fixed = {key: value for file in sorted((folder / "vars").rglob("*.yml")) for key, value in read(file).items()}
    lookup = f"lookup('ansible.builtin.template', '{folder / 'templates' / template}')"
    fixed["role_path"] = str(folder)
    return {
        name: filled(lookup, {**defaults, **case, **fixed, "inventory_hostname": name}) for name, case in cases.items()
    }


def filled(expression: str, variables: dict[str, Any]) -> Any:
    return Templar(_loader(), variables=variables).template(trust_as_template(f"{{{{ {expression} }}}}"))


def read(path: Path) -> Any:
    """What a playbook's file holds, with its expressions."""
    return _loader().load_from_file(str(path), trusted_as_template=True)


@functools.cache
def _loader() -> DataLoader:
    init_plugin_loader()
    return DataLoader()
