"""What a profile still lacks before `deploy` may move its service, said at once and before anything is made."""

from __future__ import annotations

from inferlift.declaration import Declared
from inferlift.errors import DeclarationError
from inferlift.profile import ROOT, Profile

TASKS = ("chat", "image", "multimodal")  # what load test, gates and parity replay can ask for as its users do
CHATS = ("chat", "multimodal")  # what the plain app passes on (stages/build.py)
EXAMPLE = ROOT / "templates" / "profile" / "origin.yaml"
CHAT = "/v1/chat/completions"  # what the plain app answers (stages/build.py), where there is none of the users' own


def deployable(profile: Profile, name: str, declared: Declared | None = None) -> None:
    """Raises DeclarationError with all that is missing; `declared` tells the file and line to look at."""
    plan = f"./invoke size --profile {name} --explain (what it needs and costs)"
    if profile.target == "aws":
        plan = f"./invoke plan --profile {name} (what would be made, and what the account says)"
    if profile.target == "aws" and profile.task == "batch" and profile.lab is None and profile.origin is None:
        return  # a queue takes no users over from anywhere
    if profile.task not in TASKS:
        raise DeclarationError(
            f"the task {profile.task} can be planned, not yet deployed",
            why=f"users' requests are played and compared for the tasks {', '.join(TASKS)} alone",
            next_command=f"{plan}, or ./invoke deploy --profile demo",
        )
    if profile.origin is None and profile.lab is None:
        example = EXAMPLE.read_text(encoding="utf-8").rstrip()
        file = declared.where("", ROOT).rstrip(": ") if declared is not None else "it"
        raise DeclarationError(
            f"{profile.name} does not say where its users are now, so nobody can be moved",
            why=f"it has no `origin:` section; one to copy into {file} and to fill in:\n\n{example}\n",
            next_command=f"{plan}; docs/move.md goes through it",
        )
    if profile.origin is None and profile.task == "multimodal":
        raise DeclarationError(
            "the lab has no old world of the task multimodal",
            why="it raises a chat service and an image service (`lab.workload`)",
            next_command=f"declare a service that exists (`origin:`, docs/move.md); until then {plan}",
        )
    if (why := _edge(profile)) is not None:
        raise DeclarationError(
            "users of several sites cannot be told apart",
            why=why,
            next_command=f"declare that, or take `aws.edge` away; until then {plan}",
        )
    if profile.data.state == "read-write" and profile.data.freeze is None:
        raise DeclarationError(
            "data that users write cannot be moved without a freeze and a way back",
            why="what is written on the old side during the switch would be lost on the new one",
            next_command="declare data.freeze and data.thaw (docs/images.md), or data.state: read-only",
        )
    if profile.origin is not None and (found := lacking(profile)):
        lines = [f"{declared.where(key, ROOT) if declared else ''}{key}: {why}" for key, why in found]
        raise DeclarationError(
            "\n".join([f"{len(found)} things stand between {profile.name} and its move:", *lines]),
            why=f"the old side is declared by hand; an example is {EXAMPLE.relative_to(ROOT)}; nothing was changed",
            next_command=f"write them down, then run the same command again; until then {plan}",
        )


def _edge(profile: Profile) -> str | None:
    """Why the users of `aws.edge`'s sites cannot be sent each to their own; None where they can, or there is one."""
    if profile.target != "aws" or not profile.aws.edge:
        return None
    dns = profile.switch.dns
    if dns is None or dns.kind != "route53":
        return "each region's users are sent there by latency records, which are Route 53's: switch.dns of kind route53"
    if any(not site[-1].isdigit() for site in profile.aws.edge):
        return "latency records know regions, no Local Zones: aws.edge may hold regions alone where users are moved"
    return None


def lacking(profile: Profile) -> list[tuple[str, str]]:
    """Keys that a plan does without and a migration from an existing service does not, each with what is expected."""
    origin, server = profile.origin, profile.server
    assert origin is not None  # noqa: S101 - asked of those that have one
    wanted = {
        "ssh": "expected USER@HOST of the old host",
        "certificate": "expected the PEM chain that users are shown, or origin.acme: where the new side gets one",
        "certificate_key": "expected a reference to its private key: file:PATH or env:NAME",
        "key": "expected a reference to the users' key: file:PATH or env:NAME; the gateway lets nobody in without one",
        "routes": "expected `path of users: path of the app`, such as /api/chat: /v1/chat/completions",
    }
    if origin.acme is not None:
        del wanted["certificate"], wanted["certificate_key"]
    found = [(f"origin.{key}", f"missing; {why}") for key, why in wanted.items() if not getattr(origin, key)]
    if origin.acme is not None and profile.switch.dns is not None and profile.switch.dns.kind == "haproxy":
        found.append(
            ("origin.acme", "switch.dns is a gateway, which answers no TXT record; expected certificate files")
        )
    if profile.target == "lab":
        why = "expected static or aws: users would be led to the lab's hosts, which this machine alone reaches"
        found.append(("target", why))
    if origin.dockerfile is None and (profile.task not in CHATS or set(origin.routes.values()) - {CHAT}):
        why = (
            f"missing; without an app of its own a service is moved where it is a chat, and each route leads to {CHAT}"
        )
        found.append(("origin.dockerfile", why))
    if profile.switch.dns is None:
        why = "missing; expected who answers for the name: powerdns, route53, rfc2136 or haproxy (docs/switch.md)"
        found.append(("switch.dns", why))
    if profile.data.state != "none" and profile.data.source is None:
        found.append(("data.source", "missing; expected the folder on the old host, or s3://BUCKET/PREFIX"))
    if server.kind == "vllm" and not (server.image or server.requirements):
        why = "missing; expected a vLLM image by digest, or server.requirements: a file with hashes that pins vllm"
        found.append(("server.image", why))
    if profile.model.source == "not said yet":
        found.append(("model.source", "not said yet; expected where the weights come from"))
    if profile.task in ("image", "multimodal") and profile.load.quality_prompts is None:
        beside = "their text" if profile.task == "image" else "a question to each and its answer"
        found.append(("load.quality_prompts", f"missing; the pictures that are sent are named there, with {beside}"))
    return found
