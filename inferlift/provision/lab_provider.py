"""The lab's Pulumi resource provider: hosts and networks in podman, over gRPC.

Run by the engine as `pulumi-resource-inferlift-lab`; `--install FOLDER` writes that executable. Resources:
`inferlift-lab:index:Network` and `inferlift-lab:index:Host`. Every create is get-or-create by label, so an update
that was killed is simply repeated.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

from inferlift.errors import InferliftError
from inferlift.provision.models import HostSpec

PACKAGE = "inferlift-lab"
NETWORK, HOST = f"{PACKAGE}:index:Network", f"{PACKAGE}:index:Host"
EXECUTABLE = f"pulumi-resource-{PACKAGE}"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # the engine's mark of a value it will know after a create


def install(folder: Path) -> Path:
    """Write the executable that the engine looks for on PATH; it runs this very Python."""
    folder.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).resolve().parents[2]
    module = "inferlift.provision.lab_provider"
    text = (
        f"#!/bin/sh\nPYTHONPATH='{root}'${{PYTHONPATH:+:$PYTHONPATH}} exec '{sys.executable}' -u -m {module} \"$@\"\n"
    )
    path = folder / EXECUTABLE
    if not path.exists() or path.read_text() != text:
        temporary = folder / f".{EXECUTABLE}.{os.getpid()}"
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.rename(path)
    return path


def diff(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The inputs that differ. A lab host or network is replaced, never changed in place."""
    keys = {k for k in (*old, *new) if not k.startswith("__")}
    return sorted(k for k in keys if old.get(k) != new.get(k))


def host_spec(inputs: dict[str, Any]) -> HostSpec:
    return HostSpec(
        owner=inputs["owner"],
        name=inputs["name"],
        role=inputs["role"],
        image=inputs["image"],
        cpus=float(inputs["cpus"]),
        memory_bytes=int(inputs["memoryBytes"]),
        public_key=inputs["publicKey"],
        site=inputs["site"],
    )


