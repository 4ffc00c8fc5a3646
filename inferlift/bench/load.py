"""`invoke bench load`: ours and the peers side by side, against one server with known timing, on the same cores.

Peers live in environments of their own, made by the bench in the user's cache folder; one that cannot be had is named
with the reason, and its figures are null. Rounds alternate, and the median round counts. `soak` measures what takes
long instead: 1,000,001 requests counted exactly, and ten minutes whose rate and memory stay flat.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferlift.errors import CheckFailed

FIRST_S, GAP_S, TOKENS = 0.05, 0.01, 32
PEERS = {"aiohttp": "aiohttp", "locust": "locust", "aiperf": "aiperf", "guidellm": "guidellm"}
LARGE_MB = {"aiperf": 2_000, "guidellm": 9_000}  # free disk that an installation takes on its way
INSTALL_S = 1800
SOAK_S = 600.0
SOAK_RPS = 1500.0
COUNTED = 1_000_001
FREE_MS = 5.0
USERS_TRIED = (64, 128, 256, 512, 1000, 2000)


def run(
    root: Path, *, as_json: bool = False, soak: bool = False, peers: Sequence[str] = tuple(PEERS), rounds: int = 3,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> int:  # fmt: skip
    """Returns 0 where every bound that was measured holds, 1 otherwise."""
    homes, notes = {}, {}
    for name in () if soak else peers:
        say(f"{name}: environment of its own")
        try:
            homes[name] = _environment(name)
        except (OSError, subprocess.SubprocessError) as error:
            notes[name] = f"not installed: {str(error)[:200]}"
            say(f"{name}: {notes[name]}")
    versions = {name: _version(home, PEERS[name]) for name, home in homes.items()}
    figures: dict[str, float | None] = {}
    with _files(4096):
        if soak:
            figures |= _counted(root, say) | _soak(root, SOAK_S, say)
        else:
            figures |= _light(root) | _thousand(root, homes, rounds, say) | _fast(root, homes, rounds, notes, say)
            figures |= {"limited_at": _limited_at(root, say), "installed_mb": _own_mb()}
    held = _bounds(figures)
    ok = all(held.values())
    sizes = {name: _mb(home) for name, home in homes.items()}
    if as_json:
        print(json.dumps({"ok": ok, "verdict": "pass" if ok else "fail", "figures": figures, "bounds": held,
                          "versions": versions, "installed_mb": sizes, "notes": notes}))  # fmt: skip
    else:
        for name, value in figures.items():
            mark = "" if name not in held else "  ok" if held[name] else "  FAILED"
            print(f"{name:<22} {'-' if value is None else f'{value:.4g}'}{mark}")
        for name in homes:
            print(f"{name} {versions[name]}, {sizes[name]:.0f} MB")
    return 0 if ok else 1


def _bounds(figures: Mapping[str, float | None]) -> dict[str, bool]:
    """Which of the measured figures keep what was set for them; what was not measured is left out."""
    limits: dict[str, Callable[[float], bool]] = {
        "in_flight_peak": lambda v: v == 1000,
        "stream_to_aiohttp": lambda v: v >= 1,
        "stream_to_aiperf": lambda v: v >= 5,
        "stream_to_guidellm": lambda v: v >= 8,
        "post_to_aiohttp": lambda v: v >= 1,
        "post_to_locust": lambda v: v >= 1.5,
        "ttft_p95_error": lambda v: v <= 0.05,
        "total_p95_error": lambda v: v <= 0.05,
        "light_added_ms": lambda v: v <= 1,
        "limited_at": lambda v: v > 256,
        "installed_mb": lambda v: v <= 30,
        "counted": lambda v: v == COUNTED,
        "counted_lost": lambda v: v == 0,
        "counted_rate_last_to_first": lambda v: v >= 0.9,
        "soak_lost": lambda v: v == 0,
        "soak_rate_last_to_first": lambda v: v >= 0.9,
        "soak_bytes_a_request": lambda v: v <= 60,
    }
    return {name: keeps(value) for name, keeps in limits.items() if (value := figures.get(name)) is not None}


def _light(root: Path) -> dict[str, float | None]:
    """One user: what the client adds to the median first token."""
    found, truth = _ours(root, FIRST_S, GAP_S, TOKENS, users=1, requests=15)
    return {"light_added_ms": found["ttft_p50_ms"] - _rank(truth["ttfts"], 50)}


def _thousand(
    root: Path, homes: Mapping[str, Path], rounds: int, say: Callable[[str], None]
) -> dict[str, float | None]:
    """1000 users on streams with known timing."""
    ours, theirs, errors = [], [], []
    peak = 0
    for k in range(rounds):
        found, truth = _ours(root, FIRST_S, GAP_S, TOKENS, users=1000, requests=6000)
        ours.append(found["rps"])
        peak = max(peak, min(found["peak"], truth["peak"]))
        errors.append([_off(found[f"{n}_p95_ms"], _rank(truth[f"{n}s"], 95)) for n in ("ttft", "total")])
        say(f"1000 users, round {k + 1}: ours {found['rps']:.0f}/s, p95 TTFT {found['ttft_p95_ms']:.1f} ms "
            f"(server {_rank(truth['ttfts'], 95):.1f})")  # fmt: skip
        if "aiohttp" in homes:
            peer, truth = _peer(homes["aiohttp"], root, "aiohttp", "stream", FIRST_S, GAP_S, TOKENS, 1000, 6000)
            theirs.append(peer["rps"])
            say(f"1000 users, round {k + 1}: aiohttp {peer['rps']:.0f}/s, p95 TTFT {peer['ttft_p95_ms']:.1f} ms "
                f"(server {_rank(truth['ttfts'], 95):.1f})")  # fmt: skip
    return {
        "in_flight_peak": peak,
        "stream_rps": statistics.median(ours),
        "stream_to_aiohttp": statistics.median(ours) / statistics.median(theirs) if theirs else None,
        "ttft_p95_error": statistics.median(e[0] for e in errors),
        "total_p95_error": statistics.median(e[1] for e in errors),
    }


def _fast(
    root: Path, homes: Mapping[str, Path], rounds: int, notes: dict[str, str], say: Callable[[str], None]
) -> dict[str, float | None]:
    """64 users on a server that answers at once: what each client can do."""
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind in ("stream", "post"):
            found, _truth = _ours(root, 0, 0, TOKENS, users=64, requests=6000, stream=kind == "stream")
            rates.setdefault(f"ours {kind}", []).append(found["rps"])
            for name in ("aiohttp", "locust") if kind == "post" else ("aiohttp",):
                if name not in homes:
                    continue
                try:
                    peer, _truth = _peer(homes[name], root, name, kind, 0, 0, TOKENS, 64, 6000)
                except (ValueError, IndexError, subprocess.SubprocessError) as error:
                    notes[name] = f"{kind} did not run: {str(error)[:300]}"
                    say(f"{name}: {notes[name]}")
                    continue
                rates.setdefault(f"{name} {kind}", []).append(peer["rps"])
    for name in ("aiperf", "guidellm"):  # once: each takes minutes
        if name in homes:
            try:
                rates[f"{name} stream"] = [_large(name, homes[name])]
            except (OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError) as error:
                notes[name] = f"did not run: {str(error)[:300]}"
                say(f"{name}: {notes[name]}")
    middle = {name: statistics.median(values) for name, values in rates.items()}
    for name, value in middle.items():
        say(f"64 users at once: {name} {value:.0f}/s")

    def ratio(kind: str, peer: str) -> float | None:
        theirs = middle.get(f"{peer} {kind}")
        return middle[f"ours {kind}"] / theirs if theirs else None

    return {
        "fast_stream_rps": middle["ours stream"],
        "fast_post_rps": middle["ours post"],
        "stream_to_aiperf": ratio("stream", "aiperf"),
        "stream_to_guidellm": ratio("stream", "guidellm"),
        "post_to_aiohttp": ratio("post", "aiohttp"),
        "post_to_locust": ratio("post", "locust"),
    }


def _limited_at(root: Path, say: Callable[[str], None]) -> float | None:
    for users in USERS_TRIED:
        found, _ = _ours(root, FIRST_S, GAP_S, TOKENS, users=users, requests=users * 4)
        if found["limit"]:
            say(f"client limited at {users} users: {found['limit']}")
            return float(users)
    return None


def _counted(root: Path, say: Callable[[str], None]) -> dict[str, float | None]:
    """One request more than a million as fast as they go: as many told, sampled and seen by the server."""
    say(f"{COUNTED} requests")
    found, truth = _ours(root, 0, 0, TOKENS, users=64, requests=COUNTED, stream=False)
    return {
        "counted": min(found["sent"], found["ok"], found["n"]),
        "counted_lost": truth["requests"] - found["sent"],
        "counted_rps": found["rps"],
        "counted_rate_last_to_first": found["rate_last_to_first"],
    }


def _soak(root: Path, seconds: float, say: Callable[[str], None]) -> dict[str, float | None]:
    """Rate and memory of the last third of a long run at a steady rate against its first third."""
    say(f"soak of {seconds:.0f} s at {SOAK_RPS:.0f} requests/s")
    count = round(seconds * SOAK_RPS)
    found, truth = _ours(root, 0, 0, TOKENS, users=0, requests=count, stream=False, deadline_s=seconds + 60)
    return {
        "soak_seconds": found["seconds"],
        "soak_counted": found["ok"],
        "soak_lost": truth["requests"] - found["sent"],
        "soak_rate_last_to_first": found["rate_last_to_first"],
        "soak_bytes_a_request": found["bytes_a_request"],
    }


def _ours(
    root: Path, first_s: float, gap_s: float, tokens: int, *, users: int, requests: int, stream: bool = True,
    deadline_s: float = 600,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """(ours, the server's record), ours in a process of its own like any peer."""
    with _urgently(), _server(first_s, gap_s, tokens) as server:
        arguments = [str(server.port), str(users), str(requests), "stream" if stream else "post", str(deadline_s)]
        done = subprocess.run(
            [sys.executable, "-m", "inferlift.bench.load", *arguments],
            cwd=root, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise CheckFailed("a run of ours ended badly", why=done.stderr.strip()[-500:])
        return json.loads(done.stdout), server.record()


def _peer(
    home: Path, root: Path, name: str, kind: str, first_s: float, gap_s: float, tokens: int, users: int, requests: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    with _urgently(), _server(first_s, gap_s, tokens) as server:
        script = root / "templates" / "load" / f"peer_{name}.py"
        done = subprocess.run(
            [str(home / "bin" / "python"), str(script), str(server.port), kind, str(users), str(requests)],
            capture_output=True, text=True, check=True, timeout=180,
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1]), server.record()


def _large(name: str, home: Path) -> float:
    """Streamed requests a second of AIPerf or GuideLLM, as told by themselves."""
    from inferlift.load.selfcheck import echo

    with _urgently(), echo(0, 0, TOKENS) as port, tempfile.TemporaryDirectory() as folder:
        url, words = f"http://127.0.0.1:{port}", f"{folder}/tokenizer"
        script = Path(__file__).parents[2] / "templates" / "load" / "peer_tokenizer.py"
        subprocess.run([str(home / "bin" / "python"), str(script), words], check=True, capture_output=True, text=True)
        if name == "aiperf":
            argv = ["profile", "--model", "mock", "--url", url, "--endpoint-type", "chat", "--streaming",
                    "--concurrency", "64", "--request-count", "2000", "--isl", "8", "--tokenizer", words,
                    "--artifact-dir", f"{folder}/out", "--ui", "none"]  # fmt: skip
        else:
            argv = ["run", "--backend", f"kind=openai_http,target={url},model=mock", "--profile",
                    "kind=concurrent,streams=64", "--constraint", "kind=max_requests,count=1000", "--data",
                    "kind=synthetic_text,prompt_tokens=8,output_tokens=32", "--tokenizer",
                    f"kind=hf_auto,model={words}", "--output", f"kind=json,path={folder}/out.json",
                    "--disable-console"]  # fmt: skip
        subprocess.run(
            [str(home / "bin" / name), *argv], check=True, capture_output=True, text=True, timeout=600,
            env={**os.environ, "PATH": f"{home / 'bin'}:{os.environ['PATH']}"},
        )  # fmt: skip
        return _told(name, Path(folder))


def _told(name: str, folder: Path) -> float:
    if name == "aiperf":
        report = next(folder.rglob("profile_export_aiperf.json"))
        return float(json.loads(report.read_text())["request_throughput"]["avg"])
    report = json.loads((folder / "out.json").read_text())
    return float(report["benchmarks"][0]["metrics"]["requests_per_second"]["successful"]["mean"])


class _Server:
    def __init__(self, child: subprocess.Popen[str], port: int) -> None:
        self._child, self.port = child, port

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._child.communicate()[0])
        return found


@contextlib.contextmanager
def _server(first_s: float, gap_s: float, tokens: int) -> Iterator[_Server]:
    script = Path(__file__).parents[1] / "load" / "timed_server.py"
    child = subprocess.Popen(
        [sys.executable, str(script), "0", str(first_s), str(gap_s), str(tokens)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None  # noqa: S101
        yield _Server(child, int(child.stdout.readline()))
    finally:
        child.kill()
        child.wait()


@contextlib.contextmanager
def _urgently() -> Iterator[None]:
    """Server, ours and the peers alike run before the rest of the machine, where that is allowed."""
    before = os.sched_getscheduler(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, before, os.sched_param(0))


def _environment(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "inferlift" / "bench"
    home = cache / name
    if (home / "made").exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free / 1e6
    if free < LARGE_MB.get(name, 500):
        raise OSError(f"{LARGE_MB.get(name, 500)} MB of free disk are needed, {free:.0f} are there")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, stdout=sys.stderr)
    subprocess.run(
        [str(home / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", PEERS[name]],
        check=True, stdout=sys.stderr, timeout=INSTALL_S,
    )  # fmt: skip
    (home / "made").touch()
    return home


def _version(home: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [str(home / "bin" / "python"), "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def _mb(folder: Path) -> float:
    """What was installed, without the pip that every environment has."""
    files = (p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return sum(p.stat().st_size for p in files if "/pip" not in str(p) and "/setuptools" not in str(p)) / 1e6


def _own_mb() -> float:
    """Of this package's load engine and of every distribution it loads in a run, gRPC among them."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "import inferlift.load.standalone, inferlift.load.page, jinja2, grpc, dns.resolver\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "names = {d for top, ds in m.packages_distributions().items() if top in tops for d in ds}\n"
        "print(json.dumps(sum(f.locate().stat().st_size for n in names if n != 'inferlift'\n"
        "      for f in (m.files(n) or ()) if f.locate().is_file())))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    own = sum(p.stat().st_size for p in (Path(__file__).parents[1] / "load").rglob("*.py"))
    return (int(done.stdout) + own) / 1e6


@contextlib.contextmanager
def _files(wanted: int) -> Iterator[None]:
    """Peers inherit a limit that lets them open their sockets."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(wanted, before[1])), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _rank(values_s: Sequence[float], percent: int) -> float:
    """Nearest rank of sorted seconds, in ms."""
    return values_s[max(0, -(-len(values_s) * percent // 100) - 1)] * 1000


def _off(told_ms: float, truth_ms: float) -> float:
    """Relative error, FREE_MS taken off the difference."""
    return max(0.0, abs(told_ms - truth_ms) - FREE_MS) / truth_ms


def _main(argv: Sequence[str]) -> None:
    """One run of ours, its figures on stdout: PORT USERS REQUESTS stream|post DEADLINE_S; no users: SOAK_RPS."""
    import threading

    from inferlift.load.client import LoadPlan, run
    from inferlift.load.target import Target

    port, users, requests, kind, deadline_s = argv
    seen: list[tuple[float, int, int]] = []  # (time, answered, resident bytes)

    def note(text: str) -> None:
        done = text.split(": ", 1)[1].split("/", 1)[0]
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        seen.append((time.monotonic(), int(done), resident))

    stop = threading.Event()
    timer = threading.Timer(float(deadline_s), stop.set)
    timer.daemon = True
    timer.start()
    with tempfile.TemporaryDirectory() as folder:
        plan = LoadPlan(
            Target("127.0.0.1", port=int(port), tls=False), int(requests), ["hello"], Path(folder) / "samples.jsonl",
            users=int(users) or None, schedule_s=_steady(int(requests)) if users == "0" else None,
            stream=kind == "stream",
        )  # fmt: skip
        found = run(plan, note, stop)
    del seen[-1:]  # said when the figures were computed, seconds and lists after the last request
    third = len(seen) // 3
    first, last = seen[: third + 1], seen[-third - 1 :]
    print(
        json.dumps(
            {
                "rps": found.rate_rps,
                "seconds": found.seconds,
                "sent": found.counts.sent,
                "ok": found.counts.ok,
                "n": found.total.n,
                "peak": found.in_flight_peak,
                "ttft_p50_ms": found.ttft.p50_ms if found.ttft else None,
                "ttft_p95_ms": found.ttft.p95_ms if found.ttft else None,
                "total_p95_ms": found.total.p95_ms,
                "limit": found.client_limit,
                "rate_last_to_first": _rate(last) / _rate(first) if third > 1 else None,
                "bytes_a_request": (last[-1][2] - first[-1][2]) / max(1, last[-1][1] - first[-1][1]) if third else None,
            }
        )
    )


def _steady(requests: int) -> tuple[float, ...]:
    from inferlift.load.arrivals import schedule

    return schedule("constant", requests, SOAK_RPS)


def _rate(seen: Sequence[tuple[float, int, int]]) -> float:
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


if __name__ == "__main__":
    _main(sys.argv[1:])
