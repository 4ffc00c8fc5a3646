"""From the declaration and the fleet to what `site.yml` wants: variables, and secrets as references."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import secrets as randomness
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlift.artifacts import Contract, Fleet, Host, Images
from inferlift.configure.certificates import Ca, ensure_ca, issue
from inferlift.errors import DeclarationError
from inferlift.profile import Profile

PLAYBOOK = "site.yml"
SYNTHETIC_HEADER = "X-Inferlift-Synthetic"  # with the fleet's synthetic key: our own request, no user
SECRETS = ("app_key", "model_key", "synthetic_key", "metrics_key", "monitor_password", "cluster_token")
MONITOR_USER = "inferlift"
MONITOR_PORT = 9090
HEALTH_PATH = "/inferlift-health"  # of a gateway at one of several sites: yes or no for Route 53, which has no key
APP_PORT = 8443
HOURS_A_MONTH = 730
CONTEXT_MARGIN = 256  # tokens that the app adds: its system prompt and a piece of a document
CONTEXT_STEP = 256
IN_MEMORY_BYTES = 1_000_000  # of a body: the gateway's buffers hold a little more


@dataclass(frozen=True)
class FleetVariables:
    variables: dict[str, object]
    secrets: dict[str, str]  # variable -> reference

    def over(self, other: FleetVariables) -> FleetVariables:
        """These laid over the other ones."""
        return FleetVariables({**other.variables, **self.variables}, {**other.secrets, **self.secrets})


def fleet_secrets(folder: Path) -> dict[str, str]:
    """References to the fleet's own keys and password, made once (random, files 0600 in `folder`)."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return {name: _secret(folder / name) for name in SECRETS}


def fleet_certificates(folder: Path, fleet: Fleet) -> Ca:
    """The fleet's CA and, in the same folder, HOST.pem and HOST.key of every host; renewed when due."""
    ca = ensure_ca(folder, f"inferlift fleet {fleet.label}"[:64])
    for host in fleet.hosts:
        address = str(ipaddress.ip_address(host.address)) if _is_address(host.address) else None
        dns = [host.name, "localhost", *([] if address else [host.address])]
        issue(ca, folder, host.name, dns=dns, ips=[*([address] if address else []), "127.0.0.1"])
    return ca


