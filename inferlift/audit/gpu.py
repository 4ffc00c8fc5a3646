"""GPU use from files: nvidia-smi CSV, `nvidia-smi dmon`, DCGM exporter text, Prometheus range JSON. Told by their text.

Sources: nvidia-smi(1); https://github.com/NVIDIA/dcgm-exporter (etc/default-counters.csv);
https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries.
"""

from __future__ import annotations

import csv
import json
import math
import re
import zoneinfo
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
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


Sample = tuple[float | None, float]  # Unix time or, without a zone, seconds of the host's own clock; the value


@dataclass
class Readings:
    """What a file says, a sample each, with its time where it has one. A utilisation of None is one that says [N/A]."""

    kind: str
    source: str = ""
    percent: list[tuple[float | None, float | None]] = field(default_factory=list)
    used_mib: list[Sample] = field(default_factory=list)
    total_mib: list[float] = field(default_factory=list)
    power_w: list[Sample] = field(default_factory=list)
    gpus: set[str] = field(default_factory=set)
    models: dict[str, None] = field(default_factory=dict)
    refused: int = 0
    local: bool = False  # times carry no zone

    def use(self, window: tuple[float, float] | None = None, zone: str = "UTC") -> GpuUse:
        """In a window (Unix seconds, both ends in it) if any reading falls into it; `zone`: of times without one."""
        taken, notes = self, []
        if self.refused:
            notes.append(f"{self.refused} lines were not understood")
        times = [at for at, _ in (*self.percent, *self.used_mib) if at is not None]
        shift = self._shift(min(times), zone) if times and self.local else 0.0
        matched: bool | None = None
        if window is not None and not times:
            notes.append(
                "the readings carry no time, so nothing says that they are of the log's hours (query timestamp)"
            )
        elif window is not None:
            low, high = window[0] - shift, window[1] - shift
            taken = self._between(low, high)
            matched = bool(taken.percent or taken.used_mib)
            outside = len(self.percent) - len(taken.percent)
            span = f"{_day(min(times) + shift)} to {_day(max(times) + shift)} UTC"
            if not matched:
                taken = self
                notes.append(f"the readings are of {span}, the log is not: {_day(window[0])} to {_day(window[1])} UTC")
            elif outside:
                notes.append(f"{outside} of {len(self.percent)} readings are outside of the log's time and left out")
            if self.local:
                notes.append(f"the readings' times carry no zone and were taken as {zone} (--zone)")
        return _told(taken, notes, matched, shift)

    def _between(self, low: float, high: float) -> Readings:
        def inside(at: float | None) -> bool:
            return at is not None and low <= at <= high

        return replace(
            self,
            percent=[one for one in self.percent if inside(one[0])],
            used_mib=[one for one in self.used_mib if inside(one[0])],
            power_w=[one for one in self.power_w if inside(one[0])],
        )

    def _shift(self, local: float, zone: str) -> float:
        """From the host's own clock to Unix time, as it was at the first reading."""
        naive = datetime(1970, 1, 1) + timedelta(seconds=local)
        return naive.replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp() - local


def gpu_use(path: Path) -> GpuUse:
    """Of the whole file."""
    return gpu_readings(path).use()


