"""Images on model hosts before their roles run, with stand-ins for hosts, registry and podman.

For real: tests/lab/test_registry.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inferlift import migration, place
from inferlift.artifacts import Check, Delivered, Image, Images, Status
from inferlift.declaration import load
from inferlift.images import delivery, registry
from inferlift.profile import ROOT, ImageRegistry
from inferlift.stages import _moving

pytestmark = pytest.mark.usefixtures("as_root")
DIGEST = f"sha256:{'a' * 64}"
SERVER = f"engine.example/vllm@sha256:{'b' * 64}"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was done, in its order."""
    told: list[tuple[Any, ...]] = []

    def push(image: Image, there: registry.Registry, say: Any) -> registry.Pushed:
        told.append(("push", there.address))
        return registry.Pushed(f"{there.host}/team/app@{image.digest}", image.digest, 7, 0, 0.1)

    def pull(hosts: Any, reference: str, tag: str | None, there: Any, say: Any, *, deadline_s: float) -> list[Check]:
        told.append(("pull", reference, tag, there.host, deadline_s))
        return [Check(name=f"image on {host.name}", ok=True, detail="pulled") for host in hosts]

    monkeypatch.setattr(registry, "push", push)
    monkeypatch.setattr(delivery, "pull", pull)
    monkeypatch.setattr(delivery, "without_podman", lambda hosts: hosts[1:])
    return told


def deliver(folder: Path, said: list[tuple[Any, ...]], there: ImageRegistry | None, server: str | None) -> Any:
    declared = load("demo-small", ROOT)
    image = Image(name="app", digest=DIGEST, archive="/none", bytes=1, base="b", dockerfile="", changes=(), checks=())
    profile = declared.profile.model_copy(
        update={"registry": there, "server": declared.profile.server.model_copy(update={"image": server})}
    )
    hosts = [SimpleNamespace(name=name) for name in ("model-1", "model-2")]
    fleet: Any = SimpleNamespace(generation="g", by_role=lambda role: hosts)
    with migration.session(place.Place(profile, declared.path, folder, "t/deliver"), "deploy") as ctx:
        ctx.stage = "poc"
        ctx.ledger.begin("build", "k")
        ctx.ledger.finish("build", Images(images=(image,)), Status.DONE, 0.0)
        _moving.deliver(ctx, fleet, lambda names: said.append(("base", *names)))
        steps = [intent for intent in ctx.ledger.intents() if intent.action == "deliver"]
    return Delivered.model_validate_json(steps[0].result) if steps else None


def test_podman_first_then_the_users_image_by_digest_from_the_registry(tmp_path: Path, said: list[Any]) -> None:
    there = ImageRegistry(address="reg.test:5000/team", deadline_s=30)
    done = deliver(tmp_path, said, there, None)
    reference = f"reg.test:5000/team/app@{DIGEST}"
    tag = f"localhost/inferlift-app:{'a' * 12}"
    assert said == [("base", "model-2"), ("push", "reg.test:5000/team"), ("pull", reference, tag, "reg.test:5000", 30)]
    assert (done.references, done.bytes_sent, len(done.checks)) == ((reference,), 7, 2)


def test_the_model_servers_own_image_is_pulled_without_a_registry_of_ours(tmp_path: Path, said: list[Any]) -> None:
    done = deliver(tmp_path, said, None, SERVER)
    assert said == [("base", "model-2"), ("pull", SERVER, None, "engine.example", 1800)]
    assert done.references == (SERVER,)


def test_without_either_nothing_is_pulled(tmp_path: Path, said: list[Any]) -> None:
    assert deliver(tmp_path, said, None, None) is None
    assert said == []
