"""The fleet as poc, migrate and scale share it: one desired document, made and configured the same way."""

from __future__ import annotations

from typing import Any

from inferlift import ssh
from inferlift.artifacts import (
    Check,
    Configured,
    Contract,
    DesiredFleet,
    Endpoint,
    Fleet,
    Service,
    Status,
    Transfer,
    World,
)
from inferlift.errors import CheckFailed, Held, Refusal
from inferlift.ledger import Intent
from inferlift.secret import resolve
from inferlift.stages import _edge
from inferlift.stages._certifying import certify, in_time
from inferlift.stages._common import protocol
from inferlift.stages._configuring import configure_fleet, configure_under_users, contract_of, keys
from inferlift.stages._moving import copy_data, deliver, strip
from inferlift.stages._wanted import expiring
from inferlift.stages.base import Context, Settled, moved

READY_COMPLETIONS = 5
READY_WITHIN_S = 60


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
        lambda: provision.apply_fleet(expiring(ctx, wanted), ctx.folder, ctx.tools(), ctx.say),
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
    configured = ctx.step("configure", lambda: _configure(ctx, fleet), Configured, subject=fleet.label)
    service = _service(ctx, fleet, contract, configured)
    ctx.ledger.set_document("service", service)
    return service


def _configure(ctx: Context, fleet: Fleet) -> Configured:
    from inferlift import configure

    known = ctx.ledger.document("service")
    before = {h["name"]: h["container"] for h in known["fleet"]["hosts"]} if known else {}
    configure.forget(ctx.path("fleet"), [h.name for h in fleet.hosts if before.get(h.name) != h.container])
    if moved(ctx.ledger):
        return configure_under_users(ctx, fleet, current(ctx).fleet)
    return configure_fleet(ctx, fleet)


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
