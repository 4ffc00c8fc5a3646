"""A live look at the old host: GPU and driver, CPU, memory, disk and network, and whether the model stays in memory.

One shell script that only reads; what the host cannot say is unknown. No root is needed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime

from inferlift import process
from inferlift.artifacts.evidence import HostLook
from inferlift.errors import DeclarationError, Retryable

SECONDS = 2
KEPT_S = 600  # a server that has run for ten minutes with this much memory holds its model between requests
HOLDS_KIB = 100 * 1024
# Programs that serve models; a plain web server is none.
SERVERS = re.compile(
    r"llama|vllm|triton|ollama|text-generation|tgi|onnx|torchserve|bentoml|uvicorn|gunicorn|python", re.I
)
_SCRIPT = f"""
export LC_ALL=C
echo "cores=$(nproc)"
echo "load=$(cut -d' ' -f1 /proc/loadavg)"
sed -n 's/^MemTotal: *\\([0-9]*\\) kB/memory_total=\\1/p' /proc/meminfo
sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/memory_available=\\1/p' /proc/meminfo
card=$(sed -n 's/^\\([^\\t]*\\)\\t00000000\\t.*/\\1/p' /proc/net/route | head -n 1)
net() {{ sed -n "s/^ *$card: *//p" /proc/net/dev | awk '{{ print $1 + $9 }}'; }}
echo "cpu_before=$(head -n 1 /proc/stat)"; [ -n "$card" ] && echo "net_before=$(net)"
sleep {SECONDS}
echo "cpu_after=$(head -n 1 /proc/stat)"; [ -n "$card" ] && echo "net_after=$(net)"
[ -n "$card" ] && echo "net_speed=$(cat /sys/class/net/$card/speed 2>/dev/null)"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,utilization.gpu --format=csv,noheader,nounits 2>/dev/null | sed 's/^/gpu=/'
  echo "gpu_tool=1"
fi
ls /dev/nvidia[0-9]* /dev/kfd >/dev/null 2>&1 && echo "gpu_device=1"
ps -eo pid=,rss=,etimes=,args= --sort=-rss 2>/dev/null | head -n 20 | sed 's/^/process=/'
for pid in $(ps -eo pid= --sort=-rss 2>/dev/null | head -n 5); do
  file=$(awk '$6 ~ /[.](gguf|safetensors|bin|onnx|pt|engine)$/ {{ print $6; exit }}' /proc/$pid/maps 2>/dev/null)
  if [ -n "$file" ] && [ -r "$file" ]; then
    echo "model_file=$file"
    echo "disk=$(dd if="$file" of=/dev/null bs=4M count=64 iflag=direct 2>&1 | tail -n 1)"
    break
  fi
done
true
"""


def look(run: Callable[[str], str], name: str) -> HostLook:
    """`run` executes a shell command on the host and returns its output (its own errors pass through)."""
    told: dict[str, list[str]] = {}
    for line in run(_SCRIPT).splitlines():
        key, separator, value = line.partition("=")
        if separator:
            told.setdefault(key, []).append(value.strip())

    def one(key: str) -> str:
        return told.get(key, [""])[0]

    busy, waiting = _cpu(one("cpu_before"), one("cpu_after"))
    moved = _difference(one("net_before"), one("net_after"))
    speed, notes = _number(one("net_speed")), []
    gpus, driver, use = _gpus(told)
    if gpus is None:
        notes.append("there is a GPU device, but nvidia-smi does not answer")
    servers, kept = _servers(told.get("process", []))
    disk = _disk(one("disk"))
    if disk is None:
        notes.append("disk speed: no model file of a running server could be read")
    return HostLook(
        host=name,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        cores=_whole(one("cores")),
        load_1m=_number(one("load")),
        cpu_busy_share=busy,
        io_wait_share=waiting,
        memory_total_bytes=_kib(one("memory_total")),
        memory_available_bytes=_kib(one("memory_available")),
        disk_read_mb_s=disk,
        network_mb_s=None if moved is None else round(moved / SECONDS / 1e6, 3),
        network_limit_mb_s=speed / 8 if speed and speed > 0 else None,
        gpus=gpus,
        driver=driver,
        gpu_percent=use,
        model_processes=servers,
        model_kept_in_memory=kept,
        notes=tuple(notes),
    )


def over_ssh(target: str) -> Callable[[str], str]:
    """By the user's own ssh configuration, keys and known hosts: `target` as ssh takes it (user@host).

    The function raises Retryable where the host does not answer. Raises DeclarationError for what is no target.
    """
    if not re.fullmatch(r"[\w.@:%\[\]-]+", target) or target.startswith("-"):
        raise DeclarationError(f"--host {target!r} is no host", why="expected user@host, or a name of ~/.ssh/config")

    def run(command: str) -> str:
        argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", target, "--", command]
        try:
            done = process.run(argv, timeout_s=60, check=False)
        except subprocess.TimeoutExpired:
            raise Retryable(f"{target} did not answer within 60 s") from None
        if done.returncode == 255:
            raise Retryable(f"{target} does not answer over SSH", why=done.stderr.strip()[-300:])
        return done.stdout

    return run


def _cpu(before: str, after: str) -> tuple[float | None, float | None]:
    """Shares of busy and of waiting for storage, from two lines of /proc/stat."""
    first, second = ([int(v) for v in re.findall(r"\d+", text)[:8]] for text in (before, after))
    if len(first) < 8 or len(second) < 8:
        return None, None
    spent = [b - a for a, b in zip(first, second, strict=True)]
    total = sum(spent)
    if total <= 0:
        return None, None
    idle, waiting = spent[3], spent[4]
    return round(1 - (idle + waiting) / total, 4), round(waiting / total, 4)


def _gpus(told: dict[str, list[str]]) -> tuple[tuple[str, ...] | None, str | None, float | None]:
    """Names, driver, mean use; an empty tuple where there is no GPU, None where nothing can be said."""
    rows = [[cell.strip() for cell in row.split(",")] for row in told.get("gpu", []) if row.count(",") >= 2]
    if rows:
        uses = [value for row in rows if (value := _number(row[2])) is not None]
        return tuple(row[0] for row in rows), rows[0][1], sum(uses) / len(uses) if uses else None
    return (None if "gpu_device" in told else ()), None, None


def _servers(rows: list[str]) -> tuple[tuple[str, ...], bool | None]:
    """Processes that hold a model, and whether they have for long. None where none is known: it may run elsewhere."""
    found, long = [], False
    for row in rows:
        parts = row.split(None, 3)
        if len(parts) < 4 or not SERVERS.search(parts[3]) or int(parts[1]) < HOLDS_KIB:
            continue
        name = parts[3].split()[0].rsplit("/", 1)[-1]
        found.append(f"{name} (pid {parts[0]}): {int(parts[1]) // 1024} MiB for {int(parts[2])} s")
        long = long or int(parts[2]) >= KEPT_S
    return tuple(found[:5]), True if long else None


def _disk(text: str) -> float | None:
    """MB/s of dd's last line."""
    found = re.search(r"([\d.]+) ([kMG])B/s", text)
    return float(found[1]) * {"k": 1e-3, "M": 1.0, "G": 1e3}[found[2]] if found else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _kib(text: str) -> int | None:
    return int(text) * 1024 if text.isdigit() else None


def _difference(before: str, after: str) -> float | None:
    first, second = _number(before), _number(after)
    return second - first if first is not None and second is not None and second >= first else None
