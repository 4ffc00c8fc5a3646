"""Gates from counts: pass, fail or inconclusive, never a pass without enough samples.

Too few samples decide nothing, with one exception: when so many have failed already that the target would be missed
even if all that lack to the minimum passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from inferlift.artifacts import Figure, Gate, Verdict
from inferlift.errors import CheckFailed, Retryable


@dataclass(frozen=True)
class MetricGate:
    """`query`: PromQL with at most one series, failing above `target`. `count`: PromQL for the samples behind it; with
    fewer than `minimum` it decides nothing. Without it the value alone decides (a gauge). `side`: whose it is."""

    name: str
    query: str
    target: float
    count: str | None = None
    minimum: int = 30
    unit: str = "share"
    side: Literal["new side", "old side"] = "new side"


def metric_gates(ask: Callable[[str], float | None], wanted: Sequence[MetricGate]) -> tuple[Gate, ...]:
    """Gates from a metrics store: `ask` gives the value of a query, None without one, and raises Retryable or
    CheckFailed when it cannot be asked. What cannot be asked, or has no data, is inconclusive. The guard judges the
    same definitions by itself."""
    found = []
    for gate in wanted:
        name, source = f"{gate.side} {gate.name}", "Prometheus"
        try:
            value, n = ask(gate.query), ask(gate.count) if gate.count else None
        except (Retryable, CheckFailed) as error:
            found.append(no_data(name, source, error.what))
            continue
        seen = None if gate.count is None else int(n or 0)
        found.append(
            value_gate(name, value, seen, target=gate.target, minimum=gate.minimum, unit=gate.unit, source=source)
        )
    return tuple(found)


def error_gate(name: str, failed: int, n: int, *, target: float, minimum: int, source: str, detail: str = "") -> Gate:
    """`failed` of `n` requests against a `target` share; `minimum` samples are needed for a pass."""
    share = failed / n if n else None
    found: Verdict
    if share is None:
        found, why = "inconclusive", "no request was seen"
    elif failed > target * max(n, minimum):
        found, why = "fail", f"{failed} of {n} failed, at most {target:.2%} may"
    elif n < minimum:
        found, why = "inconclusive", f"too few samples: {n}, at least {minimum} are needed"
    elif share > target:
        found, why = "fail", f"{failed} of {n} failed, at most {target:.2%} may"
    else:
        found, why = "pass", f"{failed} of {n} failed"
    return _gate(name, found, target, share, "share", source, n, why + (f" ({detail})" if detail and failed else ""))


def value_gate(
    name: str, value: float | None, n: int | None, *, target: float, minimum: int, unit: str, source: str
) -> Gate:
    """A measured value (latency, saturation) against the most it may be, from `n` samples. `n` None: the source does
    not count samples (a gauge), and the value alone decides."""
    found: Verdict
    if value is None:
        found, why = "inconclusive", f"no data from {source}"
    elif n is not None and n < minimum:
        found, why = "inconclusive", f"too few samples: {n}, at least {minimum} are needed"
    else:
        found = "pass" if value <= target else "fail"
        why = f"{value:.4g} {unit}, at most {target:.4g}"
    return _gate(name, found, target, value, unit, source, n, why)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all are not above (nearest rank); None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(0, rank - 1)]


def no_data(name: str, source: str, why: str) -> Gate:
    """What could not be measured: inconclusive."""
    return _gate(name, "inconclusive", None, None, "share", source, 0, why)


def _gate(
    name: str, verdict: Verdict, target: float | None, value: float | None, unit: str, source: str, n: int | None,
    why: str,
) -> Gate:  # fmt: skip
    figure = Figure(value=value, unit=unit, basis="measured" if value is not None else "unknown", source=source, n=n)
    return Gate(name=name, verdict=verdict, target=target, figure=figure, why=why)
