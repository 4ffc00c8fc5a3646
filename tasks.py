"""Tasks: arguments in, a library call, an exit code out. Heavy imports happen inside the tasks."""

from __future__ import annotations

import functools
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke import Collection, Context, Exit, task

ROOT = Path(__file__).resolve().parent


def _task(**settings: Any) -> Callable[[Callable[..., int | None]], Any]:
    """An invoke task whose body is a library call; what it returns is the exit code.

    No traceback for a user's mistake: the tree's errors become one message and their exit code.
    """

    def made(body: Callable[..., int | None]) -> Any:
        @functools.wraps(body)  # invoke reads the arguments from the signature
        def run(*given: Any, **named: Any) -> None:
            sys.path.insert(0, str(ROOT))
            from inferlift.errors import InferliftError, as_given

            try:
                code = body(*given, **named) or 0
            except BrokenPipeError:
                raise  # who reads us has seen enough
            except InferliftError as error:
                error.next_command = as_given(error.next_command, named.get("profile"))
                print(f"inferlift: {error}", file=sys.stderr)
                raise Exit(code=error.exit_code) from None
            except (OSError, sqlite3.Error) as error:  # a full disk, a folder that is not ours, a damaged ledger
                print(f"inferlift: the machine refused: {error}", file=sys.stderr)
                print("  next: mend that (space, rights, the file named), then run it again", file=sys.stderr)
                raise Exit(code=1) from None
            except KeyboardInterrupt:
                print("inferlift: stopped; the same command goes on", file=sys.stderr)
                raise Exit(code=130) from None
            if code:
                raise Exit(code=code)

        return task(run, **settings)

    return made


def _needs(partner: str, value: str, *others: str) -> None:
    """Options that mean nothing without their partner, or a partner that is empty, start nothing else instead."""
    from inferlift.errors import DeclarationError

    typed = {word.partition("=")[0] for word in sys.argv}
    lonely = [f"--{name}" for name in others if f"--{name}" in typed]
    if value or not (lonely or f"--{partner}" in typed):
        return
    raise DeclarationError(
        f"{', '.join(lonely)} without --{partner}" if lonely else f"--{partner} is empty",
        why="without it this task runs a stage of a migration, which is not what these options are for",
        next_command=f"give --{partner}, or leave the others out",
    )


# --- the migration ----------------------------------------------------------------------------------------------------

_PROFILE = {"profile": "name in profiles/, or the path of a profile file"}
_VERBOSE = {"verbose": "show the log"}
_JSON = {"json": "one JSON object on stdout"}

_DEPLOY_HELP = {
    **_PROFILE,
    **_VERBOSE,
    "target": "the profile's own by default; another is refused",
    "from_": "first stage to look at",
    "to": "last stage",
    "ask": "ask for both approvals, as on a paid target",
    "plan": "hash of an approved plan (see `invoke plan`)",
    "locked": "lock.json to rebuild from; refused where it would come out differently",
    "load_origin": "also send a small live sample to the old side",
    "detach": "go on without this terminal; started again when something kills it",
}


@_task(help=_DEPLOY_HELP)
def deploy(
    c: Context,
    profile: str = "demo",
    target: str = "",
    from_: str = "",
    to: str = "",
    ask: bool = False,
    plan: str = "",
    locked: str = "",
    load_origin: bool = False,
    detach: bool = False,
    verbose: bool = False,
) -> int:
    """Migrate a workload end to end; the same command resumes, verifies and repairs."""

    from inferlift.commands import deploy as run

    return run(
        profile, target or None, first=from_ or None, last=to or None, ask=ask, plan=plan or None,
        locked=locked or None, load_origin=load_origin, detach=detach, verbose=verbose,
    )  # fmt: skip


def _stage_task(name: str, doc: str) -> Any:
    def run_stage(c: Context, profile: str = "demo", json: bool = False, verbose: bool = False) -> int:
        from inferlift.commands import stage

        return stage(name, profile, as_json=json, verbose=verbose)

    run_stage.__doc__ = doc
    run_stage.__name__ = name
    return _task(name=name, help={**_PROFILE, **_JSON, **_VERBOSE})(run_stage)


