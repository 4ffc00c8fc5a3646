"""Throughputs that others published, none of them in the silicon sample: what the shipped fit says to them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from inferlift.profile import Model
from inferlift.sizing import speed
from inferlift.sizing.hardware import Layout, gpus
from inferlift.sizing.roofline import Run
from inferlift.speedfit.sample import models


@dataclass(frozen=True)
class Published:
    id: str
    run: Run
    tokens_per_s: float
    counts: bool  # False: the source leaves a figure or its unit open
    why_not: str


@cache
def published() -> tuple[Published, ...]:
    """The rows of measured.csv."""
    with Path(__file__).with_name("measured.csv").open(encoding="utf-8", newline="") as file:
        return tuple(_published(row) for row in csv.DictReader(file))


def errors(made: Mapping[str, Any]) -> dict[str, float]:
    """|predicted / published - 1| of the output tokens a second, by row."""
    return {
        row.id: abs(speed.of(speed.dated(row.run, made), made).tokens_per_s.value / row.tokens_per_s - 1)
        for row in published()
    }


def _published(row: dict[str, str]) -> Published:
    told = models()[row["model"]]
    figures = {k: int(v) for k, v in told.items() if v and k not in ("model", "attention", "source")}
    model = Model.model_validate(
        {
            "name": row["model"],
            "source": told["source"],
            "attention": told["attention"],
            "weight_format": row["weight_format"],
            "kv_bits": float(row["kv_bits"]),
            "tied_embeddings": "tied" in told["source"],
            **figures,
        }
    )
    run = Run(
        model,
        next(gpu for gpu in gpus() if gpu.name == row["gpu"]),
        Layout(int(row["tensor"]), int(row["pipeline"])),
        row["engine"],
        float(row["input_tokens"]),
        float(row["output_tokens"]),
        float(row["concurrency"]),
    )
    return Published(row["id"], run, float(row["tokens_per_s"]), row["counts"] == "yes", row["why_not"])
