"""An old world that the lab raises: old host with its traffic, authoritative DNS, resolver."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from inferlift import ssh
from inferlift.artifacts import Artifact, Check, Configured, Contract, Host, LoadRun, RaisedLab, Route, World
from inferlift.errors import CheckFailed, InferliftError
from inferlift.ledger import Intent
from inferlift.stages._common import protocol, questions, server_wheels
from inferlift.stages.base import Context, Settled, Stage
from inferlift.tree import tree_digest

if TYPE_CHECKING:
    from inferlift.configure.world import Workload
    from inferlift.provision import WorldHosts


SERVICES = {"authority": ("nginx", "pdns"), "resolver": ("unbound",)}


class Raised(Stage):
    name = "world"
    artifact = World

    def key(self, ctx: Context) -> dict[str, Any]:
        lab = ctx.profile.raised
        assert lab is not None  # noqa: S101
        roles = ctx.root / "playbooks" / "roles"
        return {
            "zone": [lab.zone, lab.host, lab.ttl_s],
            "origin_cpus": lab.origin_cpus,
            "workload": tree_digest(ctx.root / "templates" / "workloads" / lab.workload),
            "roles": [
                tree_digest(roles / r) for r in ("origin", "authority", "resolver", *_workload(ctx).server_roles)
            ],
            "traffic": [lab.traffic_requests, lab.traffic_users],
        }

    def preview(self, ctx: Context) -> list[str]:
        lab = ctx.profile.raised
        assert lab is not None  # noqa: S101
        return [
            f"raise the old world: origin, authority, resolver; send {lab.traffic_requests} requests to the old side"
        ]

    def run(self, ctx: Context) -> World:
        return self._with_traffic(ctx, self._raise(ctx))

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> World:
        """Hosts and services as they were; traffic is sent again only where the log that it left is gone."""
        assert isinstance(artifact, World)  # noqa: S101
        world = self._raise(ctx)
        ctx.ledger.drop_document("decommissioned")  # all of it runs again
        counted = ssh.run(world.origin, f"cat {world.log_glob} | wc -l", timeout_s=20).stdout
        if int(counted or 0) >= artifact.made.requests_sent:
            return _counting(world, artifact.made.requests_sent)
        return self._with_traffic(ctx, world)

    def _raise(self, ctx: Context) -> World:
        from inferlift import provision
        from inferlift.load import probe

        lab = ctx.profile.raised
        assert lab is not None  # noqa: S101
        made = ctx.step(
            "provision",
            lambda: provision.apply_world(
                f"{ctx.owner}/world", ctx.folder, ctx.tools(), lab.origin_cpus, lab.zone, lab.host, ctx.say
            ),
            provision.WorldHosts,
            subject=f"{ctx.owner}/world",
        )
        world = self._describe(ctx, made)
        ctx.step("configure", lambda: self._configure(ctx, world), Configured)
        bad = [c for c in probe.complete(_origin(ctx, world), 2, ctx.say, protocol=protocol(ctx)) if not c.ok]
        if bad:
            again = f"./invoke lab up --profile {ctx.profile.name} -v"
            raise CheckFailed("the old side does not answer", why=bad[0].detail, next_command=again)
        return world

    def _with_traffic(self, ctx: Context, world: World) -> World:
        from inferlift.load.traffic import drive

        lab = ctx.profile.raised
        assert lab is not None  # noqa: S101
        if lab.traffic_requests:
            run = ctx.step(
                "traffic",
                lambda: drive(
                    _origin(ctx, world), lab.traffic_requests, lab.traffic_users, questions(ctx),
                    max_tokens=ctx.profile.requests.output_tokens,
                    samples=ctx.path("samples") / f"traffic-{ctx.ledger.run}.jsonl", say=ctx.say,
                    protocol=protocol(ctx),
                ),
                LoadRun,
                planned={"requests": lab.traffic_requests},
            )  # fmt: skip
            world = _counting(world, run.counts.ok)
        return world

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        from inferlift import provision

        assert isinstance(artifact, World)  # noqa: S101
        made = provision.WorldHosts(
            label=artifact.made.label,
            network=artifact.made.network,
            subnet=artifact.made.subnet,
            origin=artifact.origin,
            authority=artifact.authority,
            resolver=artifact.resolver,
        )
        hosts = (artifact.origin, artifact.authority, artifact.resolver)
        off = ctx.ledger.document("decommissioned") is not None
        with ThreadPoolExecutor(len(hosts)) as pool:
            origin, own = hosts[0], origin_services(ctx)
            looked = pool.map(
                lambda h: _off(h) if off and h is origin else _services(h, SERVICES.get(h.role, own)), hosts
            )
            return [*provision.verify_world(made, ctx.folder, ctx.tools()), *looked]

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        if intent.action in ("provision", "down"):
            from inferlift import provision

            provision.settle(ctx.folder, ctx.tools(), ctx.say)
            return "adopted"
        return "absent"

    def undo(self, ctx: Context) -> list[str]:
        from inferlift import provision

        return provision.destroy_world(f"{ctx.owner}/world", ctx.folder, ctx.tools(), ctx.say)

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, World)  # noqa: S101
        return (
            f"{artifact.contract.name} at {artifact.origin.address}, {artifact.made.requests_sent} requests sent to it"
        )

    def _describe(self, ctx: Context, made: WorldHosts) -> World:
        """The world as the profile declares it: its certificate authority, the contract, the zone."""
        from inferlift import configure
        from inferlift.configure import world as old

        lab, folder = ctx.profile.raised, ctx.path("world")
        assert lab is not None  # noqa: S101
        name, workload = f"{lab.host}.{lab.zone}", _workload(ctx)
        ca = configure.ensure_ca(folder, f"lab of {ctx.owner}")
        certificate, key = configure.issue(ca, folder, name, dns=(name,))
        for secret in ("users", "app", "model", "dns", "guard"):
            _secret(folder / "secrets" / secret)
        return World(
            origin=made.origin,
            address=made.origin.address,
            resolvers=(made.resolver.address, made.authority.address),
            lab=RaisedLab(
                label=made.label,
                network=made.network,
                subnet=made.subnet,
                authority=made.authority,
                resolver=made.resolver,
                dns_api=old.dns_api_url(made.authority.address),
                dns_key=f"file:{folder / 'secrets' / 'dns'}",
                guard_api=old.guard_api_url(made.authority.address),
                guard_key=f"file:{folder / 'secrets' / 'guard'}",
            ),
            contract=Contract(
                name=name,
                certificate=str(certificate),
                certificate_key=f"file:{key}",
                ca=str(ca.cert),
                key_header=old.KEY_HEADER,
                key=f"file:{folder / 'secrets' / 'users'}",
                routes=(Route(path=workload.route, upstream=workload.upstream_route),),
            ),
            zone=lab.zone,
            ttl_s=lab.ttl_s,
            log_glob=old.LOG_GLOB,
            body_log=old.BODIES_LOG,
            data_path=old.DATA_PATH,
        )

    def _configure(self, ctx: Context, world: World) -> Configured:
        from inferlift import configure
        from inferlift.configure import world as old

        lab, folder, workload = ctx.profile.raised, ctx.path("world"), _workload(ctx)
        assert lab is not None  # noqa: S101
        address = world.authority.address
        ca = configure.ensure_ca(folder, f"lab of {ctx.owner}")
        certificate, key = configure.issue(ca, folder, "authority", ips=(address,))
        variables = old.world_variables(
            zone=lab.zone,
            host=lab.host,
            ttl_s=lab.ttl_s,
            origin=world.origin.address,
            authority=address,
            networks=(world.made.subnet,),
            workload=workload,
            certificate=world.contract.certificate,
            certificate_key=world.contract.certificate_key.removeprefix("file:"),
            api_certificate=str(certificate),
            api_certificate_key=str(key),
            server=old.old_server(ctx.profile, workload, server_wheels(ctx, workload.server)),
        )
        secrets = old.world_secrets(
            **{f"{n}_key": f"file:{folder / 'secrets' / n}" for n in ("users", "app", "model", "dns", "guard")}
        )
        hosts = (world.origin, world.authority, world.resolver)
        return configure.apply(hosts, old.PLAYBOOK, variables, secrets, folder, ctx.say)


def origin_services(ctx: Context) -> tuple[str, ...]:
    """The units that make the old side."""
    return _workload(ctx).services


def _workload(ctx: Context) -> Workload:
    from inferlift.configure import world as old

    assert ctx.profile.raised is not None  # noqa: S101
    return old.workload(ctx.root / "templates" / "workloads" / ctx.profile.raised.workload)


def _services(host: Host, units: tuple[str, ...]) -> Check:
    """What the host is there for runs: a stopped service is a finding, as a stopped host is."""
    name = f"{host.name}: services"
    try:
        said = ssh.run(host, f"systemctl is-active {' '.join(units)}", timeout_s=20, check=False).stdout.split()
    except InferliftError as error:
        return Check(name=name, ok=False, detail=error.what)
    states = dict(zip(units, said, strict=False))
    bad = [f"{unit} is {states.get(unit, 'unknown')}" for unit in units if states.get(unit) != "active"]
    return Check(name=name, ok=not bad, detail=", ".join(bad or units))


def _off(host: Host) -> Check:
    """The old side was taken away on purpose: that it is off is no finding."""
    return Check(name=f"{host.name}: services", ok=True, skipped=True, detail="decommissioned")


def _secret(path: Path) -> None:
    """A random key, made once."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        temporary = path.with_suffix(".new")
        temporary.touch(mode=0o600)
        temporary.write_text(token_urlsafe(24))
        temporary.rename(path)


def _counting(world: World, sent: int) -> World:
    return world.model_copy(update={"lab": world.made.model_copy(update={"requests_sent": sent})})


def _origin(ctx: Context, world: World) -> Any:
    from inferlift.load.target import from_contract

    return from_contract(world.contract, address=world.origin.address, timeout_s=ctx.profile.load.request_timeout_s)