def fleet_variables(
    profile: Profile,
    fleet: Fleet,
    contract: Contract,
    images: Images,
    *,
    secrets: Mapping[str, str],
    tls_folder: Path,
    wheels: Path | None,
    workers: Sequence[str] = (),
    operator_networks: Sequence[str] | None = None,
    scrape_seconds: int | None = None,
    resolvers: Sequence[str] = (),
    model_cost_per_hour: float | None = None,
) -> FleetVariables:
    """Pure: the same arguments give the same variables.

    `secrets` is what `fleet_secrets` gave, `tls_folder` what `fleet_certificates` filled, `wheels` the folder with
    llama.cpp's wheels. `workers`: names of model hosts that hold a part of a copy and answer nobody.
    `operator_networks`: who may read the monitor; by default nobody where it is reached by SSH through another host,
    the first address of the fleet's subnet (where the operator's traffic comes from in the lab), else anybody with
    the password. `resolvers`: name servers that the
    monitor asks for the users' name. `model_cost_per_hour`: of one model host, in the budget's currency; None is
    unknown, and then nothing is said of costs.
    """
    gateways, models, monitors = (fleet.by_role(role) for role in ("gateway", "model", "monitor"))
    if not gateways or not models or not monitors:
        raise DeclarationError(
            "a fleet needs a gateway, a model host and a monitor",
            why=f"it has {len(gateways)}, {len(models)} and {len(monitors)}",
        )
    if operator_networks is None:
        anybody = [_first_address(fleet.subnet)] if fleet.subnet else ["0.0.0.0/0"]
        operator_networks = [] if monitors[0].jump is not None else anybody
    serving = [h for h in models if h.name not in workers]
    variables: dict[str, object] = {
        "base_tls_directory": str(tls_folder),
        "base_gateway_networks": _networks(gateways),
        "base_monitor_networks": _networks(monitors),
        "base_operator_networks": list(operator_networks),
        "gateway_certificate": contract.certificate,
        "gateway_key_header": contract.key_header,
        "gateway_routes": [{"path": r.path, "upstream": r.upstream} for r in contract.routes],
        # a gateway prefers the hosts of its own site
        "gateway_backends": [{"name": h.name, "address": h.address, "site": h.site} for h in serving],
        "gateway_backend_port": APP_PORT,
        # what does not fit into the gateway's buffers is gathered on its disk first
        "gateway_max_body_bytes": min(contract.max_body_bytes, IN_MEMORY_BYTES),
        "gateway_upload_bytes": contract.max_body_bytes if contract.max_body_bytes > IN_MEMORY_BYTES else 0,
        "gateway_health_path": HEALTH_PATH if fleet.aws is not None and len(fleet.aws.sites) > 1 else "",
        "gateway_slots": profile.server.slots,
        "gateway_queue_max": queue_max(profile),
        "gateway_queue_seconds": queue_seconds(profile),
        "gateway_request_seconds": round(profile.load.request_timeout_s),
        "gateway_rate_per_source": 5 * queue_max(profile),
        "gateway_max_connections": 2 * queue_max(profile) + 200,
        "monitor_user": MONITOR_USER,
        "monitor_gateways": _named(gateways),
        "monitor_models": _named(serving),
        "monitor_workers": _named([h for h in models if h not in serving]),
        "monitor_monitors": _named(monitors),
        "monitor_app_port": APP_PORT,
        "monitor_scrape_seconds": scrape_seconds or (2 if profile.lab is not None else 15),
        "monitor_queue_length": profile.requests.in_flight_peak,
        "monitor_probe_name": contract.name,
        "monitor_probe_path": contract.routes[0].path,
        "monitor_probe_address": f"{fleet.endpoints[0].address}:{fleet.endpoints[0].port}",
        "monitor_probe_ca": contract.ca or "",
        "monitor_probe_resolvers": list(resolvers),
        # a lab's name is not known to the world's resolvers
        "monitor_probe_resolved": profile.lab is None,
        "monitor_currency": profile.budget.currency,
    }
    if profile.targets.p95_ttft_ms is not None:
        variables["monitor_ttft_p95_seconds"] = profile.targets.p95_ttft_ms / 1000
    if profile.targets.error_share:
        variables["monitor_error_share"] = profile.targets.error_share
    if model_cost_per_hour:
        variables["monitor_model_cost_per_hour"] = model_cost_per_hour
    if profile.budget.monthly is not None:
        variables["monitor_budget_per_hour"] = profile.budget.monthly / HOURS_A_MONTH
    told: dict[str, str] = {}
    if profile.server.kind == "llamacpp":
        told = {"llamacpp_key": secrets["model_key"]}
        variables |= {
            "llamacpp_wheels": str(wheels),
            "llamacpp_slots": profile.server.slots,
            "llamacpp_threads": profile.server.threads,
            "llamacpp_context": context_per_slot(profile),
        }
        if profile.model.sha256:
            variables["llamacpp_model_sha256"] = profile.model.sha256
    if profile.targets.p95_total_ms is not None:
        variables["monitor_p95_seconds"] = profile.targets.p95_total_ms / 1000
    if images.images:
        image = images.images[0]
        # with a registry every model host has pulled it by then
        archive = image.archive if profile.registry is None else ""
        variables |= {"container_image_archive": archive, "container_image_digest": image.digest}
        if contract.routes:
            variables["container_check_route"] = contract.routes[0].upstream
        # what the old side took is not refused by the app
        variables["container_environment"] = {"APP_MAX_BODY_BYTES": str(contract.max_body_bytes)}
    return FleetVariables(
        variables=variables,
        secrets={
            **told,
            "container_key": secrets["app_key"],
            "container_upstream_key": secrets["model_key"],
            "gateway_certificate_key": contract.certificate_key,
            "gateway_key": contract.key,
            "gateway_app_key": secrets["app_key"],
            "gateway_synthetic_key": secrets["synthetic_key"],
            "gateway_metrics_key": secrets["metrics_key"],
            "monitor_password": secrets["monitor_password"],
            "monitor_app_key": secrets["app_key"],
            "monitor_metrics_key": secrets["metrics_key"],
            **({"monitor_webhook_url": profile.watch.webhook} if profile.watch.webhook else {}),
        },
    )


def context_per_slot(profile: Profile) -> int:
    """Tokens a slot must hold: the longest usual request, its reply and what the app adds; a multiple of 256."""
    needed = profile.requests.input_tokens_p95 + profile.requests.output_tokens + CONTEXT_MARGIN
    return min(-(-needed // CONTEXT_STEP) * CONTEXT_STEP, profile.model.context)


def queue_max(profile: Profile) -> int:
    """Requests that may wait: the peak in flight and a fifth more; what comes on top gets 429."""
    return profile.requests.in_flight_peak + profile.requests.in_flight_peak // 5 + 50


def queue_seconds(profile: Profile) -> int:
    """The last of a full queue must still be served: the declared deadline, at least the time of one request."""
    return round(max(profile.targets.acceptance_deadline_s or 300, profile.load.request_timeout_s))


def _secret(path: Path) -> str:
    if not path.is_file() or not path.read_text().strip():
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(randomness.token_urlsafe(32))
        temporary.replace(path)
    return f"file:{path.resolve()}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _networks(hosts: Sequence[Host]) -> list[str]:
    return [str(ipaddress.ip_network(h.address)) for h in hosts]


def _named(hosts: Sequence[Host]) -> list[dict[str, str]]:
    return [{"name": h.name, "address": h.address} for h in hosts]


def _first_address(subnet: str) -> str:
    return str(ipaddress.ip_network(str(next(ipaddress.ip_network(subnet).hosts()))))
