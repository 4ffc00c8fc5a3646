"""What tasks do without a migration: audit a log, load an endpoint, switch a name, list prices, draft a profile."""

from __future__ import annotations

import datetime
import functools
import shlex
import sys
from collections.abc import Callable
from typing import Any

from inferlift.commands import finite_json
from inferlift.errors import DeclarationError, Held, InferliftError
from inferlift.place import callers
from inferlift.profile import ROOT

NEXT = "put that right, then the same command again (docs/switch.md, `The switch alone`)"
FLAGS = {"ttl_s": "--ttl:", "min_samples": "--samples:"}


def audit_files(logs: str, **given: Any) -> int:
    """The audit of any log files, without a profile."""
    from inferlift.audit.command import run

    named = {"gpu", "bill_file", "metrics", "sample_file"}  # a format may be a name or a file
    paths: dict[str, Any] = {k: _callers_all(v) if k in named and v else v for k, v in given.items()}
    format_name = str(given.get("format_name") or "")
    if "\n" not in format_name and len(format_name) < 256 and callers(format_name).is_file():
        paths["format_name"] = str(callers(format_name))
    return run(_callers_all(logs), **paths)


def load_urls(urls: list[str], *, as_json: bool = False, **given: Any) -> int:
    """The load test of any endpoints, without a profile."""
    from inferlift.load.options import asked
    from inferlift.load.standalone import standalone

    typed = {word.partition("=")[0] for word in sys.argv}
    for name in ("users", "rate", "knee", "idle", "deadline", "p95-ttft", "p95-total", "workers"):
        if f"--{name}" in typed and given.get(name.replace("-", "_")) == 0:
            raise DeclarationError(f"--{name} is above zero", why="leave it out where it is not wanted")
    reference = str(given.get("key") or "")
    if reference.startswith("file:"):
        given["key"] = f"file:{callers(reference.removeprefix('file:'))}"
    given["images"] = [str(callers(path)) for path in given.get("images") or ()]
    for key in ("shape", "prompts", "body", "rows", "quality", "ca", "folder", "html", "junit"):
        if given.get(key):
            given[key] = str(callers(given[key]))
    return standalone(asked(urls, **given), as_json=as_json)


def _callers_all(listed: str) -> str:
    """Paths and patterns, by commas, as the caller meant them."""
    parts = [part.strip() for part in listed.split(",") if part.strip()]
    return ",".join(part if part == "-" else str(callers(part)) for part in parts)


def prices(target: str, region: str, *, gpu: str = "", refresh: bool = False, as_json: bool = False) -> int:
    """The price table; refreshed from the cloud's own lists when asked."""
    from inferlift.prices import REGION, table
    from inferlift.prices import refresh as fetch

    if target not in ("lab", "aws", "static"):
        raise DeclarationError(f"there are no prices for the target {target!r}", why="expected lab, aws or static")
    where, today = region or REGION, datetime.datetime.now(datetime.UTC)
    fetched = fetch([where], now=today) if refresh else None
    found = table(target, where, today=today.date(), gpu=gpu)  # type: ignore[arg-type]
    if as_json:
        notes = [*(fetched.lines() if fetched else ()), *found.notes]
        print(finite_json({"ok": True, "verdict": "prices", "figures": found.figures, "notes": notes}))
        return 0
    print("\n".join([*(fetched.lines() if fetched else ()), *found.lines, *found.notes]))
    return 0


def init(name: str, answers: list[str], *, evidence: str | None = None) -> int:
    """A commented profile, from questions or from an audit's evidence."""
    from inferlift.drafting import describe, draft, on_terminal

    told = {}
    for answer in answers:
        key, given, value = answer.partition("=")
        if not given:
            raise DeclarationError(
                f"--set {answer} is not KEY=VALUE", next_command=f"./invoke init {name} --set task=chat"
            )
        told[key] = value
    ask = on_terminal if sys.stdin.isatty() else None
    made = draft(name, ROOT, answers=told, ask=ask, evidence=callers(evidence) if evidence else None)
    print("\n".join(describe(made, ROOT)))
    return 0


def shadow(share: float, *, profile: str, name: str, new: str, ca: str) -> int:
    """What makes an old nginx send a share of its requests to the new side too, for a person to look at and include."""
    from inferlift.dns.shadow import snippet

    if not name:
        from inferlift.artifacts import World
        from inferlift.migration import looking
        from inferlift.place import place
        from inferlift.stages import _fleet

        with looking(place(profile), "switch --shadow") as ctx:
            name, new = ctx.need("world", World).contract.name, _fleet.current(ctx).endpoint.address
    made = snippet(name, new, share=share, ca=ca or "/etc/ssl/certs/ca-certificates.crt")
    parts = (("http { }", made.http), ("the server { }", made.server), ("each location { }", made.location))
    print("\n".join(f"# --- into {where}\n{text}" for where, text in parts))
    print(made.explanation, file=sys.stderr)
    return 0


