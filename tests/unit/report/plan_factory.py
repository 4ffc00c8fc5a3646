"""A made-up plan with everything a planner can say, for the report's tests. No figure here was computed or measured."""

from __future__ import annotations

from inferlift.artifacts import (
    Alternative,
    Batching,
    Chain,
    ChainLink,
    Check,
    CompatCheck,
    CostLine,
    Costs,
    Figure,
    Interval,
    OfferResult,
    Sensitivity,
    Serving,
    Sizing,
    Tco,
    TcoAssumption,
    TcoLine,
    TcoOption,
    Timeline,
    TimelineStep,
    Unreachable,
    Way,
)
from inferlift.report import ReportData
from tests.unit.report import report_factory as made

CHOICE, REGION = "gpu8.large", "eu-test-1"
MISSED = "first token after 900 ms at best, target 500"


def full() -> ReportData:
    """A finished migration whose plan says all it can, before and after the load test."""
    data = made.full()
    assert data.measurement is not None
    assert data.scaled is not None
    profile = data.profile.model_copy(
        update={"p95_ttft_ms": 500, "p95_total_ms": None, "min_tokens_per_s": 20, "max_cost_per_1000": 2.5}
    )
    return data.model_copy(update={
        "profile": profile, "sizing": sizing(),
        "measurement": data.measurement.model_copy(update={"sizing": sizing()}),
        "scaled": data.scaled.model_copy(update={"sizing": sizing()}),
        "price_notes": ("prices are of 2026-01: 333 days old, more than 90",),
    })  # fmt: skip


def sizing() -> Sizing:
    return made.sizing().model_copy(update={
        "verdict": "conditional", "choice": CHOICE, "region": REGION, "sold_as": "on demand", "offers": offers(),
        "mean_rps": Figure(value=6.0, unit="requests/s", basis="declared", source="half of the peak"),
        "cost_per_hour": money(55.0, "EUR/h"), "cost_per_1000": money(2.55, "EUR/1000"),
        "serving": serving(), "unreachable": (
            Unreachable(target="p95_ttft_ms", wanted=500, nearest=610, unit="ms", where="gpu8.huge in eu-test-1"),
            Unreachable(target="min_tokens_per_s", wanted=20, nearest=None, unit="tokens/s", where="no offer"),
        ),
        "alternatives": (
            Alternative(kind="nearly", name="gpu4.large in eu-test-1", per_1000=money(1.4, "EUR/1000"), why=MISSED),
            Alternative(kind="format", name="fp8 on 2 x gpu4.large", per_1000=money(1.1, "EUR/1000"),
                        why="quality at least 0.98 of the 16-bit model's has to be shown"),
            Alternative(kind="service", name="example api", per_1000=money(None, "EUR/1000"), why="no hosts"),
        ),
        "software": ("31% of the requests repeat an earlier one: a cache answers them",),
        "batching": Batching(
            preferred_batch_size=1, max_queue_delay_us=0, max_sequences=64, latency_ms=None, utilisation=None,
            meets_target=None, explain=("64 sessions fit",), settings={"max_num_seqs": 64},
        ),
        "chain": chain(), "compat": compat(), "timeline": timeline(), "costs": costs(), "tco": tco(),
    })  # fmt: skip


def money(value: float | None, unit: str) -> Figure:
    basis = "declared" if value is not None else "unknown"
    return Figure(value=value, unit=unit, basis=basis, source="a price table of a test", at="2026-01")


def offer(name: str, each: float | None, *, misses: tuple[str, ...] = (), fits: bool = True) -> OfferResult:
    return OfferResult(
        offer=name, fits=fits, replicas=2 if fits else None, hosts=3 if fits else None, region=REGION,
        usd_per_hour=money(None if each is None else each * 20, "USD/h"), per_1000=money(each, "EUR/1000"),
        reason="; ".join(misses) or ("fits" if fits else "it has 16 GiB, 70 are needed"), misses=misses,
        layout="2 x tp 4" if fits else "",
    )  # fmt: skip


def offers() -> tuple[OfferResult, ...]:
    """The choice is dearer than ten that miss a target, so that it is not among the cheapest."""
    cheaper = tuple(offer(f"gpu4.{k}", 1.0 + k / 10, misses=(MISSED,)) for k in range(12))
    return (
        *cheaper, offer(CHOICE, 2.55), offer("gpu8.huge", 4.1), offer("gpu8.unpriced", None),
        *(offer(f"small.{k}", None, fits=False) for k in range(3)),
    )  # fmt: skip


def serving() -> Serving:
    return Serving(
        gpu="Example GPU", copies=2, tensor=4, pipeline=2, sessions=64,
        reached={"p95_ttft_ms": Interval(value=480, low=350, high=700, unit="ms")},
        tokens_per_s=Interval(value=1800, low=1500, high=2200, unit="tokens/s"), beyond="inputs of 9000 tokens",
    )  # fmt: skip


def chain() -> Chain:
    def link(name: str, unit: str, **known: object) -> ChainLink:
        told = {"needed": None, "rule": None, "has": None, "has_basis": "unknown", "load": None, "utilisation": None}
        return ChainLink.model_validate({
            "name": name, "unit": unit, "verdict": "unknown", "why": f"{name} is not known", "source": "a checklist",
            **told, **known,
        })  # fmt: skip

    return Chain(
        links=(
            link("network", "Gbit/s", needed=0.2, rule=10.0, has=5.0, has_basis="declared", load=0.1,
                 utilisation=0.02, verdict="exception", exception="little-traffic", why="0.1 of 5 Gbit/s"),
            link("nvme", "MB/s", needed=900.0, rule=3000.0),
            link("pcie", "generation", needed=4.0, rule=4.0, has=5.0, has_basis="declared", verdict="ok", why="enough"),
            link("ram", "GiB", needed=64.0, rule=64.0, has=16.0, has_basis="declared", verdict="too small",
                 why="16 of 64 GiB"),
            link("gpu", "share", needed=0.8, has=1.0, has_basis="predicted", load=0.8, utilisation=0.8, verdict="ok",
                 why="busy 80% of the time"),
        ),
        bottleneck="gpu", why="gpu is used 80% at the peak, more than any other link that is known",
    )  # fmt: skip


