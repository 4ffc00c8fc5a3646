"""The fleet as poc, migrate and scale share it: one desired document, made and configured the same way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from inferlift import ssh
from inferlift.artifacts import (
    Check,
    Configured,
    Contract,
    DesiredFleet,
    Endpoint,
    Evidence,
    Fleet,
    Host,
    Images,
    Offer,
    Service,
    Sizing,
    Status,
    Transfer,
    World,
)
from inferlift.errors import CheckFailed, Held, Refusal
from inferlift.ledger import Intent
from inferlift.secret import resolve
from inferlift.stages import _edge
from inferlift.stages._certifying import certify, in_time
from inferlift.stages._common import protocol, server_wheels
from inferlift.stages._moving import copy_data, deliver, strip
from inferlift.stages._plan import planned
from inferlift.stages.base import Context, Settled, moved
from inferlift.tree import tree_digest

READY_COMPLETIONS = 5
READY_WITHIN_S = 60
PLAYBOOK_S = 900  # for all of it but the model's weights


def desired(ctx: Context, **floors: int) -> DesiredFleet:
    """The one fleet document, with this stage's floor raised; nobody's floor is lowered here."""
    known = ctx.ledger.document("floors") or {}
    return document(ctx, {**known, **floors})


def document(ctx: Context, floors: dict[str, int]) -> DesiredFleet:
    from inferlift import provision

    rights = _edge.guard_rights(ctx.profile)
    return provision.fleet_document(ctx.profile, lambda: sized(ctx), f"{ctx.owner}/fleet", floors, rights)


def sized(ctx: Context) -> Sizing:
    """The sizing of its stage; before that has run, what it would say."""
    return ctx.optional("size", Sizing) or planned(ctx.profile, ctx.optional("audit", Evidence))


def lift_expiry(ctx: Context) -> None:
    """Before the first user is moved: nothing of the fleet may end by itself any more, and that is read back.

    Raises CheckFailed naming what still expires. Asked of the world each time: a kill may have been in between.
    """
    known = ctx.ledger.document("expiry")
    if known is None:
        return  # nothing of this fleet was ever to end by itself
    from inferlift import provision

    with ctx.intent("expiry", f"{ctx.owner}/fleet", {"expiry": known["at"]}, {"expiry": None}):
        provision.lift_expiry(desired(ctx), ctx.folder, ctx.tools(), ctx.say)
    ctx.ledger.set_document("expiry", {"at": None})


def _expiring(ctx: Context, wanted: DesiredFleet) -> DesiredFleet:
    """With the proof of concept's expiry, until it was lifted."""
    from inferlift import provision

    known = ctx.ledger.document("expiry")
    if known is not None and known["at"] is None:
        return wanted
    at = provision.expires(wanted, known["at"] if known else None, datetime.now(UTC))
    if at is not None:
        ctx.ledger.set_document("expiry", {"at": at})
    return provision.expiring(wanted, at)


def _affordable(ctx: Context, wanted: DesiredFleet) -> None:
    """What the account says before more hosts are made than there are. Raises Refusal with all that is missing."""
    from inferlift import provision

    body = ctx.ledger.document("service")
    count = sum(g.count for g in wanted.groups)
    if body is not None and len(body["fleet"]["hosts"]) >= count > 0:
        return
    bad = [c for c in provision.check_before_spending(wanted, ctx.say) if not c.ok]
    if bad:
        raise Refusal(
            "the account is not ready for this fleet",
            why="; ".join(f"{c.name}: {c.detail}" for c in bad),
            next_command=f"mend that, then ./invoke plan --profile {ctx.profile.name} (asks all of it again)",
        )