@_task(
    help={
        **_PROFILE,
        **_JSON,
        **_VERBOSE,
        "logs": "without a profile: paths or 'patterns', by commas; - is standard input",
        "gpu": "with --logs: nvidia-smi CSV, dmon, DCGM or Prometheus JSON",
        "bill": "with --logs: CSV of months and amounts",
        "metrics": "with --logs: /metrics text of vLLM or Triton",
        "host": "with --logs: look at the old host over ssh",
        "format": "with --logs: name of the log's format; auto finds it",
        "routes": "with --logs: inference routes, by commas",
        "since": "with --logs: ISO time, or 24h, 7d",
        "until": "with --logs: as since",
        "zone": "with --logs: of times without one",
        "sample": "with --logs: file that gets requests for the parity replay",
        "waiting": "with --logs: cost of waiting, visitors=50000,value=2,ai=0.3,then=0.5",
    }
)
def audit(
    c: Context, profile: str = "demo", json: bool = False, verbose: bool = False, logs: str = "", gpu: str = "",
    bill: str = "", metrics: str = "", host: str = "", format: str = "auto", routes: str = "", since: str = "",
    until: str = "", zone: str = "UTC", sample: str = "", waiting: str = "",
) -> int:  # fmt: skip
    """What the old side really does, and which triggers are met; of a migration, or with --logs of any log."""

    from inferlift.alone import audit_files
    from inferlift.commands import stage

    _needs("logs", logs, "gpu", "bill", "metrics", "host", "format", "routes", "since", "until", "zone", "sample",
           "waiting")  # fmt: skip
    if not logs:
        return stage("audit", profile, as_json=json, verbose=verbose)
    return audit_files(
        logs, gpu=gpu, bill_file=bill, metrics=metrics, host=host, format_name=format, routes=routes, since=since,
        until=until, zone=zone, sample_file=sample, waiting=waiting, as_json=json,
    )  # fmt: skip


@_task(
    help={
        **_PROFILE,
        **_JSON,
        **_VERBOSE,
        "dockerfile": "without a profile: a Dockerfile, or the folder it is in",
        "base": "with --dockerfile: image in podman's store to move it to; a Debian one by default",
        "out": "with --dockerfile: folder that gets the new Dockerfile, the archive and the lists",
        "name": "with --dockerfile: of the image; its folder's by default",
        "rewrite": "with --dockerfile: only write the new Dockerfile",
        "push": "with --dockerfile: registry, HOST[:PORT][/PATH]",
        "user": "with --push: who logs in; AWS' registries need none",
        "password": "with --user: env:NAME or file:PATH",
        "ca": "with --push: CA that vouches for the registry",
    }
)
def build(
    c: Context, profile: str = "demo", json: bool = False, verbose: bool = False, dockerfile: str = "", base: str = "",
    out: str = "", name: str = "", rewrite: bool = False, push: str = "", user: str = "", password: str = "",
    ca: str = "",
) -> int:  # fmt: skip
    """The user's image on the target's base; of a migration, or with --dockerfile of any Dockerfile."""

    from inferlift.alone_moving import build_image
    from inferlift.commands import stage

    _needs("dockerfile", dockerfile, "base", "out", "name", "rewrite", "push", "user", "password", "ca")
    if not dockerfile:
        return stage("build", profile, as_json=json, verbose=verbose)
    return build_image(
        dockerfile, base=base, out=out, name=name, rewrite_only=rewrite, push=push, user=user, password=password,
        ca=ca, as_json=json,
    )  # fmt: skip


poc = _stage_task("poc", "One replica of the new side, made and configured.")


