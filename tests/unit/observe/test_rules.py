"""Every rule of the monitor, unit-tested by promtool with its real windows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import alert_rules
import pytest
import yaml

from inferlift.profile import ROOT

pytestmark = pytest.mark.programs

CASES = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rules")
    alert_rules.write_rules(made, **alert_rules.EVERY)
    return made


def promtool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    programs = alert_rules.programs()
    return subprocess.run(
        [programs.path("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("long", [False, True], ids=["within an hour", "over hours"])
def test_each_case_fires_what_it_should_and_nothing_else(folder: Path, long: bool) -> None:
    """What goes on for hours is looked at every five minutes: what it ends in is the same, in a fifth of the time."""
    tests = [as_promtool_wants(case) for case in CASES["cases"] if (case["minutes"] > 60) is long]
    done = run_cases(folder, tests, every="5m" if long else "1m")
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def test_promtool_says_no_where_a_case_is_wrong(folder: Path) -> None:
    wrong = as_promtool_wants({**CASES["cases"][1], "fires": []})
    assert run_cases(folder, [wrong]).returncode != 0


def test_every_alert_has_a_case_that_fires_it(folder: Path) -> None:
    assert {name for case in CASES["cases"] for name in case["fires"]} == alert_rules.alerts(folder)


def test_a_fleet_without_gpu_price_or_token_target_has_no_rule_for_them(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(alert_rules.render("rules.yml.j2"))
    there = alert_rules.alerts(tmp_path)
    assert not {"CostOverBudget", "SlowFirstTokens", "GpuHot"} & there
    assert promtool("check", "rules", "rules.yml", cwd=tmp_path).returncode == 0


def test_prometheus_takes_the_whole_configuration(tmp_path: Path) -> None:
    hosts = [{"name": "h-1", "address": "192.0.2.1"}]
    given: dict[str, Any] = {
        "monitor_gateways": hosts, "monitor_models": hosts, "monitor_monitors": hosts, "monitor_gpu_port": 9400,
        "monitor_probe_name": "ai.example.test", "monitor_probe_address": "192.0.2.1", "monitor_probe_resolved": True,
        "monitor_probe_resolvers": ["192.0.2.53"],
    }  # fmt: skip
    text = alert_rules.render("prometheus.yml.j2", **given)
    jobs = {row["job_name"] for row in yaml.safe_load(text)["scrape_configs"]}
    assert jobs == {"node", "gateway", "app", "gpu", "probe-new-side", "probe-users", "probe-name", "probe-own"}
    (tmp_path / "prometheus.yml").write_text(text)
    done = promtool("check", "config", "--syntax-only", "prometheus.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def run_cases(folder: Path, tests: list[dict[str, Any]], every: str = "1m") -> subprocess.CompletedProcess[str]:
    body = {"rule_files": ["rules.yml", "rules-gpu.yml"], "evaluation_interval": every, "tests": tests}
    (folder / "cases.yml").write_text(yaml.safe_dump(body))
    return promtool("test", "rules", "cases.yml", cwd=folder)


def as_promtool_wants(case: dict[str, Any]) -> dict[str, Any]:
    minutes = case["minutes"]
    series = {**CASES["healthy"], **case.get("series", {})}
    times = case.get("times", {})
    samples = [{"labels": f'{{alertname="{name}"}}', "value": times.get(name, 1)} for name in sorted(case["fires"])]
    return {
        "name": case["name"],
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values.replace("xN", f"x{minutes}")}
            for name, values in series.items()
            if values is not None
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minutes}m",
                "exp_samples": samples,
            }
        ],
    }


def test_every_dcgm_field_that_rules_read_is_asked_of_the_exporter() -> None:
    import re

    listed = (alert_rules.ROLE.parent / "nvidia" / "files" / "dcgm-counters.csv").read_text()
    asked = set(re.findall(r"^(DCGM_\w+),", listed, re.MULTILINE))
    read = set(re.findall(r"DCGM_\w+", alert_rules.render("rules-gpu.yml.j2", **alert_rules.EVERY)))
    assert read <= asked


def test_the_watch_counts_the_scrapes_of_the_worst_target_alone(tmp_path: Path) -> None:
    """Probes are asked less often: they must not decide how much one failed scrape of the gateway weighs."""
    table = yaml.safe_load((ROOT / "inferlift" / "observe" / "metrics.yaml").read_text())["figures"]
    asked = {name: table[name]["query"].format(window="20s") for name in ("scrapes", "targets_up_share")}
    series = {"gateway": "1 1 0 1 1 1 1 1 1 1", "node": "1 1 1 1 1 1 1 1 1 1", "probe-name": "1 _ _ _ _ 1 _ _ _ _"}
    body = {
        "rule_files": [],
        "evaluation_interval": "2s",
        "tests": [
            {
                "interval": "2s",
                "input_series": [{"series": f'up{{job="{job}"}}', "values": v} for job, v in series.items()],
                "promql_expr_test": [
                    {"expr": asked[name], "eval_time": "18s", "exp_samples": [{"labels": "{}", "value": value}]}
                    for name, value in (("scrapes", 10), ("targets_up_share", 0.9))
                ],
            }
        ],
    }
    (tmp_path / "scrapes.yml").write_text(yaml.safe_dump(body))
    done = promtool("test", "rules", "scrapes.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