def _consented(ctx: Context, wanted: DesiredFleet) -> None:
    """Users are on these hosts, and a host that is to be another is made anew in its place: that needs no further host,
    and costs its answers meanwhile. Raises Held until somebody approves just that."""
    from inferlift import provision

    service = current(ctx)
    drifts = provision.drift_fleet(wanted, ctx.folder, ctx.tools())
    anew = {d.resource.removeprefix("host ") for d in drifts if d.change == "changed"}
    named = [h.name for h in service.fleet.hosts if h.name in anew]
    if not named:
        return
    models = service.fleet.by_role("model")
    left = 0 if any(not n.startswith("model-") for n in named) else sum(h.name not in anew for h in models)
    why = (
        f"{', '.join(named)} of fleet {service.fleet.generation[:8]}: {left} of {len(models)} replicas answer meanwhile"
    )
    if ctx.overruled(ctx.stage, why):
        return
    raise Held(
        "users are on hosts that would be made anew in their place",
        why=why,
        next_command=f"./invoke approve --profile {ctx.profile.name} --reason '...' (with that downtime), or first "
        f"./invoke rollback --profile {ctx.profile.name}",
    )


def serve(ctx: Context, wanted: DesiredFleet) -> Service:
    """Hosts, then data where users already rely on it, then configuration, then real completions in a row."""
    from inferlift import provision

    _affordable(ctx, wanted)
    if moved(ctx.ledger):
        _consented(ctx, wanted)
    ctx.ledger.set_document("floors", wanted.floors)
    fleet = ctx.step(
        "provision",
        lambda: provision.apply_fleet(_expiring(ctx, wanted), ctx.folder, ctx.tools(), ctx.say),
        Fleet,
        subject=wanted.label,
        before={"hosts": _names(ctx)},
        planned={g.role: g.count for g in wanted.groups},
    )
    if not wanted.groups:
        return _queue(ctx, fleet)
    moved_data = ctx.ledger.stage("migrate")
    if moved_data is not None and moved_data.status is Status.DONE:
        ctx.step(
            "data", lambda: copy_data(ctx, fleet), Transfer, subject=", ".join(h.name for h in fleet.by_role("model"))
        )
    certify(ctx)
    deliver(ctx, fleet, lambda names: configure_fleet(ctx, fleet, only=names, tags=["base"]))
    contract = contract_of(ctx)
    how = configure_under_users if moved(ctx.ledger) else configure_fleet
    configured = ctx.step("configure", lambda: how(ctx, fleet), Configured, subject=fleet.label)
    service = _service(ctx, fleet, contract, configured)
    ctx.ledger.set_document("service", service)
    return service


def queued(ctx: Context, what: str) -> str | None:
    """Why a stage that is about hosts and users makes no sense where jobs wait in a queue; None where it does."""
    return f"jobs wait in a queue: {what}" if ctx.profile.task == "batch" else None


def _queue(ctx: Context, fleet: Fleet) -> Service:
    """A queue has no hosts while there are no jobs: nothing to configure, nobody to answer."""
    from inferlift import provision

    name = fleet.stores.get("job queue", "")
    checks = provision.verify_fleet(fleet, ctx.folder, ctx.tools())
    if bad := [c for c in checks if not c.ok]:
        raise CheckFailed("the queue does not take jobs", why="; ".join(f"{c.name}: {c.detail}" for c in bad))
    service = Service(
        fleet=fleet, configured=Configured(hosts={}, changed=0, seconds=0.0), contract=None, replicas=0,
        endpoint=Endpoint(site=fleet.aws.sites[0].name if fleet.aws else "", address=name), checks=tuple(checks),
    )  # fmt: skip
    ctx.ledger.set_document("service", service)
    return service


def current(ctx: Context) -> Service:
    """The service as it was last made. Raises Refusal when there is none."""
    body = ctx.ledger.document("service")
    return Service.model_validate(body) if body else ctx.need("poc", Service)


def wait_up(ctx: Context, service: Service) -> None:
    """Until the gateway sends requests to every replica. Raises CheckFailed naming those that stay away."""
    for part in service.fleet.at_sites():
        _wait_up(ctx, part.by_role("gateway")[0], [h.name for h in part.by_role("model")])