@_task(
    auto_shortflags=False,  # forty options have no sensible letters
    iterable=["url", "price", "image"],
    help={
        **_PROFILE,
        **_JSON,
        **_VERBOSE,
        "url": "without a profile: an endpoint; several are compared on the same requests",
        "requests": "with --url: exactly so many",
        "users": "with --url: at once, closed loop",
        "rate": "with --url: a second",
        "arrivals": "with --rate: constant, poisson or bursty",
        "shape": "with --url: evidence JSON whose traffic is replayed",
        "knee": "with --url: find the highest rate that meets every target, up to this one",
        "protocol": "with --url: chat, completions, embeddings, kserve, kserve-grpc, image or http",
        "prompts": "with --url: file of questions, one a line",
        "max_tokens": "with --url: reply length asked for",
        "stream": "with --url: ask for a stream; --no-stream: for one document",
        "cached": "with --url: send the prompts as they are; a prefix cache may then answer",
        "extra": "with --url: JSON object merged into an OpenAI body",
        "seed": "with --url: of arrivals and texts; the same one sends the same again (default: drawn, and told)",
        "warm_up": "with --url: requests before the test that do not count (default: a twentieth, at least 8)",
        "model": "with --url: name of the model",
        "key": "with --url: env:NAME or file:PATH",
        "key_header": "header of the key",
        "ca": "with --url: CA of the endpoint",
        "price": "with --url: an endpoint's price an hour, - unknown; in their order",
        "body": "with --url: Jinja template of the body (protocol http; it knows i and run), tensors (kserve)",
        "rows": "with --url: JSON lines, the values of the template in turn",
        "image": "with --url: image file (protocol image); several are posted in turn",
        "field": "with --url: name of the image's part in a form; without it the image is the body",
        "check": "with --url: what an answer must hold",
        "p95_ttft": "target, ms",
        "p95_total": "target, ms",
        "error_share": "target: this share of the requests may fail",
        "quality": "with --url: JSON lines of checkable prompts",
        "quality_share": "target: this share of their answers is right",
        "idle": "with --url: seconds of silence before the first answer after idle is measured",
        "timeout": "with --url: seconds of a request",
        "deadline": "with --url: seconds of the whole run; what is in flight then counts as timed out",
        "self_check": "with --url: find out first what this machine can drive",
        "workers": "with --url: so many Locust workers send, on this machine or others (docs/load.md)",
        "bind": "with --workers: where they find this machine, HOST:PORT",
        "html": "with --url: report file",
        "junit": "with --url: XML for CI",
        "folder": "with --url: where samples go",
        "replace": "with --url: what stands at --html, --junit or --folder may go",
    },
)
def load(
    c: Context, url: list[str], price: list[str], image: list[str], profile: str = "demo", json: bool = False,
    verbose: bool = False, requests: int = 1000, users: int = 0, rate: float = 0.0, arrivals: str = "poisson",
    shape: str = "", knee: float = 0.0, protocol: str = "chat", prompts: str = "", max_tokens: int = 16,
    model: str = "", key: str = "", key_header: str = "Authorization", ca: str = "", body: str = "", check: str = "",
    p95_ttft: float = 0.0, p95_total: float = 0.0, quality: str = "", idle: float = 0.0, timeout: float = 120.0,
    html: str = "", junit: str = "", folder: str = "", replace: bool = False, stream: bool = True,
    cached: bool = False, extra: str = "", rows: str = "", field: str = "", seed: str = "", warm_up: int = -1,
    error_share: float = 0.01, quality_share: float = 0.9, deadline: float = 0.0, self_check: bool = True,
    workers: int = 0, bind: str = "127.0.0.1:5557",
) -> int:  # fmt: skip
    """The 1000-request test; of a migration's new side, or with --url of any endpoints."""

    from inferlift.alone import load_urls
    from inferlift.commands import stage

    _needs("url", "".join(url), "requests", "users", "rate", "arrivals", "shape", "knee", "protocol", "prompts",
           "max-tokens", "model", "key", "key-header", "ca", "price", "body", "check", "p95-ttft", "p95-total",
           "quality", "idle", "timeout", "html", "junit", "folder", "replace", "no-stream", "cached", "extra",
           "rows", "image", "field", "seed", "warm-up", "error-share", "quality-share", "deadline",
           "no-self-check", "workers", "bind")  # fmt: skip
    if not url:
        return stage("load", profile, as_json=json, verbose=verbose)
    return load_urls(
        list(url), as_json=json, prices=list(price), requests=requests, users=users, rate=rate, arrivals=arrivals,
        shape=shape, knee=knee, protocol=protocol, prompts=prompts, max_tokens=max_tokens, model=model, key=key,
        key_header=key_header, ca=ca, body=body, check=check, p95_ttft=p95_ttft, p95_total=p95_total,
        quality=quality, idle=idle, timeout=timeout, html=html, junit=junit, folder=folder, replace=replace,
        stream=stream, cached=cached, extra=extra, rows=rows, images=list(image), field=field, seed=seed,
        warm_up=warm_up, error_share=error_share, quality_share=quality_share, deadline=deadline,
        self_check=self_check, workers=workers, bind=bind,
    )  # fmt: skip


