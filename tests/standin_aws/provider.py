"""A small `pulumi-resource-aws` for tests: the program's resources as boto3 calls to whatever AWS_ENDPOINT_URL names.

`--install FOLDER` writes the executable. A property that properties.csv does not know is refused: what the real
provider does with it, nobody has looked up.
"""

from __future__ import annotations

import csv
import os
import signal
import sys
import time
from concurrent import futures
from functools import cache
from pathlib import Path
from typing import Any

from tests.standin_aws import kinds_hosts, kinds_network, kinds_stores
from tests.standin_aws.kind import Aws, Json, Kind

EXECUTABLE = "pulumi-resource-aws"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # the engine's mark of a value it will know after a create
KINDS: dict[str, Kind] = {**kinds_network.KINDS, **kinds_hosts.KINDS, **kinds_stores.KINDS}
# What a program may read of a resource beside its inputs, for previews: unknown until it is made.
LATER = ("arn", "latestVersion", "repositoryUrl", "publicIp", "dnsName", "keyId", "allocationId")
# A file of names: once such a resource is made the provider dies before it says so, once each; with !, the engine too.
KILL = "STANDIN_KILL_AFTER"


def install(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).resolve().parents[2]
    path = folder / EXECUTABLE
    path.write_text(f"#!/bin/sh\nPYTHONPATH='{root}' exec '{sys.executable}' -u -m tests.standin_aws.provider \"$@\"\n")
    path.chmod(0o755)
    return path


@cache
def properties() -> dict[tuple[str, str], str]:
    """(type, property) -> replace | update | none, from the table."""
    with (Path(__file__).parent / "properties.csv").open(newline="") as file:
        return {(row["type"], row["property"]): row["change"] for row in csv.DictReader(file)}


def check(kind: str, inputs: Json) -> list[tuple[str, str]]:
    if kind not in KINDS:
        return [("", f"the stand-in has no {kind}")]
    return [
        (key, f"{kind}.{key} is not in properties.csv")
        for key in inputs
        if not key.startswith("__") and (kind, key) not in properties()
    ]


def diff(kind: str, old: Json, new: Json) -> tuple[list[str], list[str]]:
    """(changed, of them those that need another resource)."""
    keys = {k for k in (*old, *new) if not k.startswith("__")}
    changed = sorted(k for k in keys if old.get(k) != new.get(k) and properties()[(kind, k)] != "none")
    return changed, [k for k in changed if properties()[(kind, k)] == "replace"]


def die_if_told(name: str) -> None:
    path = Path(os.environ.get(KILL) or os.devnull)
    names = path.read_text().split() if path.is_file() else []
    if name in names or f"{name}!" in names:
        path.write_text("\n".join(n for n in names if n.rstrip("!") != name))
        if f"{name}!" in names:
            os.kill(os.getppid(), signal.SIGKILL)
        os._exit(9)