def _wait_up(ctx: Context, gateway: Host, names: Sequence[str], *, limit_s: float = 90) -> None:
    from inferlift.configure import gateway as gateway_api

    deadline = time.monotonic() + limit_s
    while True:
        up = {s.name for s in gateway_api.servers(gateway) if s.status.startswith("UP")}
        if not (missing := [n for n in names if n not in up]):
            return
        if time.monotonic() > deadline:
            raise CheckFailed(
                f"the gateway sends nothing to {', '.join(missing)}",
                why=f"not up after {limit_s:.0f} s",
                next_command=f"./invoke {ctx.stage} --profile {ctx.profile.name} -v",
            )
        ctx.say(f"waiting for {', '.join(missing)}")
        time.sleep(0.5)


def verify_service(ctx: Context, service: Service) -> list[Check]:
    """Hosts by label, validators on each host, one real completion: side by side."""
    from inferlift import configure, provision
    from inferlift.load import probe

    tools = ctx.tools()
    if service.contract is None:
        return provision.verify_fleet(service.fleet, ctx.folder, tools)
    parts = {
        "fleet:hosts": lambda: _as_planned(ctx, provision.verify_fleet(service.fleet, ctx.folder, tools)),
        "fleet:roles": lambda: configure.validate(service.fleet, ctx.path("fleet")),
        "fleet:certificate": lambda: in_time(ctx),
        "fleet:answers": lambda: [
            probe.once(target_of(ctx, site), protocol=protocol(ctx)) for site in _edge.sites(service)
        ],
    }
    for name, look in parts.items():
        ctx.start_probe(name, _guarded(name, look))
    return [c for name, look in parts.items() for c in ctx.probe(name, look)]


def _as_planned(ctx: Context, checks: list[Check]) -> list[Check]:
    """A host that a stopped stage had begun to add is that stage's to finish, and no finding of the others."""
    wanted = max((ctx.ledger.document("floors") or {}).values(), default=0)
    begun = {f"host model-{n}" for n in range(1, wanted + 1)}
    return [c for c in checks if c.ok or c.name not in begun or "not part of what was made" not in c.detail]


def destroy(ctx: Context, *, delete_data: bool = False) -> list[str]:
    """All of the fleet; what holds data stays unless `delete_data`. Returns what is left by a new listing."""
    from inferlift import provision

    strip(ctx)
    left = provision.destroy_fleet(f"{ctx.owner}/fleet", ctx.folder, ctx.tools(), ctx.say, delete_data=delete_data)
    for document in ("floors", "service", "expiry"):
        ctx.ledger.drop_document(document)
    return left


def settle_fleet(ctx: Context, intent: Intent) -> Settled:
    if intent.action in ("provision", "destroy", "expiry"):
        from inferlift import provision

        provision.settle(ctx.folder, ctx.tools(), ctx.say)
        return "adopted"  # what exists is adopted by label when the step is repeated
    return "absent"


def contract_of(ctx: Context) -> Contract:
    return ctx.need("world", World).contract


def target_of(ctx: Context, service: Service, *, synthetic: bool = True) -> Any:
    """The new side under the old contract, pinned to the gateway. Synthetic requests do not count as users."""
    from inferlift import configure
    from inferlift.load.target import from_contract

    assert service.contract is not None  # noqa: S101 - stages that send requests are not for queues
    headers = {configure.SYNTHETIC_HEADER: resolve(keys(ctx)["synthetic_key"])} if synthetic else {}
    return from_contract(
        service.contract, address=service.endpoint.address, port=service.endpoint.port, extra_headers=headers,
        timeout_s=ctx.profile.load.request_timeout_s,
    )  # fmt: skip


def origin_target(ctx: Context) -> Any:
    from inferlift.load.target import from_contract

    world = ctx.need("world", World)
    return from_contract(world.contract, address=world.address, timeout_s=ctx.profile.load.request_timeout_s)


