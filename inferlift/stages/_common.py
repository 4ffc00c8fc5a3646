"""What several stages need of the profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlift.errors import DeclarationError
from inferlift.stages.base import Context

if TYPE_CHECKING:
    from inferlift.load.pictures import Pictures, Sights
    from inferlift.load.quality import Case

PICTURED = ("image", "multimodal")  # tasks whose requests carry a picture


def sizing_part(ctx: Context) -> dict[str, Any]:
    p = ctx.profile
    return {
        "model": p.model, "server": p.server, "requests": p.requests, "targets": p.targets,
        "operations": p.operations, "budget": p.budget, "task": p.task, "target": p.target, "network": p.network,
        "data": p.data, "hosting": p.hosting, "static": p.static, "tco": p.tco,
        "lab": [p.lab.model_cpus, p.lab.model_memory_mb] if p.lab else None,
    }  # fmt: skip


def pictures(ctx: Context) -> tuple[Case, ...]:
    """The pictures that are sent, with the text on each or a question to each. Raises DeclarationError without any."""
    from inferlift.load.pictures import load_pictures, load_sights

    path = ctx.profile.load.quality_prompts
    if path is None:
        raise DeclarationError(
            "nothing says which pictures are sent",
            why=f"the task {ctx.profile.task} takes them from load.quality_prompts",
            next_command=f"give load.quality_prompts in {ctx.profile_path}: docs/load.md shows its lines",
        )
    return (load_pictures if ctx.profile.task == "image" else load_sights)(ctx.root / path)


def quality_cases(ctx: Context) -> tuple[Case, ...]:
    """What quality is judged by: pictures with their text, or checkable prompts; empty where the profile has none."""
    from inferlift.load.quality import load_cases

    path = ctx.profile.load.quality_prompts
    if path is None:
        return ()
    return pictures(ctx) if ctx.profile.task in PICTURED else tuple(load_cases(ctx.root / path))


def protocol(ctx: Context, cases: Sequence[Case] = ()) -> Pictures | Sights | None:
    """How requests are made (of these cases, or all pictures) and answers read; None: chat, from the questions."""
    if ctx.profile.task not in PICTURED:
        return None
    from inferlift.load.pictures import Pictures, Sights

    sent = cases or pictures(ctx)
    if ctx.profile.task == "multimodal":
        return Sights(sent, ctx.profile.requests.output_tokens)
    return Pictures([Path(case.prompt) for case in sent])


def questions(ctx: Context) -> tuple[str, ...]:
    """The questions that are asked, one a line; where pictures are sent, their names."""
    if ctx.profile.task in PICTURED:
        return tuple(Path(case.picture or case.prompt).name for case in pictures(ctx))
    path = ctx.root / "profiles" / "demo" / "questions.txt"
    return (
        tuple(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()) if path.exists() else ()
    )


def server_wheels(ctx: Context, kind: str) -> Path | None:
    """Folder of the wheels that a kind of model server is installed from; None where it takes none."""
    from inferlift import toolchain
    from inferlift.profile.servers import servers

    name = servers()[kind].get("wheels")
    if name is None:
        return None
    toolchain.ensure([name], ctx.announce)
    return toolchain.wheel_folder(name)
