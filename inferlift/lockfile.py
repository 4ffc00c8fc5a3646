"""lock.json: every resolved version, digest, price date and seed of a migration; and what differs between two."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from inferlift import __version__
from inferlift.artifacts import Artifact, Cutover, Evidence, Images, Measurement, Scaled, Service, Sizing, Watch
from inferlift.errors import CheckFailed, DeclarationError, Refusal
from inferlift.ledger import digest, write_atomically
from inferlift.place import callers
from inferlift.stages.base import Context
from inferlift.tree import tree_digest

SEED = 20261130
IMAGE = "image/"  # of hosts on a cloud, in `resolved`: image/SITE/ROLE
A = TypeVar("A", bound=Artifact)


def collect(ctx: Context) -> dict[str, Any]:
    """What can be resolved before anything is made; each entry is compared by `--locked`."""
    from inferlift.prices import offers

    return {
        "inferlift": __version__,
        "requirements": hashlib.sha256((ctx.root / "requirements.lock").read_bytes()).hexdigest(),
        "profile": digest(ctx.profile),
        "model": ctx.profile.model.source,
        "prices": digest(offers(ctx.profile.target)),
        "playbooks": tree_digest(ctx.root / "playbooks"),
        "templates": tree_digest(ctx.root / "templates"),
        "toolchain": [tree_digest(ctx.root / "inferlift" / "toolchain", kind) for kind in ("*.yaml", "*.txt", "go.*")],
        "seed": SEED,
    }


def write(ctx: Context) -> Path:
    """lock.json beside the ledger and in the run's folder, with what this run resolved and measured."""
    images = ctx.optional("build", Images)
    body = {
        "lock": collect(ctx),
        "resolved": resolved(ctx),
        "images": {i.name: i.digest for i in images.images} if images else {},
        "figures": figures(ctx),
    }
    text = json.dumps(body, indent=1, sort_keys=True)
    write_atomically(ctx.run_folder / "lock.json", text)
    write_atomically(ctx.folder / "lock.json", text)
    return ctx.folder / "lock.json"


def enforce(ctx: Context, path: Path) -> None:
    """Raises Refusal naming each entry of the lock file that would come out differently here."""
    wanted = read(path)["lock"]
    here = collect(ctx)
    differ = [k for k in here if digest(here[k]) != digest(wanted.get(k))]
    if differ:
        raise Refusal(
            f"{path} cannot be rebuilt from this checkout: {', '.join(differ)} differ",
            why="; ".join(_difference(k, wanted.get(k), here[k]) for k in differ),
            next_command="check out the version that wrote the lock file, with the same profile",
        )


def resolved(ctx: Context) -> dict[str, str]:
    """What only the finished hosts can tell: their images, Debian's packages as installed, the model server, the
    kernel.
    """
    service = ctx.optional("poc", Service)
    if service is None:
        return {}
    plan = service.fleet.aws
    booted = {f"{IMAGE}{s.name}/{role}": ami for s in (plan.sites if plan else ()) for role, ami in s.images.items()}
    return {**booted, **service.versions}


def pin(ctx: Context, path: Path) -> None:
    """Hosts that are made from now on boot the lock file's images, whatever is the latest by then."""
    from inferlift import provision

    images: dict[str, dict[str, str]] = {}
    for key, image in read(path)["resolved"].items():
        if key.startswith(IMAGE):
            site, _, role = key.removeprefix(IMAGE).partition("/")
            images.setdefault(site, {})[role] = str(image)
    if images:
        provision.lock_images(ctx.folder, images)


def enforce_resolved(ctx: Context, path: Path) -> None:
    """Raises CheckFailed naming each version that came out differently from the lock file's."""
    wanted, here = read(path)["resolved"], resolved(ctx)
    if differ := [k for k in sorted(wanted) if wanted[k] != here.get(k)]:
        raise CheckFailed(
            f"the hosts differ from {path}: {', '.join(differ)}",
            why="; ".join(_difference(k, wanted[k], here.get(k)) for k in differ),
            next_command="point apt at the snapshot that the lock file was written with, then deploy again",
        )