def roles_digest(ctx: Context) -> str:
    return tree_digest(ctx.root / "playbooks") + tree_digest(ctx.root / "templates")


def configure_fleet(
    ctx: Context, fleet: Fleet, *, only: Sequence[str] = (), tags: Sequence[str] = (), check: bool = False
) -> Configured:
    """The playbook over all hosts or `only` some, all roles or those of `tags`; a second run changes nothing.

    Each site is configured by itself: it knows nothing of the others.
    """
    parts = [(part, [h.name for h in part.hosts if h.name in only]) for part in fleet.at_sites()]
    wanted = [(part, names) for part, names in parts if names or not only]
    return _together([_configure_site(ctx, part, only=names, tags=tags, check=check) for part, names in wanted])


def _configure_site(ctx: Context, fleet: Fleet, *, only: Sequence[str], tags: Sequence[str], check: bool) -> Configured:
    from inferlift import configure

    wheels = server_wheels(ctx, ctx.profile.server.kind)
    folder = ctx.path("fleet")
    configure.fleet_certificates(folder / "tls", fleet)
    sizing = ctx.optional("size", Sizing)
    models = configure.model_variables(
        ctx.profile,
        fleet,
        sizing,
        offer=_offer(ctx, sizing),
        secrets=keys(ctx),
        root=ctx.root,
        wheels=wheels,
    )
    made = configure.fleet_variables(
        ctx.profile,
        fleet,
        contract_of(ctx),
        ctx.need("build", Images),
        secrets=keys(ctx),
        tls_folder=folder / "tls",
        wheels=wheels,
        workers=[h.name for copy in configure.clusters(fleet) for h in copy[1:]],
        resolvers=_resolvers(ctx),
        model_cost_per_hour=_model_cost(ctx),
    )
    made = models.over(made)
    return configure.apply(
        fleet.hosts, "site.yml", made.variables, made.secrets, folder, ctx.say, tags, only, check=check,
        timeout_s=PLAYBOOK_S + (ctx.profile.server.deadline_s if "weights_models" in made.variables else 0),
    )  # fmt: skip


def _offer(ctx: Context, sizing: Sizing | None) -> Offer | None:
    """What the plan chose, for its local disks; only hosts with GPUs are told of them."""
    from inferlift.stages._plan import offers_of

    if sizing is None or sizing.serving is None or sizing.serving.gpu is None:
        return None
    named = [one for one in offers_of(ctx.profile) if one.name == sizing.choice]
    return next((one for one in named if one.region == sizing.region), None)


def configure_under_users(ctx: Context, fleet: Fleet) -> Configured:
    """Users are on the fleet: a model host that would change is drained first, one host at a time."""
    return _together([_site_under_users(ctx, part) for part in fleet.at_sites()])


def _site_under_users(ctx: Context, fleet: Fleet) -> Configured:
    from inferlift.configure import gateway as gateway_api

    before = {h.name: h.container for h in current(ctx).fleet.hosts}
    standing = [h.name for h in fleet.by_role("model") if before.get(h.name) == h.container]
    would = configure_fleet(ctx, fleet, only=standing, check=True).hosts if standing else {}
    touched = [name for name in standing if would[name]["changed"]]
    done = [configure_fleet(ctx, fleet, only=[h.name for h in fleet.hosts if h.name not in touched])]
    gateway = fleet.by_role("gateway")[0]
    for left in gateway_api.servers(gateway):
        if left.status.startswith("DRAIN"):  # of a run that was killed while it changed that host
            gateway_api.undrain(gateway, left.name)
    for name in touched:
        ctx.say(f"{name} changes: drained first")
        try:
            gateway_api.drain(gateway, name)
            done.append(configure_fleet(ctx, fleet, only=[name]))
        finally:
            gateway_api.undrain(gateway, name)
        _wait_up(ctx, gateway, [name])
    return _together(done)