@_task(
    help={
        **_PROFILE,
        **_JSON,
        **_VERBOSE,
        "from_": "without a profile: USER@HOST:/FOLDER, or s3://BUCKET/PREFIX",
        "to": "with --from: USER@HOST:/FOLDER, several by commas",
        "key": "with --from: SSH key, ~/.ssh/id_ed25519 by default",
        "known_hosts": "with --from: file with the hosts' keys, ~/.ssh/known_hosts by default",
        "limit": "with --from: megabytes a second at most",
    }
)
def migrate(
    c: Context, profile: str = "demo", json: bool = False, verbose: bool = False, from_: str = "", to: str = "",
    key: str = "", known_hosts: str = "", limit: float = 0.0,
) -> int:  # fmt: skip
    """Copy data and verify it by checksums; of a migration, or with --from and --to of any folder."""

    from inferlift.alone_moving import copy_folder
    from inferlift.commands import stage

    _needs("from", from_, "to", "key", "known-hosts", "limit")
    if not from_:
        return stage("migrate", profile, as_json=json, verbose=verbose)
    return copy_folder(from_, to, key=key, known_hosts=known_hosts, limit_mb_per_s=limit, as_json=json)


scale = _stage_task("scale", "Replicas for the peak and one spare; accepted with all users in flight.")
watch = _stage_task("watch", "Judge the moved workload from stored history.")


@_task(
    help={
        **_PROFILE,
        **_JSON,
        **_VERBOSE,
        "explain": "formulas with their numbers, checks, chain, timeline",
        "evidence": "what an audit found: the JSON of `audit --logs ... --json`",
    }
)
def size(
    c: Context,
    profile: str = "demo",
    json: bool = False,
    explain: bool = False,
    verbose: bool = False,
    evidence: str = "",
) -> int:
    """What the workload needs, which offer serves it, what that costs, and whether to move at all."""

    from inferlift.commands import size as run

    return run(profile, as_json=json, explain=explain, verbose=verbose, evidence=evidence)


@_task(help={**_PROFILE, **_JSON, "explain": "the assumptions too, each with its source"})
def tco(c: Context, profile: str = "demo", json: bool = False, explain: bool = False) -> int:
    """Buy, lease, rent, cloud or a managed service, over years."""

    from inferlift.commands import tco as run

    return run(profile, as_json=json, explain=explain)


@_task(
    help={
        "target": "lab, aws or static",
        "region": "of the cloud; eu-central-1 where none is named",
        "gpu": "only hosts with this GPU (T4, A10G, H100 ...)",
        "refresh": "ask the cloud's own price lists (needs its credentials)",
        **_JSON,
    }
)
def prices(
    c: Context, target: str = "aws", region: str = "", gpu: str = "", refresh: bool = False, json: bool = False
) -> int:
    """What hosts cost, from where that is known, and how old it is."""

    from inferlift.alone import prices as run

    return run(target, region, gpu=gpu, refresh=refresh, as_json=json)


@_task(
    positional=["name"],
    iterable=["set_"],
    help={
        "name": "of the new profile: profiles/NAME.yaml",
        "set": "answer a question beforehand: KEY=VALUE; may be repeated",
        "from_evidence": "an audit's evidence (JSON): what it knows is not asked",
    },
)
def init(c: Context, name: str, set_: list[str], from_evidence: str = "") -> int:
    """Write a commented profile, from a few questions or from an audit's evidence."""

    from inferlift.alone import init as run

    return run(name, set_, evidence=from_evidence or None)


@_task(help={**_PROFILE, **_JSON, "target": "the profile's own by default; another is refused"})
def plan(c: Context, profile: str = "demo", target: str = "", json: bool = False) -> int:
    """What deploy would do and cost, with the hash to approve; changes nothing."""

    from inferlift.commands import plan as run

    return run(profile, target or None, as_json=json)


@_task(help={**_PROFILE, "reason": "why; it stands in the report"})
def approve(c: Context, profile: str = "demo", reason: str = "") -> int:
    """Release a held run, with a reason that stands in the report."""

    from inferlift.commands import approve as run

    return run(profile, reason)


@_task(
    help={
        **_PROFILE,
        **_JSON,
        "follow": "look on until the run that is under way ends, wherever it runs; its exit code",
        "drift": "ask Pulumi, Ansible and DNS whether all is as it was left",
    }
)
def status(c: Context, profile: str = "demo", json: bool = False, follow: bool = False, drift: bool = False) -> int:
    """How each stage stands."""

    from inferlift.commands import status as run

    return run(profile, as_json=json, follow=follow, drift=drift)


