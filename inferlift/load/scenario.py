"""A load test as it is told to workers: where, what and how, files inside, keys as references."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from inferlift.load.endpoint import Sent
from inferlift.load.plan import LoadPlan
from inferlift.load.protocols import Protocol
from inferlift.load.target import Target

# messages between master and workers, in the order they are sent
PLAN, READY, GO, PART, DONE, STOP = (f"inferlift_{name}" for name in ("plan", "ready", "go", "part", "done", "stop"))
_FILES = ("texts", "body", "rows", "tensors")


def scenario(plan: LoadPlan, sent: Sent, workers: int) -> dict[str, Any]:
    """Plain values, for all workers alike. Raises OSError for a file that cannot be read."""
    told: dict[str, Any] = {k: v for k, v in vars(sent).items() if k not in (*_FILES, "images")}
    files = {name: path.read_bytes() for name in _FILES if (path := getattr(sent, name)) is not None}
    images = [(path.name, path.read_bytes()) for path in sent.images]
    target = dataclasses.asdict(plan.target)
    target["extra_headers"] = dict(plan.target.extra_headers)
    return {
        "target": target, "sent": told, "files": files, "images": images, "texts": plan.texts,
        "requests": plan.requests, "workers": workers, "users": plan.users, "schedule_s": plan.schedule_s,
        "timeout_s": plan.request_timeout_s, "deadline_s": plan.deadline_s,
    }  # fmt: skip


def share(told: dict[str, Any], index: int) -> dict[str, Any]:
    """What worker `index` gets: every so-manyth request, with its send times in an open loop."""
    times = told["schedule_s"]
    due = None if times is None else list(times[index :: told["workers"]])
    return {**told, "index": index, "due_s": due, "schedule_s": None}


def target_of(told: dict[str, Any]) -> Target:
    return Target(**told["target"])


def protocol_of(told: dict[str, Any], folder: Path) -> Protocol:
    """The same protocol as the master's; files are laid down in `folder`."""
    paths: dict[str, Any] = {}
    for name, data in told["files"].items():
        paths[name] = folder / name
        paths[name].write_bytes(data)
    images = []
    for k, (name, data) in enumerate(told["images"]):
        images.append(folder / f"{k}-{Path(name).name}")
        images[-1].write_bytes(data)
    return Sent(**told["sent"], **paths, images=tuple(images)).make().apart(told["texts"])
