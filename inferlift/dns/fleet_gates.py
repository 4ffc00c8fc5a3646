"""What Prometheus says of the new side: errors, latency, saturation, and whether anything answers at all.

The figures are those of the fleet's own gateway and app, so that they need no rule of the monitor's.
"""

from __future__ import annotations

from inferlift.dns.gating import MetricGate
from inferlift.profile import Profile

USERS = 'proxy="users"'  # HAProxy's frontend that users come to
MODELS = 'proxy="models"'


def fleet_gates(profile: Profile, window_s: int, *, minimum: int) -> tuple[MetricGate, ...]:
    """Gates over the last `window_s` seconds; `minimum`: requests in it below which shares and latencies decide
    nothing. The last three look at this moment and need no request: a gateway that is gone sees none."""
    targets, within = profile.targets, f"[{window_s}s]"
    requests = f"sum(increase(haproxy_frontend_http_requests_total{{{USERS}}}{within}))"
    failed = f'sum(increase(haproxy_frontend_http_responses_total{{{USERS},code="5xx"}}{within}))'
    found = [MetricGate("errors", f"{failed} / {requests}", targets.error_share, count=requests, minimum=minimum)]
    for name, metric, limit_ms in (
        ("P95", "app_request_seconds", targets.p95_total_ms),
        ("TTFT P95", "app_ttft_seconds", targets.p95_ttft_ms),
    ):
        if limit_ms is not None:
            buckets = f"sum by (le) (increase({metric}_bucket{within}))"
            found.append(
                MetricGate(
                    name, f"1000 * histogram_quantile(0.95, {buckets})", limit_ms,
                    count=f"sum(increase({metric}_count{within}))", minimum=minimum, unit="ms",
                )
            )  # fmt: skip
    waiting = f"sum(haproxy_backend_current_queue{{{MODELS}}})"
    up = f'sum(haproxy_server_status{{{MODELS},state="UP"}})'
    return (
        *found,
        MetricGate("waiting requests", waiting, float(profile.requests.in_flight_peak), unit="requests"),
        MetricGate("gateways away", '1 - min(up{job="gateway"})', 0.0, unit="yes/no"),
        MetricGate("no replica", f"1 - clamp_max({up}, 1)", 0.0, unit="yes/no"),
    )
