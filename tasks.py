"""Tasks: arguments in, a library call, an exit code out. Heavy imports happen inside the tasks."""

from __future__ import annotations

import json as jsonlib
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke import Collection, Context, Exit, task

ROOT = Path(__file__).resolve().parent


def _guard(work: Callable[[], int | None]) -> None:
    """No traceback for a user's mistake: the tree's errors become one message and their exit code."""
    sys.path.insert(0, str(ROOT))
    from inferlift.errors import InferliftError

    try:
        code = work() or 0
    except InferliftError as error:
        print(f"inferlift: {error}", file=sys.stderr)
        raise Exit(code=error.exit_code) from None
    except (OSError, sqlite3.Error) as error:  # a full disk, a folder that is not ours, a damaged ledger
        print(f"inferlift: the machine refused: {error}", file=sys.stderr)
        print("  next: mend that (space, rights, the file named), then run the same command again", file=sys.stderr)
        raise Exit(code=1) from None
    except KeyboardInterrupt:
        print("inferlift: stopped; the same command goes on", file=sys.stderr)
        raise Exit(code=130) from None
    if code:
        raise Exit(code=code)


def _print_json(ok: bool | None, verdict: str, figures: dict[str, Any], **more: Any) -> None:
    print(jsonlib.dumps({"ok": ok, "verdict": verdict, "figures": figures, **more}, default=str))


# --- the migration ----------------------------------------------------------------------------------------------------

_PROFILE = {"profile": "name in profiles/, or the path of a profile file"}
_VERBOSE = {"verbose": "show the log"}
_JSON = {"json": "one JSON object on stdout"}

_DEPLOY_HELP = {
    **_PROFILE,
    **_VERBOSE,
    "target": "lab (the profile's own by default)",
    "from_": "first stage to look at",
    "to": "last stage",
    "ask": "ask for both approvals, as on a paid target",
    "plan": "hash of an approved plan (see `invoke plan`)",
    "locked": "lock.json to rebuild from; refused where it would come out differently",
    "load_origin": "also send a small live sample to the old side",
}


@task(help=_DEPLOY_HELP)
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
    verbose: bool = False,
) -> None:
    """Migrate a workload end to end; the same command resumes, verifies and repairs."""

    def work() -> int:
        from inferlift.commands import deploy as run

        return run(
            profile, target or None, first=from_ or None, last=to or None, ask=ask, plan=plan or None,
            locked=locked or None, load_origin=load_origin, verbose=verbose,
        )  # fmt: skip

    _guard(work)


def _stage_task(name: str, doc: str) -> Any:
    def run_stage(c: Context, profile: str = "demo", json: bool = False, verbose: bool = False) -> None:
        def work() -> int:
            from inferlift.commands import stage

            return stage(name, profile, as_json=json, verbose=verbose)

        _guard(work)

    run_stage.__doc__ = doc
    run_stage.__name__ = name
    return task(run_stage, name=name, help={**_PROFILE, **_JSON, **_VERBOSE})


audit = _stage_task("audit", "Read the old side's logs: what it really does, which triggers are met.")
build = _stage_task("build", "The user's image on the target's base.")
poc = _stage_task("poc", "One replica of the new side, made and configured.")
load = _stage_task("load", "The 1000-request test of the new side.")
migrate = _stage_task("migrate", "Copy the data folder and verify it by checksums.")
scale = _stage_task("scale", "Replicas for the peak and one spare; accepted with all users in flight.")
switch = _stage_task("switch", "Move users by DNS, a step at a time.")
watch = _stage_task("watch", "Judge the moved workload from stored history.")


@task(help={**_PROFILE, **_JSON, **_VERBOSE, "explain": "formulas with their numbers, checks, chain, timeline"})
def size(c: Context, profile: str = "demo", json: bool = False, explain: bool = False, verbose: bool = False) -> None:
    """What the workload needs, which offer serves it, what that costs, and whether to move at all."""

    def work() -> int:
        from inferlift.commands import size as run

        return run(profile, as_json=json, explain=explain, verbose=verbose)

    _guard(work)


@task(help={**_PROFILE, **_JSON})
def tco(c: Context, profile: str = "demo", json: bool = False) -> None:
    """Buy, lease, rent, cloud or a managed service, over years."""

    def work() -> int:
        from inferlift.commands import tco as run

        return run(profile, as_json=json)

    _guard(work)


@task(
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
) -> None:
    """What hosts cost, from where that is known, and how old it is."""

    def work() -> int:
        from inferlift.commands import prices as run

        return run(target, region, gpu=gpu, refresh=refresh, as_json=json)

    _guard(work)


