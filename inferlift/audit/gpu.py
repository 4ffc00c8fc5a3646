"""GPU use from files: nvidia-smi CSV, `nvidia-smi dmon`, DCGM exporter text, Prometheus range JSON. Told by their text.

Sources: nvidia-smi(1); https://github.com/NVIDIA/dcgm-exporter (etc/default-counters.csv);
https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from inferlift.artifacts.evidence import GpuUse
from inferlift.errors import DeclarationError

DCGM_BLANK = 9.2e18  # 9223372036854775794 and its like stand for "no value"
_BRACKETED = re.compile(r"\[.*\]")
_LINE = re.compile(r"(\w[\w:]*)(?:\{(.*)\})?\s+([-+\w.]+)(?:\s+(\d+))?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_UTILISATION = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "nvidia_smi_utilization_gpu_ratio")
_USED = ("DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes")
_POWER = ("DCGM_FI_DEV_POWER_USAGE", "nvidia_smi_power_draw_watts")


@dataclass
class _Readings:
    """One value a sample; None where the sample says that there is none."""

    kind: str
    percent: list[float | None] = field(default_factory=list)
    used_mib: list[float] = field(default_factory=list)
    total_mib: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    gpus: set[str] = field(default_factory=set)
    models: dict[str, None] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    refused: int = 0


def gpu_use(path: Path) -> GpuUse:
    """Raises DeclarationError for a file that cannot be read or holds no reading of a GPU."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    except OSError as error:
        raise DeclarationError(f"GPU use {path} cannot be read", why=str(error.strerror or error)) from None
    begin = text.lstrip()
    if begin.startswith(("{", "[")):
        found = _prometheus(begin, path)
    elif re.match(r"#\s*(Date|gpu)\b", begin, re.I) or (
        begin.startswith("#") and re.search(r"^#\s*gpu\b", begin, re.M)
    ):
        found = _dmon(text)
    elif "DCGM_FI_" in text or "nvidia_smi_" in text:
        found = _exposition(text)
    else:
        found = _csv(text)
    if not found.percent and not found.used_mib:
        raise DeclarationError(
            f"{path.name} holds no reading of a GPU",
            why="known: nvidia-smi --query-gpu CSV, nvidia-smi dmon, DCGM exporter text, Prometheus range JSON",
            next_command="nvidia-smi --format=csv -l 5 --query-gpu=timestamp,name,utilization.gpu,memory.used",
        )
    return _told(found, path.name)


def _told(found: _Readings, source: str) -> GpuUse:
    known = sorted(value for value in found.percent if value is not None)
    notes = []
    if found.refused:
        notes.append(f"{found.refused} lines were not understood")
    if not known:
        notes.append("no reading holds a utilisation")
    if found.times and len(known) == 1:
        notes.append("one reading says nothing of a share of time")
    spread = max(found.times) - min(found.times) if len(found.times) > 1 else None
    return GpuUse(
        source=f"{source} ({found.kind})",
        gpus=max(len(found.gpus), 1),
        samples=len(known),
        models=tuple(found.models),
        idle_share=sum(value == 0 for value in known) / len(known) if known else None,
        mean_percent=round(math.fsum(known) / len(known), 3) if known else None,
        p95_percent=known[math.ceil(len(known) * 0.95) - 1] if len(known) >= 20 else None,
        memory_used_max_mib=max(found.used_mib, default=None),
        memory_used_min_mib=min(found.used_mib, default=None),
        memory_total_mib=max(found.total_mib, default=None),
        power_mean_w=round(math.fsum(found.power_w) / len(found.power_w), 1) if found.power_w else None,
        without_value=sum(value is None for value in found.percent),
        seconds=spread,
        notes=tuple(notes),
    )


def _csv(text: str) -> _Readings:
    """Columns by the header; a header may come again. Units stand in the header, in the cells, or in both."""
    found = _Readings("nvidia-smi CSV")
    columns: dict[str, int] = {}
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        cells = [cell.strip() for cell in row]
        if any(cell.startswith("utilization.gpu") or cell.startswith("memory.used") for cell in cells):
            columns = {cell.split(" ")[0]: at for at, cell in enumerate(cells)}
            continue
        if not columns or not any(cells):
            found.refused += bool(any(cells))
            continue
        if len(cells) < len(columns):  # half-written
            found.refused += 1
            continue

        row_of = {name: cells[at] for name, at in columns.items()}
        cell = row_of.get
        if (used := _amount(cell("utilization.gpu"))) is not None or "utilization.gpu" in columns:
            found.percent.append(used if used is None or 0 <= used <= 100 else None)
        _add(found.used_mib, _amount(cell("memory.used")))
        _add(found.total_mib, _amount(cell("memory.total")))
        _add(found.power_w, _amount(cell("power.draw")))
        found.gpus.add(cell("uuid") or cell("index") or cell("pci.bus_id") or "0")
        if name := cell("name"):
            found.models[name] = None
        if (at := _local_time(cell("timestamp"))) is not None:
            found.times.append(at)
    return found