@_task(help=_PROFILE)
def report(c: Context, profile: str = "demo") -> int:
    """Write the report: one HTML page that needs no network."""

    from inferlift.commands import report as run

    return run(profile)


@_task(positional=["a", "b"], help={**_PROFILE, "a": "run id, latest, or the path of a lock.json", "b": "the other"})
def diff(c: Context, a: str, b: str, profile: str = "demo") -> int:
    """What differs between two runs: run ids, `latest`, or paths of lock.json."""

    from inferlift.commands import diff as run

    return run(profile, a, b)


_ALONE = {
    "name": "without a profile: the DNS name whose users are moved",
    "old": "with --name: the address users are at",
    "new": "with --name: the address they go to",
    "dns": "with --name: file of the DNS back end's settings (docs/switch.md)",
    "log": "with --name: file that gets a JSON line before and after each write",
    "authority": "with --name: address of a name server of the zone; may be repeated; none: found by NS",
    "resolver": "with --name: address of a resolver as users have it; none: this machine's",
    "dns_port": "with --name: port of those",
    "owner": "with --name: who writes, as the record's journal says; the way back needs the same",
}


@_task(
    iterable=["authority"],
    help={
        **_PROFILE, **_JSON, **_VERBOSE, **_ALONE, "gate": "with --name: a command that decides (exit 0, 1 or 3)",
        "url": "with --name: a URL asked at both addresses; it decides", "ca": "with --url: CA that vouches for it",
        "steps": "with --name: percents on the new side, by commas", "ttl": "with --name: TTL in seconds meanwhile",
        "samples": "with --url: requests to each side at each look",
        "shadow": "only print what makes the old nginx send this percent of requests to the new side too",
    },
)  # fmt: skip
def switch(
    c: Context,
    authority: list[str],
    profile: str = "demo",
    json: bool = False,
    verbose: bool = False,
    name: str = "",
    old: str = "",
    new: str = "",
    dns: str = "",
    gate: str = "",
    url: str = "",
    ca: str = "",
    log: str = "",
    resolver: str = "",
    dns_port: int = 53,
    owner: str = "",
    steps: str = "",
    ttl: int = 0,
    samples: int = 0,
    shadow: float = 0.0,
) -> int:
    """Move users by DNS, a step at a time; of a migration, or with --name of any two addresses."""

    from inferlift.alone import shadow as show_shadow
    from inferlift.alone import switch_alone
    from inferlift.commands import stage

    if shadow:
        return show_shadow(shadow, profile=profile, name=name, new=new, ca=ca)
    _needs("name", name, "old", "new", "dns", "gate", "url", "ca", "log", "authority", "resolver", "dns-port",
           "owner", "steps", "ttl", "samples")  # fmt: skip
    if name:
        return switch_alone(
            name, old, new, dns, gate=gate, url=url, ca=ca, log=log, authority=tuple(authority), resolver=resolver,
            dns_port=dns_port, owner=owner, steps=steps, ttl=ttl, samples=samples, as_json=json,
        )  # fmt: skip
    return stage("switch", profile, as_json=json, verbose=verbose)


@_task(
    iterable=["authority"],
    help={
        **_PROFILE, **_VERBOSE, **_ALONE, "json": "with --name: one JSON object on stdout",
        "restore": "with --name: give the record back as it was found, type and TTL included",
    },
)  # fmt: skip
def rollback(
    c: Context,
    authority: list[str],
    profile: str = "demo",
    verbose: bool = False,
    json: bool = False,
    name: str = "",
    old: str = "",
    new: str = "",
    dns: str = "",
    log: str = "",
    resolver: str = "",
    dns_port: int = 53,
    owner: str = "",
    restore: bool = False,
) -> int:
    """All users back to the old side, verified at authority and resolver."""

    from inferlift.alone import switch_alone
    from inferlift.steering import rollback as run

    _needs("name", name, "old", "new", "dns", "log", "authority", "resolver", "dns-port", "owner", "json", "restore")
    if name:
        return switch_alone(
            name,
            old,
            new,
            dns,
            log=log,
            authority=tuple(authority),
            resolver=resolver,
            dns_port=dns_port,
            owner=owner,
            as_json=json,
            restore=restore,
            back=True,
        )
    return run(profile, verbose=verbose)


