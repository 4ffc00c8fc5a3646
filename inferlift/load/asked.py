"""What the user of `invoke load --url` asked for, and whether it can be carried out."""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from inferlift import secret
from inferlift.artifacts import Evidence, TrafficShape
from inferlift.errors import DeclarationError
from inferlift.load.arrivals import ramp, schedule
from inferlift.load.client import replay_schedule
from inferlift.load.endpoint import Sent
from inferlift.load.quality import load_cases
from inferlift.profile import Targets

RAMP_FROM = 10.0  # a ramp begins at this part of its rate
SEEDS = 36**4
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Asked:
    """What the user asked for. `prices` an hour, one an endpoint; None where not known."""

    urls: tuple[str, ...]
    requests: int = 1000
    users: int | None = None
    rate: float | None = None
    arrivals: str = "poisson"  # constant, poisson, bursty; ramp: rising to the rate
    shape: Path | None = None
    seed: int | None = None  # of arrivals and of the texts' beginnings; None: drawn, and told
    find_knee: float | None = None  # highest rate to try
    knee_seconds: float = 20.0  # of each step
    sent: Sent = field(default_factory=Sent)
    targets: Targets = field(default_factory=lambda: Targets(error_share=0.01))
    quality: Path | None = None
    key: str | None = None
    key_header: str = "Authorization"
    ca: str | None = None
    prices: tuple[float | None, ...] = ()
    currency: str = "USD"
    warm_up: int | None = None  # None: a twentieth of the requests, at least 8
    idle_s: float | None = None
    check_self: bool = True
    timeout_s: float = 120.0
    deadline_s: float | None = None
    workers: int = 0  # Locust workers that send instead of this process
    bind: str = "127.0.0.1:5557"  # where they find this machine
    folder: Path | None = None  # for samples; None: .inferlift/load/TIME
    html: Path | None = None
    junit: Path | None = None
    replace: bool = False  # former results at these paths may go

    @property
    def texts(self) -> str:
        """The name of this test's texts: short, since it costs tokens."""
        n, found = self.seed or 0, ""
        while n or not found:
            n, digit = divmod(n, 36)
            found = _DIGITS[digit] + found
        return found


def drawn() -> int:
    """A seed nobody has used lately."""
    return secrets.randbelow(SEEDS)


def check(asked: Asked) -> None:
    """Raises DeclarationError for what cannot be carried out."""
    if not asked.urls:
        raise DeclarationError("no endpoint was given", next_command="./invoke load --url http://HOST:PORT")
    pairs = (("users", asked.users), ("rate", asked.rate), ("shape", asked.shape), ("knee", asked.find_knee))
    given = [f"--{name}" for name, value in pairs if value is not None]
    if ("--users" in given and len(given) > 1 and not asked.workers) or {"--shape", "--knee"} <= set(given):
        raise DeclarationError(
            f"{' and '.join(given)} do not go together",
            why="users wait for their answers, a rate, a shape and a search for the knee do not",
        )
    if len(asked.prices) > len(asked.urls):
        raise DeclarationError(f"{len(asked.prices)} prices for {len(asked.urls)} endpoints")
    if any(price is not None and not (price >= 0 and math.isfinite(price)) for price in asked.prices):
        raise DeclarationError("a price is a number, and not negative")
    if asked.requests < 1 or (asked.users is not None and asked.users < 1):
        raise DeclarationError("at least one request and one user are needed")
    if asked.seed is not None and asked.seed < 0:
        raise DeclarationError(f"a seed is not negative, got {asked.seed}")
    for name, number in (("rate", asked.rate), ("knee", asked.find_knee), ("timeout", asked.timeout_s),
                         ("deadline", asked.deadline_s), ("idle", asked.idle_s)):  # fmt: skip
        if number is not None and not (math.isfinite(number) and number >= 0):
            raise DeclarationError(f"--{name} is a finite number and not negative, got {number}")
    if asked.key is not None:
        secret.resolve(asked.key)  # told now, not after the warm-up
    if asked.quality is not None:
        load_cases(asked.quality)


def times(asked: Asked) -> tuple[float, ...] | None:
    """The send times, the same for every endpoint; None: a closed loop."""
    seed = asked.seed or 0
    if asked.shape is not None:
        return replay_schedule(_shape(asked.shape), asked.requests, asked.rate, seed=seed)
    if asked.rate is not None and asked.find_knee is None:
        if asked.arrivals == "ramp":
            return ramp(asked.requests, asked.rate / RAMP_FROM, asked.rate)
        return schedule(asked.arrivals, asked.requests, asked.rate, seed=seed)
    return None


def _shape(path: Path) -> TrafficShape:
    """Of an audit's evidence, or the shape alone."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document = document.get("artifact", document)
        return Evidence.model_validate(document).shape if "shape" in document else TrafficShape.model_validate(document)
    except (OSError, ValueError, AttributeError) as error:
        raise DeclarationError(
            f"{path} holds no traffic shape", why=str(error).splitlines()[0],
            next_command="./invoke audit --profile NAME --json > evidence.json",
        ) from None  # fmt: skip
