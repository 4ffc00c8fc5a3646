"""The monitor role's rules as Ansible would write them, and Debian's Prometheus without installing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import yaml

from inferlift.dns import loopback
from inferlift.profile import ROOT
from inferlift.toolchain import store

ROLE = ROOT / "playbooks" / "roles" / "monitor"
PACKAGES = ("prometheus", "prometheus-alertmanager", "prometheus-blackbox-exporter")
# Thresholds for the cases in rules.yaml: every alert is there.
EVERY = {
    "monitor_gpu_port": 9400,
    "monitor_p95_seconds": 20,
    "monitor_ttft_p95_seconds": 2,
    "monitor_model_cost_per_hour": 4.0,
    "monitor_budget_per_hour": 10.0,
    "monitor_joules_per_request": 100,
}


def programs() -> loopback.Programs:
    return loopback.programs(store.cache() / "monitor-programs", PACKAGES)


def render(name: str, **changes: Any) -> str:
    """A template of the role with its defaults, its data and these variables."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False)
    values = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text()) | changes
    for key, value in yaml.safe_load((ROLE / "vars" / "main.yml").read_text()).items():
        if key != "monitor_files":
            values[key] = _filled(environment, value, values)
    return environment.from_string((ROLE / "templates" / name).read_text()).render(values)


def write_rules(folder: Path, **changes: Any) -> list[Path]:
    paths = [folder / "rules.yml", folder / "rules-gpu.yml"]
    for path in paths:
        path.write_text(render(f"{path.name}.j2", **changes))
    return paths


def alerts(folder: Path) -> set[str]:
    """Names of all alerts in the rules written there."""
    groups = [g for path in folder.glob("rules*.yml") for g in yaml.safe_load(path.read_text())["groups"]]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}


def _filled(environment: jinja2.Environment, value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {k: _filled(environment, v, values) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(environment, v, values) for v in value]
    if isinstance(value, str) and value.startswith("{{ "):
        return environment.compile_expression(value[2:-2])(values)
    return value