def paths(key: str, old: Any, new: Any) -> list[str]:
    """Where inside a property it differs, as the real provider says it: launchTemplate.id."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [key]
    return [f"{key}.{k}" for k in sorted({*old, *new}) if old.get(k) != new.get(k)]


def serve() -> None:
    import grpc as grpc_module
    from google.protobuf import empty_pb2 as empty_module
    from google.protobuf import json_format as json_module
    from google.protobuf import struct_pb2 as struct_module
    from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc
    from pulumi.runtime.proto import provider_pb2 as pb

    grpc: Any = grpc_module
    empty_pb2: Any = empty_module
    json_format: Any = json_module
    struct_pb2: Any = struct_module
    clients: dict[str, Aws] = {}

    def plain(struct: Any) -> Json:
        return dict(json_format.MessageToDict(struct))

    def packed(values: Json) -> Any:
        struct = struct_pb2.Struct()
        struct.update(values)
        return struct

    def kind_of(urn: str) -> str:
        return urn.split("::")[2].rsplit("$", 1)[-1]

    def aws() -> Aws:
        return clients["it"]

    class Servicer(provider_pb2_grpc.ResourceProviderServicer):
        def GetPluginInfo(self, request: Any, context: Any) -> Any:
            return plugin_pb2.PluginInfo(version="7.0.0")

        def Handshake(self, request: Any, context: Any) -> Any:
            return pb.ProviderHandshakeResponse(accept_secrets=False, accept_resources=False)

        def Attach(self, request: Any, context: Any) -> Any:
            return empty_pb2.Empty()

        def GetSchema(self, request: Any, context: Any) -> Any:
            return pb.GetSchemaResponse(schema='{"name":"aws","version":"7.0.0"}')

        def CheckConfig(self, request: Any, context: Any) -> Any:
            return pb.CheckResponse(inputs=request.news)

        def DiffConfig(self, request: Any, context: Any) -> Any:
            return pb.DiffResponse()

        def Configure(self, request: Any, context: Any) -> Any:
            clients["it"] = Aws(plain(request.args).get("region") or os.environ["AWS_DEFAULT_REGION"])
            return pb.ConfigureResponse(acceptSecrets=False, supportsPreview=True, acceptResources=False)

        def Check(self, request: Any, context: Any) -> Any:
            problems = check(kind_of(request.urn), plain(request.news))
            failures = [pb.CheckFailure(property=key, reason=reason) for key, reason in problems]
            return pb.CheckResponse(inputs=request.news, failures=failures)

        def Diff(self, request: Any, context: Any) -> Any:
            changed, replaces = diff(kind_of(request.urn), plain(request.old_inputs), plain(request.news))
            if not changed:
                return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)
            detail = {
                path: pb.PropertyDiff(
                    kind=pb.PropertyDiff.UPDATE_REPLACE if key in replaces else pb.PropertyDiff.UPDATE
                )
                for key in changed
                for path in paths(key, plain(request.old_inputs).get(key), plain(request.news).get(key))
            }
            return pb.DiffResponse(
                changes=pb.DiffResponse.DIFF_SOME, diffs=changed, replaces=replaces, detailedDiff=detail,
                hasDetailedDiff=True,
            )  # fmt: skip

        def Create(self, request: Any, context: Any) -> Any:
            kind, inputs = kind_of(request.urn), plain(request.properties)
            if request.preview:
                return pb.CreateResponse(id="", properties=packed({**inputs, **dict.fromkeys(LATER, UNKNOWN)}))
            try:
                identity = KINDS[kind].create(aws(), inputs)
                die_if_told(request.urn.rpartition("::")[2])
                outputs = {**inputs, **KINDS[kind].outputs(aws(), identity, inputs)}
            except Exception as error:
                return context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
            return pb.CreateResponse(id=identity, properties=packed(outputs))

        def Read(self, request: Any, context: Any) -> Any:
            kind = kind_of(request.urn)
            inputs = plain(request.inputs) or plain(request.properties)
            try:
                seen = KINDS[kind].read(aws(), request.id, inputs)
                if seen is None:
                    return pb.ReadResponse(id="")
                outputs = {**seen, **KINDS[kind].outputs(aws(), request.id, seen)}
            except Exception as error:
                return context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
            return pb.ReadResponse(id=request.id, inputs=packed(seen), properties=packed(outputs))

        def Update(self, request: Any, context: Any) -> Any:
            kind, new = kind_of(request.urn), plain(request.news)
            if request.preview:
                return pb.UpdateResponse(properties=packed({**plain(request.olds), **new}))
            try:
                KINDS[kind].update(aws(), request.id, plain(request.old_inputs), new)
                outputs = {**new, **KINDS[kind].outputs(aws(), request.id, new)}
            except Exception as error:
                return context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
            return pb.UpdateResponse(properties=packed(outputs))

        def Delete(self, request: Any, context: Any) -> Any:
            inputs = plain(request.old_inputs) or plain(request.properties)
            try:
                KINDS[kind_of(request.urn)].delete(aws(), request.id, inputs)
            except Exception as error:
                if not any(word in str(error) for word in ("NotFound", "NoSuch", "not found", "does not exist")):
                    return context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
            return empty_pb2.Empty()

        def Cancel(self, request: Any, context: Any) -> Any:
            return empty_pb2.Empty()

    parent = os.getppid()
    server = grpc.server(futures.ThreadPoolExecutor(16))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--install"] and len(argv) == 2:
        print(install(Path(argv[1])))
        return 0
    serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
