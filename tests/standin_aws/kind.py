"""Stand-in: what a resource kind does, and the clients it does it with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
CALLS = "STANDIN_CALLS"


class Aws:
    """boto3's clients of one region; the endpoint is the stand-in cloud's, from the environment."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._clients: dict[str, Any] = {}

    def __getattr__(self, service: str) -> Any:
        if service not in self._clients:
            import boto3

            made = boto3.client(service, region_name=self.region)
            made.meta.events.register("before-call", _note)
            self._clients[service] = made
        return self._clients[service]

    def retag(self, identity: str, old: Json | None, new: Json | None) -> None:
        removed = [{"Key": key} for key in old or {} if key not in (new or {})]
        if removed:
            self.ec2.delete_tags(Resources=[identity], Tags=removed)
        if new:
            self.ec2.create_tags(Resources=[identity], Tags=tag_list(new))


def _note(model: Any, **_: Any) -> None:
    """Every call, a line each, in the file that STANDIN_CALLS names: the operator's policy must allow them all."""
    if path := os.environ.get(CALLS):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{model.service_model.service_name}:{model.name}\n")


class Kind:
    """Subclasses say how. `outputs` is what a program can read beside its inputs."""

    def create(self, aws: Aws, i: Json) -> str:
        raise NotImplementedError

    def read(self, aws: Aws, identity: str, i: Json) -> Json | None:
        """The inputs as AWS has them now; None where the thing is gone."""
        raise NotImplementedError

    def update(self, aws: Aws, identity: str, old: Json, new: Json) -> None:
        raise RuntimeError(f"the stand-in cannot change a {type(self).__name__} in place")

    def delete(self, aws: Aws, identity: str, i: Json) -> None:
        raise NotImplementedError

    def outputs(self, aws: Aws, identity: str, i: Json) -> Json:
        return {}


def number(value: Any) -> int:
    """Numbers arrive as floats: the wire has no other."""
    return int(value)


def whole(value: Any) -> Any:
    """The same for everything inside."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {k: whole(v) for k, v in value.items()}
    return [whole(v) for v in value] if isinstance(value, list) else value


def pascal(value: Any) -> Any:
    """camelCase keys as boto3's PascalCase, all the way down."""
    if isinstance(value, dict):
        return {k[:1].upper() + k[1:]: pascal(v) for k, v in value.items() if v is not None}
    return [pascal(v) for v in value] if isinstance(value, list) else value


def tag_list(tags: Json | None) -> list[Json]:
    return [{"Key": k, "Value": v} for k, v in (tags or {}).items()]


def tags_from(rows: list[Json] | None) -> Json:
    return {r["Key"]: r["Value"] for r in rows or []}


def gone(look: Callable[[], Any]) -> Any:
    """The answer, or None where AWS says that there is no such thing."""
    from botocore.exceptions import ClientError

    try:
        return look()
    except ClientError as error:
        code = str(error.response["Error"]["Code"])
        words = ("NotFound", "NoSuch", "InvalidNatGatewayID", "NotExist", "404")
        if any(word in code for word in words) or "not found" in str(error).lower():
            return None
        raise
