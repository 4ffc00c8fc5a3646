"""Which NVIDIA driver a host gets: branch, kind of modules, whose packages, and what joins its GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from inferlift.errors import DeclarationError

TABLE = Path(__file__).with_name("drivers.yaml")
BOARD = 8  # GPUs of one board behind switches

Flavour = Literal["open", "proprietary"]
Origin = Literal["debian", "ubuntu", "nvidia"]
Fabric = Literal["none", "nvswitch", "nvlink5"]


@dataclass(frozen=True)
class Driver:
    """What role nvidia is told, and why."""

    gpu: str
    gpus: int
    match: str  # part of nvidia-smi's name of the GPU
    branch: int
    flavour: Flavour
    origin: Origin
    fabric: Fabric
    cuda: str | None  # version that must run
    why: tuple[str, ...]

    def variables(self, *, repository: str = "") -> dict[str, object]:
        return {
            "nvidia_gpu": self.gpu,
            "nvidia_gpus": self.gpus,
            "nvidia_gpu_match": self.match,
            "nvidia_branch": self.branch,
            "nvidia_flavour": self.flavour,
            "nvidia_origin": self.origin,
            "nvidia_fabric": self.fabric,
            "nvidia_cuda_least": self.cuda or "",
            "nvidia_repository": repository,
        }


def driver_for(
    gpu: str,
    gpus: int = 1,
    *,
    distribution: str = "debian",
    release: str = "12",
    cuda: str | None = None,
    vendor: bool = False,
) -> Driver:
    """The driver for `gpus` GPUs of one kind in a host.

    `cuda`: version that the images and servers were built with, as "12.8". `vendor`: NVIDIA's own repository may be
    used. Raises DeclarationError where the GPU is unknown, or no archive that may be used has a driver for it.
    """
    row = _table()["gpus"].get(gpu)
    if row is None:
        raise DeclarationError(
            f"no driver is known for {gpu}", why=f"known: {', '.join(_table()['gpus'])}", next_command=_add(gpu)
        )
    generation = _table()["generations"][row["capability"]]
    fabric: Fabric = row.get("fabric", "none") if gpus >= BOARD else "none"
    least, why = _least(gpu, generation, cuda)
    origin, branch, said = _branch(least, fabric != "none", distribution, release, vendor, gpu)
    flavour = _flavour(generation, branch)
    why += [said, f"{flavour} kernel modules: {generation['name']} takes {' or '.join(generation['flavours'])}"]
    if fabric != "none":
        why.append(f"{gpus} GPUs are joined by {fabric}: a Fabric Manager of the driver's very version must run")
    return Driver(gpu, gpus, row["match"], branch, flavour, origin, fabric, cuda, tuple(why))


def _least(gpu: str, generation: dict[str, Any], cuda: str | None) -> tuple[int, list[str]]:
    least = int(generation["least"])
    why = [f"{gpu} ({generation['name']}) needs branch {least} or later"]
    if cuda is not None:
        family = int(cuda.split(".")[0])
        known = _table()["cuda"]
        if family not in known:
            raise DeclarationError(f"CUDA {cuda} is not known", why=f"families known: {', '.join(map(str, known))}")
        why.append(f"CUDA {cuda} needs branch {known[family]} or later")
        least = max(least, int(known[family]))
    return least, why


def _branch(
    least: int, fabric: bool, distribution: str, release: str, vendor: bool, gpu: str
) -> tuple[Origin, int, str]:
    """The vendor's repository only where the distribution's own archive has nothing that will do."""
    archive = next(
        (a for a in _table()["archives"] if (a["distribution"], a["release"]) == (distribution, release)), None
    )
    if archive is not None and (archive["fabric"] or not fabric):
        for branch in archive["branches"]:
            if branch >= least:
                return distribution, branch, f"{distribution} {release} has branch {branch}"  # type: ignore[return-value]
    if vendor:
        branch = next(b for b in _table()["vendor"]["branches"] if b >= least)
        return "nvidia", branch, f"{distribution} {release} has none that will do: branch {branch} from NVIDIA"
    has = "no driver of its own" if archive is None else "branch " + ", ".join(map(str, archive["branches"]))
    without = "" if archive is None or archive["fabric"] else " and no Fabric Manager"
    raise DeclarationError(
        f"{distribution} {release} has no driver for {gpu}",
        why=f"it has {has}{without}; needed: branch {least}{' with a Fabric Manager' if fabric else ''}",
        next_command="give server.driver_repository (NVIDIA's own, as a deb822 stanza), or an image with a driver",
    )


def _flavour(generation: dict[str, Any], branch: int) -> Flavour:
    flavours: list[Flavour] = generation["flavours"]
    if len(flavours) == 1 or branch >= _table()["open_default_from"]:
        return flavours[0]
    return "proprietary"


def _add(gpu: str) -> str:
    return f"add {gpu} to {TABLE.name}"


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return table
