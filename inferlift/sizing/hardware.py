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
            )
            for row in csv.DictReader(file)
        )


def gpu(ec2_name: str, vram_mib: int) -> Gpu | None:
    """The GPU that EC2 calls so, told apart by its memory (A100 40 and 80 GB)."""
    named = [candidate for candidate in gpus() if candidate.ec2_name == ec2_name]
    return min(named, key=lambda candidate: abs(candidate.vram_mib - vram_mib), default=None)


@cache
def assumptions() -> dict[str, Assumption]:
    rows = yaml.safe_load((_HERE / "assumptions.yaml").read_text(encoding="utf-8"))
    return {name: Assumption(float(row["value"]), row["unit"], row["source"]) for name, row in rows.items()}


def assumed(name: str) -> float:
    return assumptions()[name].value


def _scaled(text: str, unit: float) -> float | None:
    return float(text) * unit if text else None
