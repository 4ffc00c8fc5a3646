"""A small client of Prometheus' HTTP API: TLS against a given CA, basic auth, errors as ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import requests

from inferlift import secret
from inferlift.artifacts import Host, Service
from inferlift.errors import CheckFailed, Retryable
from inferlift.observe.through import Through

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Sample:
    labels: Mapping[str, str]
    at: float  # unix seconds
    value: float


@dataclass(frozen=True)
class Line:
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]  # (unix seconds, value), no NaN


class Prometheus:
    """`password` is a secret reference, read at each call. `through`: the host that it runs on, where only SSH reaches
    that. Every method raises Retryable when the server does not answer or is not ready, CheckFailed when it answers
    that the call is wrong or the caller not allowed."""

    def __init__(self, url: str, ca: str, user: str, password: str, through: Host | None = None) -> None:
        self._url, self._ca, self._user, self._password = url.rstrip("/"), ca, user, password
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy and no netrc for the fleet's own addresses
        if through is not None:
            self._session.mount("https://", Through(through))

    @classmethod
    def of(cls, service: Service) -> Prometheus:
        """The monitor's; behind a bastion it is asked over the same pinned SSH as everything else there."""
        monitor = service.fleet.by_role("monitor")[0]
        through = monitor if monitor.jump is not None else None
        return cls(service.monitor_url, service.ca, service.monitor_user, service.monitor_password, through)

    def query(self, expression: str, at: datetime) -> list[Sample]:
        """An instant vector at a time; NaN and infinite values are left out."""
        data = self._get("query", {"query": expression, "time": at.timestamp()})
        found = []
        for row in data["result"]:
            value = float(row["value"][1])
            if math.isfinite(value):
                found.append(Sample(row["metric"], float(row["value"][0]), value))
        return found

    def scalar(self, expression: str, at: datetime) -> float | None:
        """The value of an expression with at most one series; None when it has none.

        Raises CheckFailed when it has several: the expression is wrong then."""
        found = self.query(expression, at)
        if len(found) > 1:
            raise CheckFailed(f"{expression} has {len(found)} series where one was expected")
        return found[0].value if found else None

    def query_range(self, expression: str, start: datetime, end: datetime, step_s: float) -> list[Line]:
        given = {"query": expression, "start": start.timestamp(), "end": end.timestamp(), "step": step_s}
        lines = []
        for row in self._get("query_range", given)["result"]:
            points = ((float(at), float(value)) for at, value in row["values"])
            lines.append(Line(row["metric"], tuple(p for p in points if math.isfinite(p[1]))))
        return lines

    def _get(self, what: str, parameters: dict[str, Any]) -> dict[str, Any]:
        where = f"Prometheus at {self._url}"
        try:
            answer = self._session.post(
                f"{self._url}/api/v1/{what}",
                data=parameters,
                auth=(self._user, secret.resolve(self._password)),
                verify=self._ca,
                timeout=_TIMEOUT_S,
            )
        except requests.exceptions.SSLError as error:
            raise CheckFailed(f"{where} has a certificate that its CA does not vouch for", why=_cause(error)) from None
        except requests.RequestException as error:
            raise Retryable(
                f"{where} does not answer", why=_cause(error), next_command="run the same command again"
            ) from None
        if answer.status_code in (401, 403):
            raise CheckFailed(f"{where} refuses the user {self._user}", why=f"HTTP {answer.status_code}")
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if not isinstance(body, dict) or body.get("status") != "success":
            reason = str(body.get("error", "")) if isinstance(body, dict) else ""
            kind = CheckFailed if answer.status_code in (400, 404, 422) or answer.ok else Retryable
            raise kind(
                f"{where} could not answer {what}",
                why=(reason or f"HTTP {answer.status_code}, no Prometheus answer") + f" ({parameters['query']})",
            )
        return dict(body["data"])


def _cause(error: Exception) -> str:
    """The innermost reason, without the address book of wrapped exceptions around it."""
    seen: BaseException = error
    while isinstance(seen.args[:1], tuple) and seen.args and isinstance(seen.args[-1], BaseException):
        seen = seen.args[-1]
    reason = getattr(seen, "reason", None)
    return str(reason or seen)[-200:]