def _dmon(text: str) -> _Readings:
    """Two # lines, repeated: names, then units. `-` is no value. Columns differ between drivers."""
    found, columns = _Readings("nvidia-smi dmon"), [""]
    for line in text.splitlines():
        cells = line.split()
        if line.startswith("#"):
            names = line.lstrip("# ").split()
            if "gpu" in names:
                columns = names
            continue
        if len(cells) != len(columns):
            found.refused += bool(cells)
            continue
        row = dict(zip(columns, cells, strict=True))
        found.gpus.add(row["gpu"])
        if "sm" in row:
            found.percent.append(_amount(row["sm"]))
        _add(found.used_mib, _amount(row.get("fb")))
        _add(found.power_w, _amount(row.get("pwr")))
        if (at := _local_time(f"{row.get('Date', '')} {row.get('Time', '')}")) is not None:
            found.times.append(at)
    return found


def _exposition(text: str) -> _Readings:
    """One scrape, or several one after the other."""
    found = _Readings("DCGM exporter")
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            found.refused += 1
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        _take(found, match[1], labels, match[3])
        if match[4] and match[1] in _UTILISATION:
            found.times.append(int(match[4]) / 1000)
    return found


def _prometheus(text: str, path: Path) -> _Readings:
    found = _Readings("Prometheus range")
    try:
        results = json.loads(text)["data"]["result"]
        for series in results:
            labels: dict[str, Any] = series["metric"]
            values = series.get("values") or [series["value"]]
            for at, value in values:
                _take(found, labels.get("__name__", "DCGM_FI_DEV_GPU_UTIL"), labels, str(value))
                found.times.append(float(at))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DeclarationError(
            f"{path.name} is no Prometheus range answer",
            why="expected the JSON of /api/v1/query_range",
            next_command="curl 'http://PROMETHEUS/api/v1/query_range?query=DCGM_FI_DEV_GPU_UTIL&start=..&end=..&step=15'",
        ) from None
    return found


def _take(found: _Readings, metric: str, labels: dict[str, Any], text: str) -> None:
    value = _amount(text)
    if value is not None and (value > DCGM_BLANK or math.isnan(value)):
        value = None
    gpu = str(labels.get("UUID") or labels.get("uuid") or labels.get("gpu") or "0")
    if metric in _UTILISATION:
        ratio = metric.endswith(("_ACTIVE", "_ratio"))
        found.percent.append(None if value is None else value * 100 if ratio else value)
        found.gpus.add(gpu)
    elif metric in _USED:
        _add(found.used_mib, None if value is None else value / 2**20 if metric.endswith("_bytes") else value)
        found.gpus.add(gpu)
    elif metric in _POWER:
        _add(found.power_w, value)
    if name := labels.get("modelName"):
        found.models[str(name)] = None


def _amount(cell: str | None) -> float | None:
    """The number before its unit; any bracketed word ([N/A], [Not Supported]), `-` and nothing are none."""
    if cell is None or _BRACKETED.fullmatch(cell) or cell in ("-", "", "N/A"):
        return None
    try:
        value = float(cell.split(" ")[0].rstrip("%"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _local_time(text: str | None) -> float | None:
    """Seconds on the host's own clock; only differences mean something, since no zone is written."""
    for layout in ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M:%S"):
        try:
            return (datetime.strptime((text or "").strip(), layout) - datetime(1970, 1, 1)).total_seconds()
        except ValueError:
            continue
    return None


def _add(values: list[float], value: float | None) -> None:
    if value is not None:
        values.append(value)


def gpu_files(paths: Iterable[Path]) -> GpuUse | None:
    """The one file's use; several are refused rather than mixed."""
    given = list(paths)
    if len(given) > 1:
        raise DeclarationError("--gpu takes one file", why="uses of different hosts must not be mixed")
    return gpu_use(given[0]) if given else None
