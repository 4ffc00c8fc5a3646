"""The tables beside this module: packages, stand-ins for official images, BusyBox commands."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

_FOLDER = Path(__file__).parent


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    source: str


class Package(_Row):
    apt: tuple[str, ...]
    also: str | None = None
    paths: dict[str, str] = {}
    note: str = ""


class Base(_Row):
    apt: tuple[str, ...]
    env: dict[str, str] = {}
    run: str | None = None
    workdir: str | None = None
    cmd: str | None = None
    language: str | None = None


class Applet(_Row):
    apt: str


@functools.cache
def packages() -> dict[str, Package]:
    return {k: Package.model_validate(v) for k, v in _read("packages.yaml").items()}


@functools.cache
def bases() -> dict[str, Base]:
    return {k: Base.model_validate(v) for k, v in _read("bases.yaml").items()}


@functools.cache
def applets() -> dict[str, Applet]:
    return {k: Applet.model_validate(v) for k, v in _read("busybox.yaml").items()}


def _read(name: str) -> dict[str, Any]:
    content = yaml.safe_load((_FOLDER / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)  # noqa: S101 - our own file
    return content