@task(
    positional=["name"],
    iterable=["set_"],
    help={
        "name": "of the new profile: profiles/NAME.yaml",
        "set": "answer a question beforehand: KEY=VALUE; may be repeated",
        "from_evidence": "an audit's evidence (JSON): what it knows is not asked",
    },
)
def init(c: Context, name: str, set_: list[str], from_evidence: str = "") -> None:
    """Write a commented profile, from a few questions or from an audit's evidence."""

    def work() -> int:
        from inferlift.commands import init as run

        return run(name, set_, evidence=from_evidence or None)

    _guard(work)


@task(help={**_PROFILE, **_JSON})
def plan(c: Context, profile: str = "demo", json: bool = False) -> None:
    """What deploy would do and cost, with the hash to approve; changes nothing."""

    def work() -> int:
        from inferlift.commands import plan as run

        return run(profile, as_json=json)

    _guard(work)


@task(help={**_PROFILE, "reason": "why; it stands in the report"})
def approve(c: Context, profile: str = "demo", reason: str = "") -> None:
    """Release a held run, with a reason that stands in the report."""

    def work() -> int:
        from inferlift.commands import approve as run

        return run(profile, reason)

    _guard(work)


@task(help={**_PROFILE, **_JSON})
def status(c: Context, profile: str = "demo", json: bool = False) -> None:
    """How each stage stands."""

    def work() -> int:
        from inferlift.commands import status as run

        return run(profile, as_json=json)

    _guard(work)


@task(help=_PROFILE)
def report(c: Context, profile: str = "demo") -> None:
    """Write the report: one HTML page that needs no network."""

    def work() -> int:
        from inferlift.commands import report as run

        return run(profile)

    _guard(work)


@task(positional=["a", "b"], help={**_PROFILE, "a": "run id, latest, or the path of a lock.json", "b": "the other"})
def diff(c: Context, a: str, b: str, profile: str = "demo") -> None:
    """What differs between two runs: run ids, `latest`, or paths of lock.json."""

    def work() -> int:
        from inferlift.commands import diff as run

        return run(profile, a, b)

    _guard(work)


@task(help={**_PROFILE, **_VERBOSE})
def rollback(c: Context, profile: str = "demo", verbose: bool = False) -> None:
    """All users back to the old side, verified at authority and resolver."""

    def work() -> int:
        from inferlift.commands import rollback as run

        return run(profile, verbose=verbose)

    _guard(work)


@task(help={**_PROFILE, **_VERBOSE})
def destroy(c: Context, profile: str = "demo", verbose: bool = False) -> None:
    """Remove the fleet and prove that nothing of it is left; refused while users are on it."""

    def work() -> int:
        from inferlift.commands import destroy as run

        return run(profile, verbose=verbose)

    _guard(work)


@task
def profiles(c: Context) -> None:
    """List the profiles."""

    def work() -> int:
        from inferlift.commands import profiles as run

        return run()

    _guard(work)


@task(help=_JSON)
def doctor(c: Context, json: bool = False) -> None:
    """What is there, what is missing, and the command that brings it."""

    def work() -> int:
        from inferlift.commands import doctor as run

        return run(as_json=json)

    _guard(work)


@task(positional=["action"], help={"action": "up or down", **_PROFILE, **_VERBOSE})
def lab(c: Context, action: str, profile: str = "demo", verbose: bool = False) -> None:
    """Raise the lab's old world for a profile (up), or take it down (down)."""

    def work() -> int:
        from inferlift.commands import lab as run

        return run(action, profile, verbose=verbose)

    _guard(work)


# --- the project itself -----------------------------------------------------------------------------------------------


@task
def check(c: Context) -> None:
    """Format, lint, types, playbooks: the one check command."""

    def work() -> int:
        from inferlift.development import check as run

        return run(ROOT)

    _guard(work)


@task(help={"unit": "only the quick tests", "lab": "only the lab's tests", "k": "pytest -k expression"})
def test(c: Context, unit: bool = False, lab: bool = False, k: str = "") -> None:
    """Checks, unit tests, then the lab end to end."""

    def work() -> int:
        from inferlift.development import test as run

        return run(ROOT, unit=unit, lab=lab, expression=k)

    _guard(work)


@task(positional=["name"], help={"name": "which; deploy is the one there is", **_JSON})
def bench(c: Context, name: str = "deploy", json: bool = False) -> None:
    """Measure what the project promises; `deploy` is the one there is."""

    def work() -> int:
        from inferlift.development import bench as run

        return run(ROOT, name, as_json=json)

    _guard(work)


namespace = Collection(
    deploy, audit, size, build, poc, load, migrate, scale, switch, watch, plan, approve, status, report, diff, rollback,
    destroy, init, profiles, tco, prices, doctor, lab, check, test, bench,
)  # fmt: skip