class Lab:
    """What the engine's calls do, apart from gRPC."""

    def __init__(self, podman: Any) -> None:
        self.podman = podman

    def check(self, kind: str, inputs: dict[str, Any]) -> list[tuple[str, str]]:
        """(property, reason) of what is wrong with the inputs."""
        wanted = ["owner"]
        if kind == HOST:
            wanted += ["name", "role", "image", "cpus", "memoryBytes", "publicKey", "site", "network"]
        problems = [(key, "is missing") for key in wanted if inputs.get(key) in (None, "")]
        for key, least in (("cpus", 0.01), ("memoryBytes", 64 * 2**20)):
            value = inputs.get(key)
            if kind == HOST and isinstance(value, int | float) and value < least:
                problems.append((key, f"must be at least {least:g}"))
        return problems

    def create(self, kind: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if kind == NETWORK:
            network = self.podman.ensure_network(inputs["owner"])
            return network.name, {**inputs, "name": network.name, "subnet": str(network.subnet)}
        host = self.podman.ensure_host(host_spec(inputs))
        return host.container.name, {**inputs, **_host_outputs(host.container, host.host_key)}

    def read(self, kind: str, identity: str, inputs: dict[str, Any]) -> dict[str, Any] | None:
        """The outputs as podman has them now; None where the thing is gone or must be made anew."""
        if kind == NETWORK:
            network = self.podman.network_of(inputs["owner"])
            found = network is not None and network.name == identity
            return {**inputs, "name": network.name, "subnet": str(network.subnet)} if found else None
        spec = host_spec(inputs)
        container = self.podman.find(identity)
        if container is None or container.labels.get("inferlift.owner") != spec.owner:
            return None
        if container.differs(spec) is not None:
            return None
        return {**inputs, **_host_outputs(container, self.podman.host_key(container))}

    def delete(self, kind: str, identity: str, inputs: dict[str, Any]) -> None:
        owner = inputs["owner"]
        if kind == HOST:
            for container in self.podman.of(owner):
                if container.name == identity:
                    self.podman.remove(container)
        elif self.podman.network_of(owner) is not None:
            self.podman.remove_network(owner)


def _host_outputs(container: Any, host_key: str) -> dict[str, Any]:
    return {"container": container.id, "address": container.address, "hostKey": host_key}


def serve() -> None:
    """Answer the engine until it goes away; then finish the call in progress, start no other, and end."""
    import grpc as grpc_module
    from google.protobuf import empty_pb2 as empty_module
    from google.protobuf import json_format as json_module
    from google.protobuf import struct_pb2 as struct_module
    from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc
    from pulumi.runtime.proto import provider_pb2 as pb

    from inferlift.provision.podman import Podman

    # generated or untyped code: its names are not visible to a type checker
    grpc: Any = grpc_module
    empty_pb2: Any = empty_module
    json_format: Any = json_module
    struct_pb2: Any = struct_module
    stop = threading.Event()
    busy = _Busy()
    lab = Lab(Podman(cancelled=stop.is_set))

    def plain(struct: Any) -> dict[str, Any]:
        return dict(json_format.MessageToDict(struct))

    def packed(values: dict[str, Any]) -> Any:
        struct = struct_pb2.Struct()
        struct.update(values)
        return struct

    def kind_of(urn: str) -> str:
        return urn.split("::")[2].rsplit("$", 1)[-1]

    class Servicer(provider_pb2_grpc.ResourceProviderServicer):
        def GetPluginInfo(self, request: Any, context: Any) -> Any:
            return plugin_pb2.PluginInfo(version="0.1.0")

        def Handshake(self, request: Any, context: Any) -> Any:
            return pb.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True)

        def Attach(self, request: Any, context: Any) -> Any:
            return empty_pb2.Empty()

        def GetSchema(self, request: Any, context: Any) -> Any:
            return pb.GetSchemaResponse(schema=f'{{"name":"{PACKAGE}","version":"0.1.0"}}')

        def CheckConfig(self, request: Any, context: Any) -> Any:
            return pb.CheckResponse(inputs=request.news)

        def DiffConfig(self, request: Any, context: Any) -> Any:
            return pb.DiffResponse()

        def Configure(self, request: Any, context: Any) -> Any:
            return pb.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptResources=True)

        def Check(self, request: Any, context: Any) -> Any:
            problems = lab.check(kind_of(request.urn), plain(request.news))
            failures = [pb.CheckFailure(property=key, reason=reason) for key, reason in problems]
            return pb.CheckResponse(inputs=request.news, failures=failures)

        def Diff(self, request: Any, context: Any) -> Any:
            changed = diff(plain(request.old_inputs), plain(request.news))
            if not changed:
                return pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE)
            return pb.DiffResponse(
                changes=pb.DiffResponse.DIFF_SOME, diffs=changed, replaces=changed, deleteBeforeReplace=True
            )

        def Create(self, request: Any, context: Any) -> Any:
            inputs = plain(request.properties)
            if request.preview:
                later = ("container", "address", "hostKey") if kind_of(request.urn) == HOST else ("name", "subnet")
                return pb.CreateResponse(id="", properties=packed({**inputs, **dict.fromkeys(later, UNKNOWN)}))
            with busy:
                if stop.is_set():
                    return context.abort(grpc.StatusCode.CANCELLED, "the update was cancelled")
                try:
                    identity, outputs = lab.create(kind_of(request.urn), inputs)
                except InferliftError as error:
                    return context.abort(grpc.StatusCode.UNKNOWN, str(error))
            return pb.CreateResponse(id=identity, properties=packed(outputs))

        def Read(self, request: Any, context: Any) -> Any:
            inputs = plain(request.inputs) or plain(request.properties)
            try:
                outputs = lab.read(kind_of(request.urn), request.id, inputs)
            except InferliftError as error:
                return context.abort(grpc.StatusCode.UNKNOWN, str(error))
            if outputs is None:
                return pb.ReadResponse(id="")
            return pb.ReadResponse(id=request.id, inputs=packed(inputs), properties=packed(outputs))

        def Delete(self, request: Any, context: Any) -> Any:
            inputs = plain(request.old_inputs) or plain(request.properties)
            with busy:
                try:
                    lab.delete(kind_of(request.urn), request.id, inputs)
                except InferliftError as error:
                    return context.abort(grpc.StatusCode.UNKNOWN, str(error))
            return empty_pb2.Empty()

        def Cancel(self, request: Any, context: Any) -> Any:
            stop.set()
            return empty_pb2.Empty()

    parent = os.getppid()
    server = grpc.server(futures.ThreadPoolExecutor(16))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while os.getppid() == parent:
        time.sleep(0.1)
    stop.set()
    busy.wait(limit_s=10)
    os._exit(0)


class _Busy:
    """Counts the calls that are changing something."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait(self, limit_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0, limit_s)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--install"] and len(argv) == 2:
        print(install(Path(argv[1])))
        return 0
    serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
