"""One look at both sides while users move: pinned requests, users, Prometheus, the old side's log, quality."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

from inferlift import ssh
from inferlift.artifacts import Check, Figure, Gate, LoadRun, Service, World
from inferlift.errors import Retryable
from inferlift.ledger import now
from inferlift.stages import _answers, _fleet, _old_side, _users
from inferlift.stages._common import protocol, quality_cases, questions
from inferlift.stages.base import Context

COMPARED = 8  # requests to each side at the first look
SLOWER = 1.5  # times the old side's median that the new one's may be at the first look
CLIENTS, CLIENT_S = 3, 30.0  # requests by name at a look where no users of ours are sent, seconds for each
SCRAPES = 5  # of Prometheus that a window must hold
SURE = 0.01  # a quality sample fails when one as bad is rarer than this on a side that meets the target


class Judge:
    """`judge(weight)` is one look at a site. What is looked at since when: the window begins as the weight was set."""

    def __init__(self, ctx: Context, world: World, service: Service, region: str | None = None) -> None:
        self.ctx, self.world, self.service = ctx, world, service
        self.region = region  # the name that this region's users are sent to, of several; None: the users' own
        self._weight: int | None = None
        self._since = self._ended = time.time()
        self._right = self._asked = 0  # of the quality samples so far: the same replicas answer at every weight

    def __call__(self, weight: int) -> tuple[Gate, ...]:
        if weight != self._weight:
            self._weight, self._since = weight, self._ended
        began = datetime.now(UTC)
        pinned = self._pinned(weight)
        found = (
            *self._targets(pinned),
            *((*self._against_old(), *self._shadow()) if weight == 0 else ()),
            *self._quality(),
            *self._metrics(),
            self._by_name(began),
            _old_side.gate(self.world, began),
        )
        self._ended = time.time()
        return found

    def _pinned(self, weight: int) -> LoadRun:
        """So many synthetic requests to the new side's own address that there are enough samples at 1 % too."""
        count = self.ctx.profile.switch.min_samples
        users = min(count, self.ctx.profile.server.slots)
        return self._sent(_fleet.target_of(self.ctx, self.service), count, users, f"{weight} %", f"switch-{weight}")

    def _targets(self, run: LoadRun) -> tuple[Gate, ...]:
        from inferlift.load.gates import gates

        # quality is sampled below
        targets = self.ctx.profile.targets.model_copy(update={"quality": None})
        return gates(targets, run, None, minimum_requests=self.ctx.profile.switch.min_samples)

    def _against_old(self) -> tuple[Gate, ...]:
        """The first switch has no history: the new side is held against the old one, asked in the same minute."""
        from inferlift.dns.gating import no_data, quantile, value_gate
        from inferlift.dns.pinned import MARGIN_MS

        was = self._sent(_fleet.origin_target(self.ctx), COMPARED, 1, "old side", "switch-old")
        is_now = self._sent(_fleet.target_of(self.ctx, self.service), COMPARED, 1, "new side", "switch-new")
        name, source = "new side median against the old side", f"{COMPARED} requests to each side"
        # so few have no P95 worth the name, and a busy moment must not undo a switch
        before, after = quantile(was.latencies_ms, 0.5), quantile(is_now.latencies_ms, 0.5)
        if before is None:
            return (no_data(name, source, "the old side answered none of them well"),)
        limit = max(SLOWER * before, before + MARGIN_MS)
        return (
            value_gate(
                name, after, len(is_now.latencies_ms), target=limit, minimum=COMPARED // 2, unit="ms", source=source,
            ),
        )  # fmt: skip

    def _shadow(self) -> tuple[Gate, ...]:
        """Where somebody put the shadow snippet into the old nginx: both answers to the same requests, compared."""
        from inferlift.dns import shadow

        lines = ssh.run(self.world.origin, f"tail -n 4000 {shadow.LOG} 2>/dev/null; true", timeout_s=20).stdout
        if not lines.strip():
            return ()
        return shadow.shadow_gates(shadow.compare(lines.splitlines()), minimum=self.ctx.profile.switch.min_samples)

    def _quality(self) -> tuple[Gate, ...]:
        """A few checkable prompts a look, counted together over the whole switch."""
        from inferlift.load.quality import assess

        wanted, cases = self.ctx.profile.targets.quality, quality_cases(self.ctx)
        n = self.ctx.profile.switch.quality_samples
        if wanted is None or not cases or not n:
            return ()
        first = self._asked % len(cases)
        asked = (cases[first:] + cases[:first])[:n]
        target = _fleet.target_of(self.ctx, self.service)
        seen = assess(target, asked, users=2, protocol=protocol(self.ctx, asked))
        self._asked, self._right = self._asked + seen.n, self._right + seen.correct
        return (sampled(wanted, self._right, self._asked),)

    def _by_name(self, began: datetime) -> Gate:
        """What users saw; where none of ours are sent, a client that resolves the name as they do, three times.

        Of several regions each is asked by the name that its own users are sent to: this machine is in one of them.
        """
        from inferlift.dns.gating import error_gate

        lab = self.ctx.profile.raised
        if lab is not None and lab.users:
            return _users.gate(self.ctx, "switch", began)
        bad = [c.detail for c in (self._client() for _ in range(CLIENTS)) if not c.ok]
        return error_gate(
            "client by name", len(bad), CLIENTS, target=0.0, minimum=CLIENTS, source="a client by name",
            detail="; ".join(bad[:1]),
        )  # fmt: skip

    def _client(self) -> Check:
        from inferlift.load import probe
        from inferlift.load.target import from_contract

        address, resolver = None, _answers.users_resolver(self.ctx, self.world)
        if self.region is not None:
            try:
                address = _answers.answered(self.ctx, self.world, self.region)
            except Retryable as error:
                return Check(name="completion", ok=False, detail=str(error))
        target = from_contract(self.world.contract, address=address, resolver=resolver, timeout_s=CLIENT_S)
        return probe.once(target, timeout_s=CLIENT_S, protocol=protocol(self.ctx))

    def _metrics(self) -> tuple[Gate, ...]:
        from inferlift.dns.fleet_gates import fleet_gates
        from inferlift.dns.gating import metric_gates
        from inferlift.observe import Prometheus

        service, profile = self.service, self.ctx.profile
        scrape_s = 2 if profile.lab is not None else 15  # as configure/variables.py tells the monitor
        window = max(SCRAPES * scrape_s, math.ceil(time.time() - self._since))
        wanted = fleet_gates(profile, window, minimum=max(1, profile.switch.min_samples // 2))
        time.sleep(scrape_s)  # what was just sent is in the next scrape
        client = Prometheus.of(service)
        return metric_gates(lambda query: client.scalar(query, datetime.now(UTC)), wanted)

    def _sent(self, target: Any, count: int, users: int, label: str, file: str) -> LoadRun:
        from inferlift.load.client import LoadPlan, run

        plan = LoadPlan(
            target=target, requests=count, users=users, prompts=questions(self.ctx),
            max_tokens=self.ctx.profile.requests.output_tokens, request_timeout_s=30, deadline_s=120, label=label,
            protocol=protocol(self.ctx),
            samples=self.ctx.path("samples") / f"{file}-{self.ctx.ledger.run}.jsonl",
        )  # fmt: skip
        return run(plan, self.ctx.say)


def sampled(wanted: float, right: int, n: int) -> Gate:
    """A quality sample against a target share. A handful decides nothing but the grossest: it fails when a side that
    meets the target would give one as bad less often than once in a hundred."""
    figure = Figure(
        value=right / n if n else None, unit="share", basis="measured" if n else "unknown",
        source="checkable prompts, greedy decoding", at=now(), n=n,
    )  # fmt: skip
    if not n:
        return Gate(
            name="quality sample", verdict="inconclusive", target=wanted, figure=figure, why="no prompt was answered"
        )
    chance = sum(math.comb(n, k) * wanted**k * (1 - wanted) ** (n - k) for k in range(right + 1))
    why = f"{right} of {n} right, at least {wanted:.0%} wanted"
    verdict = "fail" if chance < SURE else "pass"
    return Gate(name="quality sample", verdict=verdict, target=wanted, figure=figure, why=why)
