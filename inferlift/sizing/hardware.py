"""The sizing's tables: GPUs (gpus.csv) and assumptions (assumptions.yaml), each with its source."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Gpu:
    name: str
    ec2_name: str
    vram_mib: int  # usable, of one
    bandwidth: float | None  # bytes/s, data sheet
    flops: float | None  # 16-bit dense FLOP/s, data sheet
    source: str
    vram_gb: float = 0.0  # as sold: the class people speak of
    flops_fp8: float | None = None  # dense; None: none, or not known
    flops_fp4: float | None = None
    ops_int8: float | None = None
    link: float | None = None  # bytes/s a direction to the other GPUs by NVLink; None: by PCIe
    pcie: str = ""  # "4.0 x16" as the table says
    tdp_w: float | None = None
    compute_capability: float | None = None  # None: not an NVIDIA GPU
    bf16: bool = True
    fp8: bool = False


@dataclass(frozen=True)
class Layout:
    """How one copy of a model lies over GPUs: each layer over `tensor` of them, the layers over `pipeline` stages."""

    tensor: int = 1
    pipeline: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline


@dataclass(frozen=True)
class Assumption:
    value: float
    unit: str
    source: str


@cache
def gpus() -> tuple[Gpu, ...]:
    with (_HERE / "gpus.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Gpu(
                row["gpu"],
                row["ec2_name"],
                int(row["vram_mib_usable"] or float(row["vram_gb_nominal"]) * 1024),
                _scaled(row["mem_bw_GBps"], 1e9),
                _scaled(row["fp16_bf16_dense_tflops"], 1e12),
                row["source"],
                vram_gb=float(row["vram_gb_nominal"]),
                flops_fp8=_scaled(row["fp8_dense_tflops"], 1e12),
                flops_fp4=_scaled(row["fp4_dense_tflops"], 1e12),
                ops_int8=_scaled(row["int8_dense_tops"], 1e12),
                link=_scaled(_leading(row["nvlink_GBps_per_dir"]), 1e9),
                pcie=row["pcie"],
                tdp_w=_scaled(_leading(row["tdp_w"]), 1),
                compute_capability=_scaled(_leading(row["compute_cap"]), 1),
                bf16=row["bf16_native"] == "yes",
                fp8=row["fp8_native"] == "yes",
            )
            for row in csv.DictReader(file)
        )


def gpu(ec2_name: str, vram_mib: int) -> Gpu | None:
    """The GPU that EC2 calls so, told apart by its memory (A100 40 and 80 GB)."""
    named = [candidate for candidate in gpus() if ec2_name and candidate.ec2_name == ec2_name]
    return min(named, key=lambda candidate: abs(candidate.vram_mib - vram_mib), default=None)


def named(name: str) -> Gpu | None:
    """The GPU that the table calls so: what owners of hosts go by."""
    return next((candidate for candidate in gpus() if candidate.name == name), None)


@cache
def assumptions() -> dict[str, Assumption]:
    rows = yaml.safe_load((_HERE / "assumptions.yaml").read_text(encoding="utf-8"))
    return {name: Assumption(float(row["value"]), row["unit"], row["source"]) for name, row in rows.items()}


def assumed(name: str) -> float:
    return assumptions()[name].value


def _leading(text: str) -> str:
    """The number that a cell is, or nothing: "none" and "32 via PCIe (bridge optional)" are no link of their own."""
    return text if text.replace(".", "", 1).isdigit() else ""


def _scaled(text: str, unit: float) -> float | None:
    return float(text) * unit if text else None
