"""What the sections of a profile must have in common: everything that contradicts, with the nearest that can be met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inferlift.profile.demand import WRITES_TOKENS

if TYPE_CHECKING:
    from inferlift.profile import Profile

Finding = tuple[str, str]  # the dotted key to look at, and why

_READS = ("input_tokens_p50", "input_tokens_p95")
_SEES = ("image_width", "image_height")
# What each task cannot be sized without. A batch is of texts or of images: what it is of tells which.
_NEEDED = {
    "chat": (*_READS, "output_tokens"),
    "multimodal": (*_READS, "output_tokens", *_SEES),
    "embeddings": _READS,
    "image": _SEES,
}
ARCHITECTURE = ("layers", "heads", "kv_heads", "head_dim", "context")
# AWS promises 99.5 % of one instance and 99.99 % of instances over two zones.
# Source: https://aws.amazon.com/compute/sla/ (versions to 2022: https://aws.amazon.com/compute/sla/historical/)
ONE_INSTANCE = 0.995
TWO_ZONES = 0.9999


def needed(plain: Mapping[str, Any]) -> list[str]:
    """Keys of `requests` that the task of this profile, as written, cannot do without and that are not there."""
    task, requests = plain.get("task", "chat"), plain.get("requests")
    if not isinstance(requests, Mapping) or not isinstance(task, str):
        return []
    if task == "batch":
        task = "image" if any(requests.get(key) is not None for key in _SEES) else "embeddings"
    # a null where none may stand is told of by the key's own type
    return [key for key in _NEEDED.get(task, ()) if key not in requests or (key in _SEES and requests.get(key) is None)]


def wants_operations(plain: Mapping[str, Any]) -> bool:
    """Whether this profile, as written, is of a task that is sized by a model's operations and says nothing of either:
    then it is asked for those, and not for an architecture that such a model may not have."""
    model = plain.get("model")
    if plain.get("task") not in ("image", "embeddings", "batch") or not isinstance(model, Mapping):
        return False
    return all(model.get(key) is None for key in ("flops_per_item", "config", *ARCHITECTURE))


def contradictions(profile: Profile) -> list[Finding]:
    """All findings over more than one section; empty for a profile that can be planned."""
    return [*_target(profile), *_task(profile), *_lengths(profile), *_targets(profile), *_operations(profile)]


def _target(profile: Profile) -> list[Finding]:
    found = []
    if profile.target == "lab" and profile.lab is None:
        found.append(("target", "target lab needs a `lab:` section"))
    if profile.target == "static" and profile.static is None:
        found.append(("target", "target static needs a `static:` section: the hosts that exist"))
    if profile.static is not None and not profile.static.hosts:
        found.append(("static.hosts", "expected at least one kind of host"))
    elif profile.static is not None and not any(h.role == "model" for h in profile.static.hosts):
        found.append(("static.hosts", "expected at least one kind of host with the role model"))
    if profile.target == "lab" and profile.data.state == "read-write" and profile.data.freeze is None:
        found.append(("data.state", "the lab's data is a read-only folder; expected none or read-only"))
    return found


def _task(profile: Profile) -> list[Finding]:
    """Each task has the lengths or sizes it is sized by; a key with the value of "none" counts as missing."""
    asked = profile.requests
    given = {key: value for key, value in asked.model_dump().items() if value not in (None, 0)}
    found = [
        (f"requests.{key}", f"missing; the task {profile.task} is sized by it: expected {_expected(key)}")
        for key in needed({"task": profile.task, "requests": given})
    ]
    if profile.task in ("image", "embeddings") and asked.output_tokens:
        found.append(("requests.output_tokens", f"the task {profile.task} writes no tokens; expected 0, or no key"))
    if profile.task in ("chat", "embeddings") and asked.image_width is not None:
        found.append(("requests.image_width", f"the task {profile.task} has no images; the task multimodal has"))
    return found


def _expected(key: str) -> str:
    return "pixels" if key.startswith("image") else "a whole number of tokens above 0"


def _lengths(profile: Profile) -> list[Finding]:
    """A request must fit into the context that a slot is given, and that into the model's."""
    model, found = profile.model, []
    slot = profile.server.context_per_slot or model.context
    if not model.context:
        return []
    if slot > model.context:
        found.append(("server.context_per_slot", f"exceeds the model's context ({model.context})"))
    longest = profile.requests.longest
    if longest > slot:
        length = "output_tokens_p95" if profile.requests.output_tokens_p95 is not None else "output_tokens"
        why = f"input_tokens_p95 + {length} ({longest}) exceed the context a request gets ({slot})"
        found.append(("requests", f"{why}; nearest: {_nearest_length(longest, slot, model.context)}"))
    return found


def _nearest_length(longest: int, slot: int, context: int) -> str:
    if longest <= context:
        return f"server.context_per_slot {longest} (the model takes {context})"
    return f"{min(slot, context)} tokens in and out together, or a model with a longer context"


def _targets(profile: Profile) -> list[Finding]:
    targets, task, found = profile.targets, profile.task, []
    if targets.quality is not None and profile.load.quality_prompts is None:
        found.append(("targets.quality", "needs load.quality_prompts: a file of prompts with answers"))
    if task not in WRITES_TOKENS:
        for key in ("p95_ttft_ms", "min_tokens_per_s"):
            if getattr(targets, key) is not None:
                other = "operations.deadline_hours" if task == "batch" else "targets.p95_total_ms"
                why = f"the task {task} streams no tokens to a user; what can be held there is {other}"
                found.append((f"targets.{key}", why))
    if targets.p95_total_ms is not None and targets.p95_total_ms > profile.load.request_timeout_s * 1000:
        timeout = profile.load.request_timeout_s
        why = (
            f"a request has failed after load.request_timeout_s ({timeout:g} s), before this target is missed"
            f"; nearest: {timeout * 1000:g}, or request_timeout_s {targets.p95_total_ms / 1000:g}"
        )
        found.append(("targets.p95_total_ms", why))
    budget = profile.network.latency_budget_ms
    for key in ("p95_ttft_ms", "p95_total_ms"):
        limit = getattr(targets, key)
        if budget is not None and limit is not None and budget >= limit:
            why = f"the network alone may take {limit:g} ms or more of targets.{key}; nearest: below {limit:g}"
            found.append(("network.latency_budget_ms", why))
            break
    return found


def _operations(profile: Profile) -> list[Finding]:
    operations, found = profile.operations, []
    promised = operations.availability
    if operations.deadline_hours is not None and profile.task != "batch":
        why = f"a deadline in hours is for the task batch; for {profile.task} set targets.p95_total_ms"
        found.append(("operations.deadline_hours", why))
    if promised is None:
        return found
    if promised > ONE_INSTANCE and operations.spare == 0:
        why = f"no single host promises more than {ONE_INSTANCE}; nearest: spare 1, or availability {ONE_INSTANCE}"
        found.append(("operations.availability", why))
    if profile.target == "aws" and promised > TWO_ZONES:
        why = f"AWS promises at most {TWO_ZONES} in one region, over two zones; nearest: {TWO_ZONES}"
        found.append(("operations.availability", why))
    return found