@_task(
    help={
        **_PROFILE, **_JSON, **_VERBOSE, "apply": "do it; without, it is only shown",
        "undo": "start the old side again, as the way back",
    }
)  # fmt: skip
def decommission(
    c: Context, profile: str = "demo", apply: bool = False, undo: bool = False, json: bool = False,
    verbose: bool = False,
) -> int:  # fmt: skip
    """The end of the old side, offered once its own log is quiet; shown first, and taken back with --undo."""

    from inferlift.steering import decommission as run

    return run(profile, apply=apply, undo=undo, as_json=json, verbose=verbose)


@_task(help={**_PROFILE, **_VERBOSE, "delete_data": "also what holds data: bucket, images, disks, key"})
def destroy(c: Context, profile: str = "demo", delete_data: bool = False, verbose: bool = False) -> int:
    """Remove the fleet and prove that nothing of it is left; refused while users are on it."""

    from inferlift.commands import destroy as run

    return run(profile, delete_data=delete_data, verbose=verbose)


@_task()
def profiles(c: Context) -> int:
    """List the profiles."""

    from inferlift.commands import profiles as run

    return run()


@_task(
    help={"target": "lab, aws or static", "profile": "with aws: whose fleet the account is asked about", **_JSON},
)
def doctor(c: Context, target: str = "", profile: str = "", json: bool = False) -> int:
    """What is there, what is missing, and the command that brings it; of a cloud, what its account says too."""

    from inferlift.commands import doctor as run

    return run(target or None, profile, as_json=json)


@_task(positional=["action"], help={"action": "up or down", **_PROFILE, **_VERBOSE})
def lab(c: Context, action: str, profile: str = "demo", verbose: bool = False) -> int:
    """Raise the lab's old world for a profile (up), or take it down (down)."""

    from inferlift.commands import lab as run

    return run(action, profile, verbose=verbose)


@_task(
    help={
        "fault": "name (docs/faults.md), several by commas, or all",
        "profile": "of the lab: whose migration is rehearsed",
        "here": "on the migration that stands, not in a lab of its own",
        "keep": "leave the rehearsal's lab standing",
        "write": "write the table in docs/faults.md",
        **_JSON,
    }
)
def rehearse(
    c: Context,
    fault: str = "all",
    profile: str = "demo-small",
    here: bool = False,
    keep: bool = False,
    write: bool = False,
    json: bool = False,
) -> int:
    """Break something on purpose in a lab, and see that it ends as documented."""

    from inferlift.rehearsal import rehearse as run

    return run(fault, profile, here=here, keep=keep, write=write, as_json=json)


# --- the project itself -----------------------------------------------------------------------------------------------


@_task()
def check(c: Context) -> int:
    """Format, lint, types, playbooks: the one check command."""

    from inferlift.development import check as run

    return run(ROOT)


@_task(
    help={
        "unit": "only the quick tests",
        "programs": "only those of single parts that start programs or servers",
        "lab": "only the lab's tests",
        "long": "only those that take long",
        "k": "pytest -k expression",
    }
)
def test(
    c: Context, unit: bool = False, programs: bool = False, lab: bool = False, long: bool = False, k: str = ""
) -> int:
    """Checks, unit tests, then the lab end to end."""
    from inferlift.development import test as run

    asked = {"unit": unit, "programs": programs, "lab": lab, "long": long}
    return run(ROOT, [name for name, given in asked.items() if given], expression=k)


@_task(
    positional=["name"],
    help={
        "name": "deploy, sizing, load, audit, aws, hosts, switch or watch",
        **_JSON,
        "soak": "with load: instead, 1,000,001 requests counted and ten minutes of soak",
        "whole": "with aws: instead, all nine stages with 1000 requests, on the tests' stand-ins",
    },
)
def bench(c: Context, name: str, json: bool = False, soak: bool = False, whole: bool = False) -> int:
    """Measure what the project promises, with its peers in the same run."""

    from inferlift.development import bench as run

    return run(ROOT, name, as_json=json, soak=soak, whole=whole)


namespace = Collection(
    deploy, audit, size, build, poc, load, migrate, scale, switch, watch, plan, approve, status, report, diff, rollback,
    decommission, destroy, init, profiles, tco, prices, doctor, lab, rehearse, check, test, bench,
)  # fmt: skip
