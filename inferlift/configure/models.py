"""A fleet's model hosts: which roles they get and with what, from the profile, the plan and the hosts made. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from inferlift.artifacts import Fleet, Host, Offer, Serving, Sizing
from inferlift.configure.drivers import Driver, driver_for
from inferlift.configure.minima import minima
from inferlift.configure.servers import ray_variables, server_roles, server_variables
from inferlift.configure.variables import FleetVariables
from inferlift.errors import DeclarationError
from inferlift.profile import Profile

UBUNTU_OF_AWS = "22.04"  # of both images that `aws.image` names


def hosts_per_copy(fleet: Fleet) -> int:
    """Hosts that one copy of the model is spread over."""
    return fleet.aws.nodes_per_replica if fleet.aws is not None else 1


def clusters(fleet: Fleet) -> list[tuple[Host, ...]]:
    """The model hosts, a tuple for each copy of the model: its first host leads, and answers the gateway.

    Raises DeclarationError where the hosts of a place do not add up to whole copies.
    """
    size, found = hosts_per_copy(fleet), []
    for site, group in groupby(sorted(fleet.by_role("model"), key=lambda h: h.site), key=lambda h: h.site):
        hosts = tuple(group)
        if len(hosts) % size:
            raise DeclarationError(
                f"{len(hosts)} model hosts of {site} are no whole number of copies", why=f"a copy takes {size} hosts"
            )
        found += [hosts[i : i + size] for i in range(0, len(hosts), size)]
    return found


def model_variables(
    profile: Profile,
    fleet: Fleet,
    sizing: Sizing | None,
    *,
    offer: Offer | None = None,
    secrets: Mapping[str, str],
    root: Path,
    wheels: Path | None = None,
) -> FleetVariables:
    """What the roles of the model hosts are told, to be laid over `fleet_variables`.

    `sizing`: the plan; its GPU decides on the driver and on local disks. `offer`: of the plan's choice, for its disks.
    `root`: what paths in the profile begin at. `wheels`: folder of the server's own. Raises DeclarationError
    where the profile lacks what its server is installed from.
    """
    server, size = profile.server, hosts_per_copy(fleet)
    serving = sizing.serving if sizing is not None else None
    gpus = _gpus_per_host(serving, size)
    _installable(profile, gpu=gpus > 0)
    driver = _driver(fleet, serving, gpus, vendor=server.driver_repository is not None)
    requirements = _place(root, server.requirements)
    made = server_variables(
        profile,
        serving=serving,
        batching=sizing.batching if sizing is not None else None,
        driver=driver,
        gpus_per_host=gpus,
        nvme_mb_per_s=offer.nvme_mb_s if offer is not None else None,
        nvme_gb=offer.nvme_gb if offer is not None else None,
        requirements=requirements,
        image=server.image,
        code=_place(root, server.code),
        wheels=wheels,
        repository=_stanza(root, server.driver_repository),
        secrets=secrets,
    )
    made = FleetVariables({**made.variables, **minima(sizing)}, made.secrets)
    if size == 1:
        return made
    over = _spread(fleet, gpus, requirements)
    roles = server_roles(server.kind, gpu=driver is not None, hosts_per_copy=size)
    return FleetVariables(
        variables={**made.variables, **over, "inferlift_model_roles": roles},
        secrets={**made.secrets, "ray_token": secrets["cluster_token"]},
    )


def _gpus_per_host(serving: Serving | None, hosts: int) -> int:
    if serving is None or serving.gpu is None:
        return 0
    return max(1, serving.copies * serving.tensor * serving.pipeline // hosts)


def _driver(fleet: Fleet, serving: Serving | None, gpus: int, *, vendor: bool) -> Driver | None:
    if serving is None or serving.gpu is None:
        return None
    if fleet.aws is not None:
        return driver_for(serving.gpu, gpus, distribution="ubuntu", release=UBUNTU_OF_AWS, vendor=vendor)
    return driver_for(serving.gpu, gpus, vendor=vendor)


def _installable(profile: Profile, *, gpu: bool) -> None:
    server = profile.server
    if server.kind == "vllm" and not (server.image or server.requirements):
        raise DeclarationError(
            "nothing says which vLLM is installed",
            why="server.kind is vllm, and neither server.image nor server.requirements is given",
            next_command="give server.image (by digest) or server.requirements (a file with hashes that pins vllm)",
        )
    if server.kind == "triton" and gpu and not server.image:
        raise DeclarationError(
            "nothing says which Triton is installed",
            why="the wheel of Triton has no CUDA: on GPUs it runs from an image",
            next_command="give server.image (by digest)",
        )


def _place(root: Path, path: str | None) -> Path | None:
    return None if path is None else root / path


def _stanza(root: Path, repository: str | None) -> str:
    if repository is None:
        return ""
    try:
        return (root / repository).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DeclarationError(f"server.driver_repository {repository} cannot be read", why=str(error)) from None


def _spread(fleet: Fleet, gpus: int, requirements: Path | None) -> dict[str, object]:
    """One copy over several hosts, so on Ray."""
    if requirements is None:
        raise DeclarationError(
            "one copy spans hosts, which takes Ray beside vLLM",
            why="server.requirements is not given",
            next_command="give server.requirements: a file with hashes that pins vllm and ray",
        )
    return ray_variables(clusters(fleet), gpus_per_host=gpus, requirements=requirements)