def gpu_readings(path: Path) -> Readings:
    """Raises DeclarationError for a file that cannot be read or holds no reading of a GPU."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace").replace("\0", "")
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
    found.source = path.name
    return found


def _told(found: Readings, notes: list[str], matched: bool | None, shift: float) -> GpuUse:
    known = sorted(value for _, value in found.percent if value is not None)
    used, power = [value for _, value in found.used_mib], [value for _, value in found.power_w]
    times = [at + shift for at, _ in (*found.percent, *found.used_mib) if at is not None]
    if not known:
        notes.append("no reading holds a utilisation")
    if times and len(known) == 1:
        notes.append("one reading says nothing of a share of time")
    return GpuUse(
        source=f"{found.source} ({found.kind})",
        gpus=max(len(found.gpus), 1),
        samples=len(known),
        models=tuple(found.models),
        idle_share=sum(value == 0 for value in known) / len(known) if known else None,
        mean_percent=round(math.fsum(known) / len(known), 3) if known else None,
        p95_percent=known[math.ceil(len(known) * 0.95) - 1] if len(known) >= 20 else None,
        memory_used_max_mib=max(used, default=None),
        memory_used_min_mib=min(used, default=None),
        memory_total_mib=max(found.total_mib, default=None),
        power_mean_w=round(math.fsum(power) / len(power), 1) if power else None,
        without_value=sum(value is None for _, value in found.percent),
        seconds=max(times) - min(times) if len(times) > 1 else None,
        matched=matched,
        start=datetime.fromtimestamp(min(times), UTC) if times else None,
        end=datetime.fromtimestamp(max(times), UTC) if times else None,
        notes=tuple(notes),
    )


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def _csv(text: str) -> Readings:
    """Columns by the header; a header may come again. Units stand in the header, in the cells, or in both."""
    found = Readings("nvidia-smi CSV", local=True)
    columns: dict[str, int] = {}
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        cells = [cell.strip() for cell in row]
        if any(cell.startswith("utilization.gpu") or cell.startswith("memory.used") for cell in cells):
            columns = {cell.split(" ")[0]: at for at, cell in enumerate(cells)}
            continue
        if not columns or not any(cells):
            found.refused += bool(any(cells))
            continue
        if len(cells) <= max(columns.values()):  # half-written
            found.refused += 1
            continue

        row_of = {name: cells[at] for name, at in columns.items()}
        cell = row_of.get
        at = _local_time(cell("timestamp"))
        if (used := _amount(cell("utilization.gpu"))) is not None or "utilization.gpu" in columns:
            found.percent.append((at, used if used is None or 0 <= used <= 100 else None))
        _add(found.used_mib, at, _amount(cell("memory.used")))
        if (total := _amount(cell("memory.total"))) is not None:
            found.total_mib.append(total)
        _add(found.power_w, at, _amount(cell("power.draw")))
        found.gpus.add(cell("uuid") or cell("index") or cell("pci.bus_id") or "0")
        if name := cell("name"):
            found.models[name] = None
    return found


def _dmon(text: str) -> Readings:
    """Two # lines, repeated: names, then units. `-` is no value. Columns differ between drivers."""
    found, columns = Readings("nvidia-smi dmon", local=True), [""]
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
        at = _local_time(f"{row.get('Date', '')} {row.get('Time', '')}")
        if "sm" in row:
            found.percent.append((at, _amount(row["sm"])))
        _add(found.used_mib, at, _amount(row.get("fb")))
        _add(found.power_w, at, _amount(row.get("pwr")))
    return found


def _exposition(text: str) -> Readings:
    """One scrape, or several one after the other."""
    found = Readings("DCGM exporter")
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            found.refused += 1
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        _take(found, match[1], labels, match[3], int(match[4]) / 1000 if match[4] and len(match[4]) < 16 else None)
    return found


def _prometheus(text: str, path: Path) -> Readings:
    found = Readings("Prometheus range")
    try:
        results = json.loads(text)["data"]["result"]
        for series in results:
            labels: dict[str, Any] = series["metric"]
            values = series.get("values") or [series["value"]]
            for at, value in values:
                seconds = float(at)
                if not 0 <= seconds < 4e9:
                    raise ValueError(at)
                _take(found, labels.get("__name__", "DCGM_FI_DEV_GPU_UTIL"), labels, str(value), seconds)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DeclarationError(
            f"{path.name} is no Prometheus range answer",
            why="expected the JSON of /api/v1/query_range",
            next_command="curl 'http://PROMETHEUS/api/v1/query_range?query=DCGM_FI_DEV_GPU_UTIL&start=..&end=..&step=15'",
        ) from None
    return found


def _take(found: Readings, metric: str, labels: dict[str, Any], text: str, at: float | None) -> None:
    value = _amount(text)
    if value is not None and (value > DCGM_BLANK or math.isnan(value)):
        value = None
    gpu = str(labels.get("UUID") or labels.get("uuid") or labels.get("gpu") or "0")
    if metric in _UTILISATION:
        ratio = metric.endswith(("_ACTIVE", "_ratio"))
        found.percent.append((at, None if value is None else value * 100 if ratio else value))
        found.gpus.add(gpu)
    elif metric in _USED:
        _add(found.used_mib, at, None if value is None else value / 2**20 if metric.endswith("_bytes") else value)
        found.gpus.add(gpu)
    elif metric in _POWER:
        _add(found.power_w, at, value)
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


def _add(values: list[Sample], at: float | None, value: float | None) -> None:
    if value is not None:
        values.append((at, value))
