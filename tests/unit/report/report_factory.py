"""A made-up finished migration for the report's tests. No figure here was measured anywhere."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from statistics import NormalDist

from inferlift.artifacts import (
    Check,
    Configured,
    Contract,
    Counts,
    Cutover,
    Endpoint,
    Evidence,
    Figure,
    Fleet,
    Gate,
    Host,
    Image,
    Images,
    Judgement,
    LineChange,
    LoadRun,
    LogQuality,
    Measurement,
    Memory,
    OfferResult,
    ParityCase,
    Percentiles,
    Quality,
    RaisedLab,
    Route,
    RouteFigures,
    Scaled,
    Series,
    Service,
    Sizing,
    Status,
    SwitchStep,
    TrafficShape,
    Transfer,
    TransferPass,
    Trigger,
    UserCounts,
    Verdict,
    Watch,
    World,
)
from inferlift.artifacts.cutover import Quiet, StubbornClient
from inferlift.report import Approval, Overruled, ProfileSummary, ReportData, StageRow
from inferlift.report.data import STAGES, FaultRow

START = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
KEY_FILE = "/private/planted/users.key"  # the page must hold neither this nor the other paths of keys
SSH_KEY = "/private/planted/id_ed25519"
DNS_KEY = "env:PLANTED_DNS_KEY"


def full() -> ReportData:
    """All nine stages done."""
    return ReportData(
        generated=(START + timedelta(minutes=11)).isoformat(),
        version="0.0.0",
        profile=profile(),
        stages=stages(),
        world=world(),
        evidence=evidence(),
        sizing=sizing(),
        images=images(),
        service=service(1),
        measurement=measurement(),
        transfer=transfer(),
        scaled=scaled(),
        cutover=cutover(),
        watch=watch(),
        faults=(
            FaultRow(
                fault="host-lost",
                what="a model host is gone",
                typed="deploy",
                outcome="poc found: host model-2",
                exit=0,
                expected_exit=0,
                users="new",
                seconds=41.0,
                ok=True,
            ),
        ),
        rates={"new.jsonl": rate(150, 6.9), "acceptance.jsonl": rate(96, 10.4), "loss.jsonl": rate(118, 8.5)},
        approvals=(
            Approval(part="first", hash="39815108fe12", covers=("build", "poc", "load"), document=approved(1, 0)),
            Approval(
                part="second", hash="a1c0ffee0123", covers=("migrate", "scale", "switch"), document=approved(4, 1)
            ),
        ),
        lock={"inferlift": "0.0.0", "seed": 20261130, "tools": {"pulumi": "3.274.1"}, "profile": "ab" * 32},
    )


def empty() -> ReportData:
    """Nothing ran."""
    return ReportData(generated=START.isoformat(), version="0.0.0", profile=profile())


def profile() -> ProfileSummary:
    return ProfileSummary(
        name="made-up", description="A chat service that its one small host cannot carry any more", target="lab",
        model="Example-135M", parameters=134_515_008, server="llamacpp", requests_in_flight=1000, per_minute_peak=720,
        p95_ttft_ms=4000, p95_total_ms=5500, error_share=0.0, quality=0.8, max_cost_per_1000=0.05, currency="EUR",
        usd_rate=1.15, usd_rate_source="assumption of a test", usd_rate_date="2026-11-01", data_state="read-only",
    )  # fmt: skip


def stages(**status: Status) -> tuple[StageRow, ...]:
    """All done, but for those named."""
    took = (0.7, 0.03, 56.3, 121.6, 162.0, 4.2, 231.0, 74.5, 61.0)
    said = (
        "300 inference requests, P95 8430 ms, triggers met: P95 over 500 ms",
        "go: 4+1 x lab host 0.7 CPU, 0.0020 EUR per 1000 (assumed)",
        "made-up-app 569ba26525a7, 91 MB, 3 lines moved",
        "3 hosts, 5 checks ok, answers at 10.9.0.10, 3 things skipped here",
        "pass: 1000 of 1000 ok at 6.9/s, P95 TTFT 2210 ms, quality 22/23",
        "42 files, 3.1 MB, checksums equal, 2 changed in the second pass",
        "5 replicas; 1000 in flight answered in 96 s of 150 s; with model-5 killed: 3 failed of 4 in flight on it",
        "ai.example.test at 10.9.0.10 in 4 steps; 0 of 214 user requests failed",
        "pass: all gates hold",
    )
    rows, at = [], START
    for name, seconds, line in zip(STAGES, took, said, strict=True):
        end = at + timedelta(seconds=seconds)
        found = status.get(name, Status.DONE)
        done = found is Status.DONE
        rows.append(
            StageRow(name=name, status=found, seconds=seconds, started=at.isoformat(), finished=end.isoformat(),
                     message="" if done else f"{name} is {found.value} in this test", summary=line if done else "")
        )  # fmt: skip
        at = end
    return tuple(rows)


def measured(value: float | None, unit: str, n: int | None = None, source: str = "a test") -> Figure:
    basis = "measured" if value is not None else "unknown"
    return Figure(value=value, unit=unit, basis=basis, source=source, at=START.isoformat(), n=n)


def percentiles(n: int, p50: float, p95: float, clock: str = "total") -> Percentiles:
    return Percentiles(n=n, p50_ms=p50, p90_ms=p95 * 0.86, p95_ms=p95, p99_ms=p95 * 1.2 if n >= 100 else None,
                       max_ms=p95 * 1.4, clock=clock)  # fmt: skip


def gate(name: str, verdict: Verdict, target: float | None, figure: Figure, why: str) -> Gate:
    return Gate(name=name, verdict=verdict, target=target, figure=figure, why=why)


def host(name: str, role: str, address: str) -> Host:
    return Host(name=name, role=role, address=address, ssh_key=SSH_KEY, host_key="ssh-ed25519 AAAAMADEUP",
                cpus=0.7, memory_bytes=1_572_864_000)  # fmt: skip


def contract() -> Contract:
    return Contract(
        name="ai.example.test", certificate="/private/planted/chain.pem", certificate_key=f"file:{KEY_FILE}",
        key_header="X-Api-Key", key=f"file:{KEY_FILE}",
        routes=(Route(path="/api/chat", upstream="/v1/chat/completions"),),
    )  # fmt: skip


def world() -> World:
    made = RaisedLab(
        label="made-up/world", network="made-up", subnet="10.8.0.0/24",
        authority=host("authority", "authority", "10.8.0.40"), resolver=host("resolver", "resolver", "10.8.0.50"),
        dns_api="https://10.8.0.40:8443", dns_key=DNS_KEY, requests_sent=300,
    )  # fmt: skip
    return World(
        origin=host("origin", "origin", "10.8.0.30"), address="10.8.0.30", contract=contract(), zone="example.test.",
        ttl_s=10, log_glob="/var/log/nginx/access.log*", body_log="/var/log/nginx/bodies.jsonl",
        data_path="/srv/data",  lab=made,
    )  # fmt: skip


def evidence() -> Evidence:
    gaps = tuple(0.35 + 0.3 * math.sin(k / 19) + 0.05 * (k % 5) for k in range(300))
    old = percentiles(300, 3710, 8430)
    return Evidence(
        start=START, end=START + timedelta(seconds=sum(gaps)), n=312, inference_n=300, errors=3, error_share=0.01,
        latency=old, routes=(RouteFigures(route="/api/chat", n=300, errors=3, latency=old),),
        per_minute_peak=171, in_flight_peak=6,
        triggers=(
            Trigger(name="P95 over 500 ms", verdict="met", figure=measured(8430, "ms", 300, "access.log"),
                    threshold=500, why="8430 ms is over 500 (n=300)"),
            Trigger(name="over 500 inference requests a minute", verdict="not met",
                    figure=measured(171, "requests/min", 300, "access.log"), threshold=500, why="171 is not over 500"),
            Trigger(name="latency grows with concurrency", verdict="met",
                    figure=measured(2.31, "busier half / quieter half, medians", 300, "access.log"), threshold=1.5,
                    why="2.31 is over 1.5 (n=300)"),
            Trigger(name="bill up 40 % in a quarter", verdict="no data",
                    figure=measured(None, "share", 0, "access.log"), threshold=0.4, why="no bill was given"),
        ),
        shape=TrafficShape(gaps_s=gaps, request_bytes=(), routes={"/api/chat": 1.0},
                           per_minute_peak=171, in_flight_peak=6),
        quality=LogQuality(lines=312, understood=311, refused=1, examples=("line 7: no request time",)),
        statuses={"200": 309, "504": 3},
    )  # fmt: skip


def sizing(*, rate: float | None = None) -> Sizing:
    assumed = Figure(value=0.0020, unit="EUR/1000", basis="assumed", source="assumption of a test", at="2026-11-01")
    hour = Figure(value=0.087, unit="EUR/h", basis="assumed", source="assumption of a test", at="2026-11-01")
    per_s = (
        measured(rate, "requests/s", 1000, "1000 requests against 1 replica(s)")
        if rate
        else Figure(value=3.64, unit="requests/s", basis="predicted", source="0.7 cores / 192 ms a request")
    )
    nothing = Figure(value=None, unit="EUR/1000", basis="unknown", source="no price is known")
    return Sizing(
        verdict="go", why="triggers met: P95 over 500 ms; lab host 0.7 CPU looks able to reach the targets",
        memory=Memory(weights_bytes=98_364_100, kv_bytes_per_token=23040, kv_bytes=94_371_840,
                      overhead_bytes=250_000_000, total_bytes=442_735_940,
                      explain=("weights: 134515008 parameters * 5.85 bits / 8 = 0.092 GiB",)),
        peak_rps=Figure(value=12, unit="requests/s", basis="declared", source="requests.per_minute_peak 720 / 60"),
        rate_per_replica=per_s, replicas=4, spare=1,
        offers=(
            OfferResult(offer="lab host 0.7 CPU", fits=True, replicas=4, usd_per_hour=hour, per_1000=assumed,
                        reason="chosen: fits"),
            OfferResult(offer="example-gpu-1", fits=True, replicas=1, per_1000=nothing, reason="no price is known",
                        usd_per_hour=Figure(value=None, unit="USD/h", basis="unknown", source="no price is known")),
        ),
        choice="lab host 0.7 CPU", cost_per_hour=hour, cost_per_1000=assumed, currency="EUR",
        notes=("costs are of compute alone",),
    )  # fmt: skip


def images() -> Images:
    return Images(images=(
        Image(
            name="made-up-app", digest="sha256:" + "569ba265" * 8, archive="/private/planted/app.tar", bytes=90_829_824,
            base="localhost/example-base:1@sha256:" + "0" * 64, dockerfile="/private/planted/Dockerfile",
            changes=(
                LineChange(line=2, before="ARG BASE=alpine:3.20", after="ARG BASE=localhost/example-base:1",
                           why="the base image is a build argument"),
                LineChange(line=7, before="apk add --no-cache python3",
                           after="apt-get update && apt-get install -y --no-install-recommends python3",
                           why="apt in place of apk"),
                LineChange(line=10, before="addgroup -S app", after="groupadd --system app", why="account command"),
            ),
            checks=(Check(name="no musl", ok=True, detail="830 ELF files looked at"),
                    Check(name="GPU library loads", ok=True, skipped=True, detail="no GPU here")),
        ),
    ))  # fmt: skip


def fleet(models: int) -> Fleet:
    hosts = [host("gateway-1", "gateway", "10.9.0.10"), host("monitor-1", "monitor", "10.9.0.20")]
    hosts += [host(f"model-{k}", "model", f"10.9.0.{100 + k}") for k in range(1, models + 1)]
    return Fleet(label="made-up/fleet", network="made-up", subnet="10.9.0.0/24", hosts=tuple(hosts),
                 endpoints=(Endpoint(site="lab", address="10.9.0.10"),), generation="1")  # fmt: skip


def service(models: int) -> Service:
    hosts = {h.name: {"ok": 15, "changed": 6, "failed": 0, "unreachable": 0, "skipped": 4} for h in fleet(models).hosts}
    why = "time sync: the clock cannot be set here (a container shares its host's clock)"
    return Service(
        fleet=fleet(models),
        configured=Configured(hosts=hosts, changed=26, seconds=101.0, skipped=tuple(f"{h}: {why}" for h in hosts)),
        endpoint=Endpoint(site="lab", address="10.9.0.10"), contract=contract(), replicas=models,
        checks=(
            Check(name="gateway-1: port 443", ok=True, detail="listening"),
            Check(name="model-1: completion", ok=True, detail="status 200, 1 token"),
            Check(name="model-1: time sync", ok=True, skipped=True, detail="the clock cannot be set here"),
        ),
        monitor_url="https://10.9.0.20:9090", monitor_user="monitor", monitor_password=f"file:{KEY_FILE}",
        ca="/private/planted/ca.pem", versions={"model server": "0.3.9"},
    )  # fmt: skip


def load_run(label: str, n: int, seconds: float, p95: float, *, failed: int = 0, peak: int = 14) -> LoadRun:
    """Latencies of a made-up log-normal shape, in flight as a hump."""

    def shape(p: float) -> tuple[float, ...]:
        return tuple(p * 0.3 * math.exp(0.73 * NormalDist().inv_cdf((k + 0.5) / 200)) for k in range(200))

    flight = tuple((seconds * k / 80, round(peak * math.sin(math.pi * min(1, k / 80)) ** 0.5)) for k in range(81))
    return LoadRun(
        label=label, started=START, seconds=seconds,
        counts=Counts(planned=n, sent=n, ok=n - failed, errors={"reset": failed} if failed else {}),
        total=percentiles(n, p95 * 0.3, p95), ttft=percentiles(n, p95 * 0.24, p95 * 0.82, "first_token"),
        tokens_out=n * 4, rate_rps=(n - failed) / seconds, in_flight_peak=peak, send_delay_p95_ms=4.1,
        client_limited=False, samples=f"{label}.jsonl", latencies_ms=shape(p95), ttfts_ms=shape(p95 * 0.82),
        in_flight=flight, connections=peak,
    )  # fmt: skip


def measurement() -> Measurement:
    run = load_run("new", 1000, 145.0, 2700)
    return Measurement(
        run=run, origin=evidence().latency, quality=Quality(n=23, correct=22, share=22 / 23, wrong=("7 + 5: 13",)),
        gates=(
            gate("all requests sent", "pass", 1000, measured(1000, "requests", 1000), "1000 of 1000 sent"),
            gate("error share", "pass", 0.0, measured(0.0, "share", 1000), "0 of 1000 not answered well"),
            gate("p95 TTFT", "pass", 4000, measured(2214, "ms", 1000), "2214 ms against at most 4000 ms"),
            gate("p95 total", "pass", 5500, measured(2700, "ms", 1000), "2700 ms against at most 5500 ms"),
            gate("quality", "pass", 0.8, measured(22 / 23, "share", 23), "22 of 23 right"),
        ),
        verdict="pass", sizing=sizing(rate=3.41),
    )  # fmt: skip


def transfer() -> Transfer:
    return Transfer(
        source="origin:/srv/data", destinations=("model-1",), manifest="c3" * 32, files=42, bytes=3_145_728,
        passes=(TransferPass(files=42, bytes_total=3_145_728, bytes_sent=3_150_012, seconds=2.4),
                TransferPass(files=2, bytes_total=3_145_728, bytes_sent=8_192, seconds=0.6)),
        checks=(Check(name="model-1: manifest", ok=True, detail="42 files, checksums equal"),),
    )  # fmt: skip


def scaled() -> Scaled:
    whole = load_run("acceptance", 1000, 96.0, 91_000, peak=1000)
    loss = load_run("loss", 1000, 118.0, 112_000, failed=3, peak=1000)
    return Scaled(
        service=service(5), sizing=sizing(rate=3.41), acceptance=whole, deadline_s=150.0, with_loss=loss,
        lost_host="model-5", in_flight_on_lost=4,
        gates=(gate("all answered by the deadline", "pass", 150, measured(96, "s", 1000),
                    "0 failed or unsent (0 allowed)"),
               gate("all but those on the lost replica answered by the deadline", "pass", 150, measured(118, "s", 997),
                    "3 failed or unsent (4 allowed)")),
    )  # fmt: skip


def cutover(*, rolled_back: bool = False) -> Cutover:
    steps = tuple(
        SwitchStep(
            weight=w, at=START + timedelta(seconds=16 * k), authority_share=share, asked=300, seconds=15.0,
            resolver_answers=("10.8.0.30", "10.9.0.10") if 0 < w < 100 else ("10.9.0.10",),
            gates=(gate("p95 total", "pass", 5500, measured(1800, "ms", 30), "1800 ms against at most 5500 ms"),
                   gate("users", "inconclusive" if w == 1 else "pass", 0, measured(0, "requests", 9), "no user yet")),
        )
        for k, (w, share) in enumerate(((1, 0.013), (10, 0.093), (50, 0.517), (100, 1.0)))
    )  # fmt: skip
    return Cutover(
        name="ai.example.test", old="10.8.0.30", new="10.9.0.10", ttl_before_s=10, ttl_s=5, steps=steps,
        parity=tuple(ParityCase(request=f"request {k}", same=True, detail="same fields") for k in range(1, 13)),
        rehearsed_rollback_s=1.9,
        users=(UserCounts(client="resolving", old=61, new=46, failed=0),
               UserCounts(client="keep-alive", old=55, new=52, failed=0)),
        rolled_back=rolled_back, rollback_s=2.2 if rolled_back else None,
        why="p95 total failed twice in a row" if rolled_back else "",
        backend="powerdns", guard_open="The key can change this one zone.",
        sides=tuple(
            Series(name=client, unit="share", points=tuple((START.timestamp() + 8 * k, k / 8) for k in range(9)))
            for client in ("keep-alive", "resolving")
        ),
        old_side=None if rolled_back else Quiet(
            quiet=False, why="1 clients asked the old side in the last 300 s", window_s=300,
            clients=(StubbornClient(address="10.8.0.77", agent="old-app/1.0", requests=4, last=START),),
        ),
    )  # fmt: skip


def watch(verdict: Verdict = "pass") -> Watch:
    at = START.timestamp()
    return Watch(
        start=START, end=START + timedelta(seconds=60), verdict=verdict, why="all gates hold",
        gates=(gate("errors", verdict, 0.0, measured(0.0, "share", 120), "0 of 120 answered with an error"),),
        figures={
            "p95_total_ms": measured(1740, "ms", 118),
            "cpu_used_share": measured(0.41, "share"),
            "memory_bandwidth_share": measured(None, "share", None, "no GPU in this fleet"),
            "cost_so_far": Figure(value=0.0015, unit="EUR", basis="assumed", source="0.087 EUR/h for 60 s"),
        },
        judgements=(
            Judgement(name="use", verdict="too low", figure=measured(0.1, "share"), against=measured(0.8, "share"),
                      saving_monthly=measured(310.0, "EUR/month"), why="peak 0.2 requests/s of 2 x 1"),
        ),
        triggers=(
            Trigger(name="a new certificate", verdict="met", figure=measured(12.0, "days"), threshold=30.0,
                    why="12 days, below 30: renew"),
        ),
        drift=(Check(name="hosts", ok=True, detail="no change"),),
        series=(
            Series(name="requests", unit="requests/s", points=tuple((at + 5 * k, 2 + math.sin(k)) for k in range(13))),
            Series(name="p95_total_ms", unit="ms", points=tuple((at + 5 * k, 1500 + 90 * (k % 4)) for k in range(13))),
            Series(name="cpu_used_share", unit="share", points=tuple((at + 5 * k, 0.3 + 0.02 * k) for k in range(13))),
        ),
    )  # fmt: skip


def rate(seconds: float, average: float) -> tuple[tuple[float, float], ...]:
    return tuple((seconds * k / 60, average * (1 + 0.25 * math.sin(k / 3))) for k in range(61))


def approved(replicas: int, spare: int) -> dict[str, object]:
    return {"profile": "cd" * 32, "target": "lab", "stages": [], "verdict": "go", "choice": "lab host 0.7 CPU",
            "replicas": [replicas, spare], "cost per hour": "0.087 EUR/h", "gates": [["p95", "pass"]]}  # fmt: skip


def overruled() -> Overruled:
    return Overruled(
        stage="load", reason="the campaign starts tomorrow", at=START.isoformat(), overruled="too few samples"
    )
