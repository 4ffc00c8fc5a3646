"""What `invoke doctor` says: which tools are there, which are missing, and the command that brings each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from inferlift.errors import DeclarationError
from inferlift.toolchain import inventory, tools_for
from inferlift.toolchain.table import Tool, catalogue


def report(target: str = "lab") -> list[Tool]:
    """The tools that a target needs. Raises DeclarationError for a target that no tool is for."""
    names = tools_for(target)
    if not names:
        known = sorted({t for spec in catalogue().values() for t in spec.targets})
        raise DeclarationError(
            f"no target is called {target}",
            why=f"there are: {', '.join(known)}",
            next_command=f"./invoke doctor --target {known[0]}",
        )
    return inventory(names)


def exit_code(tools: Sequence[Tool]) -> int:
    """0 when all are there, else 1."""
    return 0 if all(tool.present for tool in tools) else 1


def table(tools: Sequence[Tool]) -> str:
    """A table for people, with the command that brings each missing tool."""
    rows = [("tool", "there", "version", "needed by", "detail")]
    rows += [(t.name, "yes" if t.present else "no", t.version or "-", ", ".join(t.needed_by), t.detail) for t in tools]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join((*(c.ljust(w) for c, w in zip(row[:4], widths, strict=True)), row[4])) for row in rows]
    missing = [t for t in tools if not t.present]
    if missing:
        lines += ["", "missing; each task makes what it needs, or by hand:"]
        lines += [f"  {t.bring}" for t in missing]
    else:
        lines += ["", "all there"]
    return "\n".join(lines)


def as_object(tools: Sequence[Tool]) -> dict[str, object]:
    """What `--json` prints: ok, verdict, figures (counts) and the tools."""
    missing = sum(not t.present for t in tools)
    return {
        "ok": missing == 0,
        "verdict": "missing" if missing else "complete",
        "figures": {"tools": len(tools), "present": len(tools) - missing, "missing": missing},
        "tools": [asdict(t) for t in tools],
    }
