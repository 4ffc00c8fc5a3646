"""From the plan to what the roles of a model server want. Pure: the same plan gives the same variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from inferlift.artifacts import Batching, Host, Serving
from inferlift.configure.drivers import Driver
from inferlift.configure.variables import FleetVariables
from inferlift.errors import DeclarationError
from inferlift.profile import Profile
from inferlift.profile.servers import servers

SCRATCH = "/srv/scratch"
BEFORE_A_SERVER = ("nvidia", "scratch", "weights")
DCGM_PORT = 9400
RAY_PORTS = ("6379-6384", "11000-11999")  # as playbooks/roles/ray/vars/main.yml names them


def server_roles(kind: str, *, gpu: bool, hosts_per_copy: int = 1) -> list[str]:
    """Roles of a model host, in their order. Without a GPU there is no driver and no local NVMe.

    Raises DeclarationError where one copy is to span hosts and the server cannot.
    """
    if hosts_per_copy > 1 and kind != "vllm":
        raise DeclarationError(f"{kind} cannot spread one copy over {hosts_per_copy} hosts", why="vllm can, on Ray")
    roles: list[str] = list(servers()[kind]["roles"])
    if gpu and "nvidia" not in roles:
        roles = ["nvidia", "scratch", *roles]
    if not gpu:
        roles = [r for r in roles if r not in ("nvidia", "scratch")]
    if hosts_per_copy > 1:
        roles.insert(roles.index(kind), "ray")
    return roles


def server_variables(
    profile: Profile,
    *,
    serving: Serving | None,
    batching: Batching | None,
    driver: Driver | None,
    gpus_per_host: int = 0,
    nvme_mb_per_s: float | None = None,
    nvme_gb: float | None = None,
    requirements: Path | None = None,
    image: str | None = None,
    code: Path | None = None,
    wheels: Path | None = None,
    repository: str = "",
    secrets: Mapping[str, str],
) -> FleetVariables:
    """Variables and secrets of the model hosts' roles, to be laid over those of `fleet_variables`.

    `serving`, `batching`: the plan's (None: the profile's own slots, no batching). `requirements`: a file with hashes
    that pins the server. `image`: in place of it, by digest. `code`: folder of the model's own code. `wheels`: folder
    of the server's. `repository`: NVIDIA's, as a deb822 stanza. `secrets`: what `fleet_secrets` gave. llamacpp gets
    the rest of its own from `fleet_variables`.
    """
    kind, gpu = profile.server.kind, driver is not None
    entry, roles, root = servers()[kind], server_roles(kind, gpu=gpu), SCRATCH if gpu else "/srv"
    brings: list[str] = entry.get("brings", [])
    if brings and not profile.model.source.startswith(tuple(brings)):
        roles.insert(roles.index(next(r for r in entry["roles"] if r not in BEFORE_A_SERVER)), "weights")
    variables: dict[str, object] = {"inferlift_model_roles": roles}
    if driver is not None:
        variables |= driver.variables(repository=repository)
        # 10^9 bytes and 10^6 bytes a second, as the offer's data have them
        variables |= {"scratch_gb_least": 0, "scratch_mb_per_s_planned": nvme_mb_per_s or 0}
        variables["scratch_required"] = bool(nvme_gb)
        variables["monitor_gpu_port"] = DCGM_PORT if repository else 0
    if "weights" in roles:
        variables |= _weights(profile, root)
    known: dict[str, object] = {
        "model": profile.model,
        "server": profile.server,
        "place": _model_path(profile, root),
        "fetched": "weights" in roles,
        "gpu": gpu,
        "gpus": gpus_per_host,
        "copies": serving.copies if serving is not None else 1,
        "tensor": serving.tensor if serving is not None else 1,
        "pipeline": serving.pipeline if serving is not None else 1,
        "settings": batching.settings if batching is not None else {},
        "requirements": str(requirements) if requirements is not None else None,
        "image": image,
        "code": str(code) if code is not None else None,
        "wheels": str(wheels) if wheels is not None else None,
    }
    variables |= _told(entry.get("variables", {}), known)
    if brings == [] and "container" in roles:
        variables["container_upstream"] = f"http://127.0.0.1:{entry['port']}" if entry["unit"] else ""
        variables["container_upstream_unit"] = entry["unit"]
    told = {variable: secrets[name] for variable, name in entry.get("secrets", {}).items()}
    return FleetVariables(variables=variables, secrets=told)


def ray_variables(
    clusters: Sequence[Sequence[Host]], *, gpus_per_host: int, cpus: int | None = None, requirements: Path
) -> dict[str, object]:
    """One copy over several hosts: the first of each cluster leads, and vLLM answers there.

    `cpus`: of a host that Ray may give away; None: the role's own default. The token is a secret of its own.
    """
    rows = [[{"name": h.name, "address": h.address} for h in hosts] for hosts in clusters]
    peers = [h.address for hosts in clusters for h in hosts]
    made: dict[str, object] = {
        "ray_clusters": [{"head": row[0]["name"], "hosts": row} for row in rows],
        "ray_gpus": gpus_per_host,
        "ray_requirements": str(requirements),
        "vllm_executor": "ray",
        "vllm_venv": "/opt/ray/current/venv",
        "base_firewall_more": [{"port": port, "networks": peers} for port in RAY_PORTS],
    }
    return made if cpus is None else made | {"ray_cpus": cpus}


def _told(expressions: Mapping[str, str], known: Mapping[str, object]) -> dict[str, object]:
    """The entry's expressions, worked out over the plan. Sandboxed, as any template from a data file."""
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment()
    found = {name: environment.compile_expression(text)(**known) for name, text in expressions.items()}
    return {name: value for name, value in found.items() if value is not None}


def _weights(profile: Profile, root: str) -> dict[str, object]:
    entry = {"name": "model", "source": _source(profile.model.source)}
    if profile.model.sha256:
        entry["sha256"] = profile.model.sha256
    told = {"weights_folder": f"{root}/weights", "weights_models": [entry]}
    return {**told, "weights_deadline_seconds": profile.server.deadline_s}


def _source(source: str) -> str:
    """The hub's web address of a model is its name there."""
    hub = "https://huggingface.co/"
    return f"hf://{source.removeprefix(hub)}" if source.startswith(hub) and "/resolve/" not in source else source


def _model_path(profile: Profile, root: str) -> str:
    """Where role weights puts it: the folder of a whole model, or its one file."""
    source, home = _source(profile.model.source), f"{root}/weights/model"
    scheme, _, rest = source.partition("://")
    whole = source.endswith("/") or (scheme == "hf" and rest.count("/") == 1)
    return home if whole else f"{home}/{PurePosixPath(rest).name}"