def _together(done: Sequence[Configured]) -> Configured:
    return Configured(
        hosts={name: counts for one in done for name, counts in one.hosts.items()},
        changed=sum(one.changed for one in done),
        seconds=sum(one.seconds for one in done),
        skipped=tuple(dict.fromkeys(line for one in done for line in one.skipped)),
    )


def _resolvers(ctx: Context) -> tuple[str, ...]:
    """Name servers that the monitor asks for the users' name: in the lab the old world's, else those declared."""
    world = ctx.world()
    return world.resolvers if world is not None else ()


def _model_cost(ctx: Context) -> float | None:
    """An hour of one model host by the plan; None where its price is unknown."""
    sizing = ctx.optional("size", Sizing)
    hour = sizing.cost_per_hour.value if sizing is not None else None
    return None if sizing is None or hour is None else round(hour / (sizing.replicas + sizing.spare), 6)


def keys(ctx: Context) -> dict[str, str]:
    """References to the fleet's own keys and password."""
    from inferlift import configure

    return configure.fleet_secrets(ctx.path("fleet") / "secrets")


def _service(ctx: Context, fleet: Fleet, contract: Contract, configured: Configured) -> Service:
    from inferlift import configure
    from inferlift.load import probe

    monitor = fleet.by_role("monitor")[0]
    draft = Service(
        fleet=fleet,
        configured=configured,
        endpoint=fleet.endpoints[0],
        contract=contract,
        replicas=len(fleet.by_role("model")),
        checks=(),
        monitor_url=f"https://{monitor.address}:{configure.MONITOR_PORT}",
        monitor_user=configure.MONITOR_USER,
        monitor_password=keys(ctx)["monitor_password"],
        ca=str(ctx.path("fleet") / "tls" / "ca.pem"),
    )
    checks = [
        *configure.validate(fleet, ctx.path("fleet")),
        *(
            check
            for site in _edge.sites(draft)
            for check in probe.complete(
                target_of(ctx, site), READY_COMPLETIONS, ctx.say, wait_s=READY_WITHIN_S, protocol=protocol(ctx)
            )
        ),
    ]
    bad = [c for c in checks if not c.ok and not c.skipped]
    if bad:
        raise CheckFailed(
            f"the fleet is configured but not ready: {bad[0].name}",
            why="; ".join(f"{c.name}: {c.detail}" for c in bad[:4]),
            next_command=f"./invoke {ctx.stage} --profile {ctx.profile.name} -v",
        )
    return draft.model_copy(update={"checks": tuple(checks), "versions": _versions(fleet)})


def _versions(fleet: Fleet) -> dict[str, str]:
    """What is installed where it matters, for the lock file."""
    look = {
        "gateway": "dpkg-query -W -f '${Package} ${Version}\\n' haproxy nftables",
        "monitor": "dpkg-query -W -f '${Package} ${Version}\\n' prometheus prometheus-alertmanager",
        "model": "dpkg-query -W -f '${Package} ${Version}\\n' podman crun python3",
    }
    found = {}
    for role, command in look.items():
        for line in ssh.run(fleet.by_role(role)[0], command, timeout_s=20).stdout.splitlines():
            package, _, version = line.partition(" ")
            found[package] = version
    return found


def _names(ctx: Context) -> list[str]:
    body = ctx.ledger.document("service")
    return [h.name for h in Service.model_validate(body).fleet.hosts] if body else []


def _guarded(name: str, look: Any) -> Any:
    """A probe that cannot look is a finding, not the end of the other probes."""
    from inferlift.errors import InferliftError

    def guarded() -> list[Check]:
        try:
            found: list[Check] = look()
            return found
        except InferliftError as error:
            return [Check(name=name, ok=False, detail=str(error).replace("\n", " "))]

    return guarded


__all__ = ["contract_of", "current", "desired", "document", "serve", "verify_service"]