def _always_next(call: Callable[..., int]) -> Callable[..., int]:
    """Engines know no command line: what they leave open is said here."""

    @functools.wraps(call)
    def told(*given: Any, **named: Any) -> int:
        try:
            return call(*given, **named)
        except InferliftError as error:
            error.next_command = error.next_command or NEXT
            raise

    return told


@_always_next
def switch_alone(
    name: str, old: str, new: str, dns: str, *, gate: str = "", url: str = "", ca: str = "", log: str = "",
    authority: tuple[str, ...] = (), resolver: str = "", dns_port: int = 53, owner: str = "", steps: str = "",
    ttl: int = 0, samples: int = 0, as_json: bool = False, back: bool = False, restore: bool = False,
) -> int:  # fmt: skip
    """The switch without a profile: a name, two addresses, a back end (a settings file) and a gate."""
    from inferlift.dns.settings import read
    from inferlift.dns.standalone import GateSource, standalone
    from inferlift.dns.standalone import back as go_back

    missing = [flag for flag, value in (("--old", old), ("--new", new), ("--dns", dns)) if not value]
    if missing:
        raise DeclarationError(
            f"{', '.join(missing)} must be given with --name",
            why="a switch needs both addresses and where answers are made",
            next_command="docs/switch.md, `The switch alone`",
        )
    settings = read(callers(dns))
    asked: dict[str, Any] = {
        "authority": authority, "resolver": resolver or None, "dns_port": dns_port, "owner": owner or None,
        "log": callers(log) if log else None, "say": lambda line: print(line, file=sys.stderr),
    }  # fmt: skip
    if back:
        times = go_back(name, old, new, settings, restore=restore, **asked)
        if as_json:
            figures = {"rollback_seconds": times.authority_s, "resolver_seconds": times.resolver_s}
            print(finite_json({"ok": True, "verdict": "rolled back", "figures": figures}))
            return 0
        print(f"all users of {name} are at {old}; the authority said so after {times.authority_s:.2f} s")
        return 0
    vouches = str(callers(ca)) if ca else None
    source = GateSource(command=gate or None, url=url or None, ca=vouches, folder=str(callers(".")))
    flags = [word for address in authority for word in ("--authority", address)]
    flags += [w for flag, value in (("--resolver", resolver), ("--owner", owner)) if value for w in (flag, value)]
    flags += ["--dns-port", str(dns_port)] if dns_port != 53 else []
    again = "./invoke " + shlex.join(
        ["rollback", "--name", name, "--old", old, "--new", new, "--dns", dns, *flags]
    )  # fmt: skip
    try:
        result = standalone(name, old, new, settings, source, plan=_switch_plan(steps, ttl, samples), **asked)
    except Held as held:
        if as_json:
            print(finite_json({"ok": None, "verdict": "held", "figures": {}, "why": held.why}))
        held.next_command = f"the same command again (it looks anew), or {again}"
        raise
    if as_json:
        body = result.model_dump(mode="json")
        wanted = ("rehearsed_rollback_s", "rollback_s", "rollback_resolver_s", "ttl_before_s", "ttl_s", "seconds")
        told = {"ok": not result.rolled_back, "verdict": "rolled back" if result.rolled_back else "moved"}
        print(finite_json({**told, "figures": {k: body[k] for k in wanted}, "why": result.why, "steps": body["steps"]}))
    elif not result.rolled_back:
        print(f"all users of {name} are at {new}")
        print(f"next: {again} (the way back)")
    if result.rolled_back:
        print(f"rolled back: all users of {name} are at {old}: {result.why}", file=sys.stderr)
        print(
            f"next: mend that, then the same command again; or {again} --restore (the record as found)", file=sys.stderr
        )
    return 1 if result.rolled_back else 0


def _switch_plan(steps: str, ttl: int, samples: int) -> Any:
    """The steps as given, the profile's defaults else. Raises DeclarationError."""
    from pydantic import ValidationError

    from inferlift import profile

    given: dict[str, Any] = {"ttl_s": ttl, "min_samples": samples}
    try:
        if steps:
            given["steps"] = tuple(int(part) for part in steps.split(","))
        return profile.Switch.model_validate({key: value for key, value in given.items() if value})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        why = f"{FLAGS.get(str(first['loc'][0]), '') if first['loc'] else ''} {first['msg']}".strip()
    except ValueError:
        why = "percents by commas, as in 1,10,50,100"
    raise DeclarationError("the switch cannot be made like that", why=why)