def read(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DeclarationError(
            f"{path} is not a lock file",
            why=str(error).splitlines()[0],
            next_command="give the lock.json of a run, found under the state folder",
        ) from None
    if not isinstance(body, dict) or not isinstance(body.get("lock"), dict):
        raise DeclarationError(f"{path} is not a lock file", why="it has no `lock` entry")
    for part in ("resolved", "images", "figures"):
        if not isinstance(body.setdefault(part, {}), dict):
            raise DeclarationError(f"{path} is not a lock file", why=f"its `{part}` is no mapping")
    return body


def diff(a: Path, b: Path) -> list[str]:
    """What differs between two runs' lock files: versions first, then figures. No line: the same."""
    first, second = read(a), read(b)
    lines = []
    for part in ("lock", "resolved", "images", "figures"):
        left, right = first[part], second[part]
        for key in sorted({*left, *right}):
            if digest(left.get(key)) != digest(right.get(key)):
                lines.append(_difference(f"{part}.{key}", left.get(key), right.get(key)))
    return lines


def find(where: Path, name: str) -> Path:
    """A lock file by path, or by run id under this migration's folder ("latest" is the last one)."""
    for path in (
        callers(name),
        where / "runs" / name / "lock.json",
        where / "lock.json" if name == "latest" else None,
    ):
        try:
            if name and path is not None and path.is_file():
                return path
        except OSError:  # a name that no file system takes
            continue
    known = sorted(p.parent.name for p in where.glob("runs/*/lock.json"))
    raise DeclarationError(
        f"there is no run {name!r}",
        why=f"known: {', '.join(known[-5:])}"
        if known
        else "no deploy has come to its end yet: only then is it written",
        next_command="./invoke diff RUN RUN, or two paths of lock.json" if known else "./invoke deploy --profile demo",
    )


def figures(ctx: Context) -> dict[str, float | int | str | None]:
    """The numbers a migration stands on; None is unknown, and so is what an edited artifact says."""
    evidence, sizing = _readable(ctx, "audit", Evidence), _readable(ctx, "size", Sizing)
    measured, scaled = _readable(ctx, "load", Measurement), _readable(ctx, "scale", Scaled)
    cutover, watch = _readable(ctx, "switch", Cutover), _readable(ctx, "watch", Watch)
    return {
        "origin_p95_ms": evidence.latency.p95_ms if evidence else None,
        "origin_requests": evidence.inference_n if evidence else None,
        "new_p95_total_ms": measured.run.total.p95_ms if measured else None,
        "new_p95_ttft_ms": measured.run.ttft.p95_ms if measured and measured.run.ttft else None,
        "rate_rps": measured.run.rate_rps if measured else None,
        "requests_ok": measured.run.counts.ok if measured else None,
        "quality": measured.quality.share if measured else None,
        "replicas": scaled.service.replicas if scaled else None,
        "acceptance_s": scaled.acceptance.seconds if scaled else None,
        "loss_failed": sum(scaled.with_loss.counts.errors.values()) if scaled else None,
        "cost_per_1000": (measured.sizing if measured else sizing).cost_per_1000.value if measured or sizing else None,  # type: ignore[union-attr]
        "users_failed": sum(u.failed for u in cutover.users) if cutover and cutover.users else None,
        "rehearsed_rollback_s": cutover.rehearsed_rollback_s if cutover else None,
        "watch": watch.verdict if watch else None,
    }


def _readable(ctx: Context, stage: str, model: type[A]) -> A | None:
    try:
        return ctx.optional(stage, model)
    except CheckFailed:
        return None


def _difference(key: str, left: Any, right: Any) -> str:
    if isinstance(left, dict) and isinstance(right, dict):
        inner = [k for k in sorted({*left, *right}) if left.get(k) != right.get(k)]
        return "; ".join(f"{key}.{k}: {_short(left.get(k))} -> {_short(right.get(k))}" for k in inner)
    ratio = f" ({right / left:.2f} times)" if _number(left) and _number(right) and left else ""
    return f"{key}: {_short(left)} -> {_short(right)}{ratio}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = "unknown" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:12] + "..."
