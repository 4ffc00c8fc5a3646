"""Every alert of the monitor, provoked on one real monitor host and received by a webhook; every panel's query there.

Windows and waiting times are shortened (monitor_time_scale): promtool has the real ones in tests/unit/observe. HAProxy,
the app and DCGM are stand-ins that say what exporter_figures.yaml says; node exporter, blackbox exporter, Prometheus
and Alertmanager are real.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_hosts import RoleHosts

from inferlift import configure
from inferlift.observe import Prometheus, dashboards

pytestmark = pytest.mark.lab
HERE = Path(__file__).parent
FIGURES = yaml.safe_load((HERE / "exporter_figures.yaml").read_text())
NAME, THIRD, PASSWORD = "ai.monitor.test", 91, "a-password-of-the-test"
PORTS = {"gateway": 8405, "app": 8443, "gpu": 9400, "front": 8444}


@dataclass
class Trial:
    hosts: RoleHosts
    client: Prometheus
    told: dict[str, str] = field(default_factory=dict)  # alert -> its summary

    def say(self, what: dict[str, dict[str, str]], *, without: tuple[str, ...] = ()) -> None:
        """Let the stand-in exporters say this; `without`: those that say nothing."""
        for name in ("gateway", "app", "gpu"):
            text = "".join(f"{metric} {value}\n" for metric, value in {**FIGURES["well"][name], **what[name]}.items())
            command = f"rm -f /srv/standin/{name}.prom"
            if name not in without:
                command = f"cat >/srv/standin/.new <<'END'\n{text}END\nmv /srv/standin/.new /srv/standin/{name}.prom"
            self.hosts.on("monitor-1", command)

    def firing(self) -> set[str]:
        rows = self.client.query('ALERTS{alertstate="firing"}', datetime.now(UTC))
        return {s.labels["alertname"] for s in rows}

    def until(self, names: set[str], limit_s: float) -> None:
        """Until the webhook was told of all of them."""
        deadline = time.monotonic() + limit_s
        while missing := names - set(self.told):
            assert time.monotonic() < deadline, f"not told of {sorted(missing)}; firing: {sorted(self.firing())}"
            time.sleep(0.5)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("monitor")
    hosts = RoleHosts("monitor", THIRD, folder)
    hosts.raise_hosts(["monitor-1"])
    hosts.hosts = tuple(h.model_copy(update={"role": "monitor"}) for h in hosts.hosts)
    address, told = hosts.hosts[0].address, dict[str, str]()
    (folder / "password").write_text(PASSWORD)
    webhook = _webhook(f"10.244.{THIRD}.1", told)
    (folder / "webhook").write_text(f"http://10.244.{THIRD}.1:{webhook.server_port}/told")
    try:
        _stand_in(hosts, folder)
        named = [{"name": "monitor-1", "address": address}]
        hosts.play(
            {
                "monitor_gateways": named, "monitor_models": named, "monitor_monitors": named, "monitor_gpu_port": 9400,
                "base_monitor_networks": [f"{address}/32"], "base_operator_networks": [f"10.244.{THIRD}.1/32"],
                "monitor_scrape_seconds": 1, "monitor_time_scale": 0.001, "monitor_p95_seconds": 20,
                "monitor_ttft_p95_seconds": 2, "monitor_model_cost_per_hour": 4.0, "monitor_budget_per_hour": 10.0,
                "monitor_joules_per_request": 100, "monitor_probe_name": NAME,
                "monitor_probe_address": f"{address}:{PORTS['front']}",
                "monitor_probe_ca": str(folder / "front" / "ca.pem"),
            },
            ["base", "monitor"],
            secrets={
                "monitor_password": f"file:{folder / 'password'}", "monitor_app_key": f"file:{folder / 'password'}",
                "monitor_metrics_key": f"file:{folder / 'password'}",
                "monitor_webhook_url": f"file:{folder / 'webhook'}",
            },
        )  # fmt: skip
        client = Prometheus(
            f"https://{address}:9090", str(folder / "tls" / "ca.pem"), "inferlift", f"file:{folder / 'password'}"
        )
        yield Trial(hosts, client, told)
    finally:
        webhook.shutdown()
        webhook.server_close()
        hosts.sweep()


def test_nothing_fires_while_all_is_well(trial: Trial) -> None:
    time.sleep(25)  # longer than the longest shortened waiting time
    assert trial.firing() == set()
    assert trial.told == {}
    # one host stands for all three roles here: it is scraped once
    assert set(trial.hosts.bad()) == {"monitor-1: targets of node"}


def test_every_panels_query_returns_a_series(trial: Trial) -> None:
    now, panels = datetime.now(UTC), dashboards.queries()
    empty = [
        f"{panel['dashboard']}: {panel['title']}"
        for panel in panels
        if not trial.client.query(panel["query"].replace("$__rate_interval", "10s"), now)
    ]
    assert len(panels) >= 25
    assert empty == []


def test_each_alert_is_provoked_once_and_told_to_the_webhook(trial: Trial) -> None:
    every = _alerts(trial)
    assert len(every) >= 29
    lower = "sed -i 's/cost:per_hour > 10.0/cost:per_hour > 3/' /etc/prometheus/rules/inferlift.yml"
    trial.hosts.on("monitor-1", f"{lower} && systemctl kill -s HUP prometheus")
    time.sleep(7)  # after a reload Prometheus finds its Alertmanager only with the next round of discovery
    trial.hosts.on("monitor-1", "mkdir -p /srv/full && mount -t tmpfs -o size=20m tmpfs /srv/full")
    _slowly_fuller(trial)
    wrong = {**FIGURES["wrong"], "gpu": {**FIGURES["wrong"]["gpu"], **_xids(79, 31)}}
    trial.say(wrong)
    _front(trial, days=2)
    trial.until(every - {"InstanceDown", "MetricsMissing", "GpuFiguresMissing", "ProbeFailed"}, 90)
    only = {k: v for k, v in FIGURES["well"]["gpu"].items() if "PROF" not in k}
    FIGURES["well"]["gpu"].clear()
    FIGURES["well"]["gpu"].update(only)
    trial.say({"gateway": {}, "app": {}, "gpu": {}}, without=("gateway",))
    trial.hosts.on("monitor-1", "systemctl stop standin-front")
    trial.until(every, 60)
    assert "Xid 79" in trial.told["GpuXid"]
    assert NAME in trial.told["CertificateEnds"]


def _alerts(trial: Trial) -> set[str]:
    text = trial.hosts.on("monitor-1", "cat /etc/prometheus/rules/inferlift*.yml")
    return {line.split(":")[1].strip() for line in text.splitlines() if line.strip().startswith("- alert:")}


def _xids(first: int, second: int) -> dict[str, str]:
    return {f'DCGM_FI_DEV_XID_ERRORS{{gpu="{n}"}}': str(x) for n, x in enumerate((first, second))}


def _slowly_fuller(trial: Trial) -> None:
    """A disk that is 60 % full and takes 0.1 MB a second: full within the shortened day."""
    fill = "dd if=/dev/zero of=/srv/full/a bs=1M count=12 status=none; for i in $(seq 70); do "
    fill += "dd if=/dev/zero of=/srv/full/$i bs=100k count=1 status=none; sleep 0.7; done; "
    fill += "dd if=/dev/zero of=/srv/full/b bs=1M status=none"
    trial.hosts.on("monitor-1", f"systemd-run --unit fuller sh -c '{fill.replace('$', '$$')}'")


def _stand_in(hosts: RoleHosts, folder: Path) -> None:
    """Exporters, and a front with the users' name, that answer before the role's own files are there."""
    (folder / "front").mkdir()
    hosts.on("monitor-1", "mkdir -p /srv/standin")
    hosts.put("monitor-1", HERE / "standin_exporter.py", "/srv/standin/exporter.py")
    trial = Trial(hosts, None)  # type: ignore[arg-type]
    trial.say({"gateway": {}, "app": {}, "gpu": {}})
    ports = " ".join(f"{port}={name}" for name, port in PORTS.items() if name != "front")
    hosts.on("monitor-1", "mkdir -p /etc/inferlift/tls")
    for kind in ("pem", "key"):
        hosts.put("monitor-1", folder / "tls" / f"monitor-1.{kind}", f"/etc/inferlift/tls/host.{kind}")
    hosts.on("monitor-1", f"systemd-run --unit standin python3 /srv/standin/exporter.py /srv/standin {ports}")
    _front(trial, days=300)


def _front(trial: Trial, days: float) -> None:
    """The users' name, with a certificate that lasts so many days."""
    folder = trial.hosts.folder / "front"
    ca = configure.ensure_ca(folder, "the monitor's test")
    pair = folder / f"pair-{days}"
    pair.mkdir()
    certificate, key = configure.issue(ca, pair, NAME, dns=(NAME,), days=days)
    trial.hosts.put("monitor-1", Path(certificate), "/srv/standin/front.pem")
    trial.hosts.put("monitor-1", Path(key), "/srv/standin/front.key")
    trial.hosts.on(
        "monitor-1",
        "touch /srv/standin/front.prom; systemctl stop standin-front 2>/dev/null; systemctl reset-failed; "
        f"systemd-run --unit standin-front python3 /srv/standin/exporter.py /srv/standin {PORTS['front']}=front",
    )


def _webhook(address: str, told: dict[str, str]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                if alert["status"] == "firing":
                    told.setdefault(alert["labels"]["alertname"], alert["annotations"]["summary"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer((address, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
