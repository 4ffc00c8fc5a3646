"""build: the user's Alpine image on the base the target needs -> Images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inferlift.artifacts import Artifact, Check, Images
from inferlift.stages.base import Context, Stage
from inferlift.tree import tree_digest

# In front of a model server that users called as it is: keys, TLS, health by real answers, metrics, drain.
PLAIN = "templates/workloads/chat/plain.Dockerfile"
CHATS = ("chat", "multimodal")  # what that app passes on as it is


class BuildStage(Stage):
    name = "build"
    artifact = Images
    approval = "first"

    def key(self, ctx: Context) -> dict[str, Any]:
        from inferlift import toolchain

        dockerfile = dockerfile_of(ctx)
        return {
            "context": tree_digest(dockerfile.parent) if dockerfile else None,
            "base": toolchain.base_image(),
            "package map": tree_digest(ctx.root / "inferlift" / "images", "*.yaml"),
        }

    def applicable(self, ctx: Context) -> str | None:
        if ctx.profile.task == "batch" and dockerfile_of(ctx) is None:
            return "no Dockerfile is declared; jobs run `current` of the registry that poc makes"
        return None

    def preview(self, ctx: Context) -> list[str]:
        from inferlift.images import rewrite

        dockerfile = dockerfile_of(ctx)
        if dockerfile is None:
            return ["rewrite the workload's Dockerfile to the target's base and build it with podman"]
        changes = rewrite(dockerfile.read_text(encoding="utf-8"), "debian").changes
        if dockerfile == ctx.root / PLAIN:
            return ["no image of an app is declared: build the plain one that passes chats on to the model server"]
        return [f"rewrite {len(changes)} lines of {dockerfile} and build it with podman"]

    def run(self, ctx: Context) -> Images:
        from inferlift import toolchain
        from inferlift.images import build, rewrite

        toolchain.ensure(["debian-packages", "base-image"], ctx.announce)
        dockerfile = dockerfile_of(ctx)
        assert dockerfile is not None  # noqa: S101 - place() lets no service through without one, nor a queue to here
        base = toolchain.base_image()
        rewritten = rewrite(dockerfile.read_text(encoding="utf-8"), base)
        return ctx.step(
            "build",
            lambda: Images(
                images=(
                    build(
                        dockerfile.parent,
                        rewritten.text,
                        base_image=base,
                        name=f"{ctx.profile.name}-app",
                        out=ctx.path("images") / f"{ctx.profile.name}-app.tar",
                        changes=rewritten.changes,
                        podman_env=toolchain.podman_env(),
                        owner=f"{ctx.owner}/images",
                        say=ctx.say,
                    ),
                )
            ),
            Images,
            subject=str(dockerfile),
            planned={"base": base},
        )

    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        from inferlift.images import verify

        assert isinstance(artifact, Images)  # noqa: S101
        return [c for image in artifact.images for c in verify(image)]

    def summary(self, artifact: Artifact) -> str:
        assert isinstance(artifact, Images)  # noqa: S101
        return ", ".join(
            f"{i.name} {i.digest[7:19]}, {i.bytes / 1e6:.0f} MB, {len(i.changes)} lines moved" for i in artifact.images
        )


def dockerfile_of(ctx: Context) -> Path | None:
    if ctx.profile.raised is not None:
        return ctx.root / "templates" / "workloads" / ctx.profile.raised.workload / "Dockerfile"
    if ctx.profile.origin is not None and ctx.profile.origin.dockerfile:
        return ctx.root / ctx.profile.origin.dockerfile
    return ctx.root / PLAIN if ctx.profile.origin is not None and ctx.profile.task in CHATS else None