def compat() -> tuple[CompatCheck, ...]:
    return (
        CompatCheck(name="weight format", verdict="pass", detail="fp8 from capability 8.9"),
        CompatCheck(name="residency", verdict="fail", detail="eu-test-1 is outside of eu", next_step="other regions"),
        CompatCheck(name="quota", verdict="unknown", detail="192 vCPU; the account's quota is not known",
                    next_step="ask for it", source="a manual"),
    )  # fmt: skip


def costs() -> Costs:
    def line(name: str, value: float | None) -> CostLine:
        return CostLine(name=name, monthly=money(value, "EUR/month"), formula=f"formula of {name}")

    return Costs(
        currency="EUR", lines=(line("compute", 40_150.0), line("disks", 88.0), line("egress", None)),
        hourly=money(55.1, "EUR/h"), monthly=money(40_238.0, "EUR/month"), per_1000=money(2.56, "EUR/1000"),
        per_1000_at_peak=money(1.3, "EUR/1000"), per_million_output_tokens=money(7.3, "EUR/million output tokens"),
        utilisation_mean=Figure(value=0.4, unit="share", basis="predicted", source="6 of 15 requests/s"),
        utilisation_peak=Figure(value=0.8, unit="share", basis="predicted", source="12 of 15 requests/s"),
        missing=("egress",),
    )  # fmt: skip


def option(way: Way, parts: dict[str, float | None], *, whole: bool = True) -> TcoOption:
    total = sum(value for value in parts.values() if value is not None) if whole else None
    basis = "assumed" if whole else "unknown"
    missing = tuple(name for name, value in parts.items() if value is None)
    return TcoOption(
        way=way, total=Figure(value=total, unit="EUR", basis=basis, source="a test", at="2026-01"),
        monthly=Figure(value=None if total is None else total / 36, unit="EUR/month", basis=basis, source="/ 36"),
        per_million_output_tokens=money(None if total is None else total / 1e5, "EUR/million output tokens"),
        lines=tuple(TcoLine(name=name, total=value, formula=f"{name} over 36 months") for name, value in parts.items()),
        missing=missing, note="" if total is None else "price: a test (2026-01)",
    )  # fmt: skip


def tco() -> Tco:
    return Tco(
        currency="EUR", years=3.0,
        options=(
            option("buy", {"hardware": 700_000.0, "electricity": 60_000.0, "administration": 50_000.0}),
            option("cloud reserved", {"compute": 800_000.0, "storage": None, "administration": 20_000.0}),
            option("cloud on demand", {"compute": 1_450_000.0, "storage": 3_000.0, "administration": 20_000.0}),
            option("rented hardware", {"rent": None, "administration": 9_000.0}, whole=False),
            option("managed service", {"output tokens": None}, whole=False),
        ),
        cheapest="buy",
        break_even_utilisation=Figure(value=0.53, unit="share of the hours", basis="assumed", source="two lines meet"),
        sensitivity=(
            Sensitivity(name="electricity_per_kwh", cheapest_low="buy", cheapest_high="buy", margin_low=90_000.0,
                        margin_high=50_000.0, changes=False),
            Sensitivity(name="cloud_host_hour", cheapest_low="cloud on demand", cheapest_high="buy",
                        margin_low=12_345.0, margin_high=None, changes=True),
        ),
        checks=(Check(name="rack power", ok=False, detail="10 kW a host: not one host"),
                Check(name="UPS", ok=True, skipped=True, detail="say tco.ups_kva")),
        assumptions=(
            TcoAssumption(name="interest_rate", value=0.08, unit="a year", source="assumption of a test",
                          declared=False),
            TcoAssumption(name="pue_air", value=1.4, unit="of the site", source="the profile", declared=True),
        ),
        bill_monthly=money(30_000.0, "EUR/month"), saving_monthly=money(7_500.0, "EUR/month"),
        notes=("a managed service has to be tried",),
    )  # fmt: skip


def timeline() -> Timeline:
    rows = (
        ("audit", 0.5, 0.0, (), True, 0.0), ("quota", 48.0, 0.5, ("audit",), True, 0.0),
        ("image", 1.0, 0.5, ("audit",), False, 47.0), ("weights", None, 48.5, ("quota",), False, 2.0),
        ("data", 0.0, 48.5, ("quota",), False, 2.0), ("switch", 2.0, 48.5, ("quota", "image"), True, 0.0),
        ("watch", 48.0, 50.5, ("switch",), True, 0.0),
    )  # fmt: skip
    return Timeline(
        steps=tuple(
            TimelineStep(name=name, hours=hours, basis="assumed" if hours is not None else "unknown",
                         source=f"source of {name}", after=after, starts_at=start, ends_at=start + (hours or 0.0),
                         slack_hours=slack, critical=critical)
            for name, hours, start, after, critical, slack in rows
        ),
        critical_path=("audit", "quota", "switch"), hours_to_switch=50.5, hours_to_verdict=98.5, plan_hours=48.0,
        fits_plan=False, longer=("quota: 48 h of 50.5 h",), unknown=("weights",),
    )  # fmt: skip
