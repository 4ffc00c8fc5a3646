"""Models and GPUs that the memory's tests speak of."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inferlift.modelfile import read
from inferlift.profile import Model, Server
from inferlift.sizing.hardware import Gpu, gpus

CONFIGS = yaml.safe_load((Path(__file__).parents[1] / "modelfile.yaml").read_text(encoding="utf-8"))
LLAMA = "llama-3.1-8b"
VLLM = Server(kind="vllm")


def model(figures: dict[str, Any] | str, **change: Any) -> Model:
    told = published(figures) if isinstance(figures, str) else figures
    return Model.model_validate({"name": "m", "source": "s", **told, **change})


@cache
def published(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(CONFIGS[name]["config"]), encoding="utf-8")
        return dict(read(path))


def card(name: str) -> Gpu:
    return next(one for one in gpus() if one.name == name)
