"""Profiles, offers and GPUs that the planning tests ask about."""

from __future__ import annotations

from typing import Any

from inferlift.artifacts import Offer
from inferlift.profile import Profile
from inferlift.sizing.hardware import Gpu, gpus

LLAMA_8B = {
    "parameters_total": 8_030_000_000, "layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "weight_bits": 16,
    "context": 8192,
}  # fmt: skip
RESNET = {"parameters_total": 25_600_000, "flops_per_item": 8.18e9, "weight_format": "fp16"}
TEXT = {"input_tokens_p50": 300, "input_tokens_p95": 1000, "output_tokens": 200}
IMAGE = {"image_width": 1280, "image_height": 720}
SHAPES = {"chat": TEXT, "image": IMAGE, "batch": IMAGE, "embeddings": {**TEXT, "output_tokens": 0}}


def a_profile(task: str = "chat", **sections: Any) -> Profile:
    """A profile of that task; `model={...}` and the like are laid over what the task needs."""
    told: dict[str, Any] = {
        "name": "t",
        "task": task,
        "target": "aws",
        "model": {"name": "m", "source": "s", **(LLAMA_8B if task in ("chat", "embeddings") else RESNET)},
        "requests": dict(SHAPES[task]),
        "budget": {"usd_rate": 1.1, "usd_rate_source": "test", "usd_rate_date": "2026-11-01"},
    }
    for name, change in sections.items():
        told[name] = {**told.get(name, {}), **change}
    return Profile.model_validate(told)


def an_offer(name: str = "g5.xlarge", **change: Any) -> Offer:
    """g5.xlarge as EC2 describes it (4 vCPU, 16 GiB, A10G, 2.5 Gbit/s kept up), with changes."""
    told: dict[str, Any] = {
        "name": name, "gpu": "A10G", "gpu_count": 1, "vram_mib": 22888, "vcpu": 4, "ram_gib": 16, "network_gbps": 2.5,
        "nvme_gb": 250, "region": "eu-central-1", "offered": True, "source": "test", "date": "2026-11-01", **change,
    }  # fmt: skip
    return Offer.model_validate(told)


def g4dn(**change: Any) -> Offer:
    """g4dn.xlarge as EC2 describes it (4 vCPU, 16 GiB, T4 16 GB on PCIe 3, 5 Gbit/s kept up)."""
    return an_offer("g4dn.xlarge", **{"gpu": "T4", "vram_mib": 16384, "network_gbps": 5, "nvme_gb": 125, **change})


def a_gpu(name: str) -> Gpu:
    return next(gpu for gpu in gpus() if gpu.name == name)
