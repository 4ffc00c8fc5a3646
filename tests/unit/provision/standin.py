"""A stand-in for podman's command line, in memory.

It proves what we do with podman's answers, not that podman gives them: that is tests/lab/test_provision.py.
"""

from __future__ import annotations

import json
import subprocess
from itertools import pairwise
from typing import Any

from inferlift.provision.podman import Podman


class StandInPodman(Podman):
    def __init__(self) -> None:
        super().__init__()
        self.containers: dict[str, dict[str, Any]] = {}
        self.nets: dict[str, dict[str, Any]] = {}
        self.allocated: set[str] = set()
        self.failures: list[str] = []  # answers to give before a listing works
        self.calls: list[tuple[str, ...]] = []

    def add(self, name: str, state: str = "running", labels: dict[str, str] | None = None, **more: Any) -> str:
        identity = f"{len(self.calls):02d}{name}"
        self.containers[name] = {"id": identity, "state": state, "labels": labels or {}, **more}
        return identity

    def _try(self, *args: str, timeout_s: float = 60, stdin: str | None = None) -> Any:
        self.calls.append(args)
        code, out, err = self._answer(args)
        return subprocess.CompletedProcess(args, code, out, err)

    def _run(self, *args: str) -> str:
        return str(self._try(*args).stdout)

    def _answer(self, args: tuple[str, ...]) -> tuple[int, str, str]:
        match args:
            case ("ps", *_):
                if self.failures:
                    return 125, "", self.failures.pop(0)
                return 0, json.dumps([self._row(n, c) for n, c in self.containers.items()]), ""
            case ("container", "inspect", *ids):
                return 0, json.dumps([self._details(i) for i in ids]), ""
            case ("network", "ls", *_):
                return 0, json.dumps(list(self.nets.values())), ""
            case ("network", "create", *rest):
                labels = dict(v.split("=", 1) for k, v in pairwise(rest) if k == "--label")
                subnet = rest[rest.index("--subnet") + 1]
                self.nets[rest[-1]] = {"name": rest[-1], "labels": labels, "subnets": [{"subnet": subnet}]}
                return 0, "", ""
            case ("network", "rm", name):
                del self.nets[name]
                return 0, "", ""
            case ("run", *rest):
                return self._start(rest)
            case ("rm", *_, identity):
                self.containers = {n: c for n, c in self.containers.items() if c["id"] != identity}
                return 0, "", ""
            case ("exec", *_):
                return 0, "ssh-ed25519 AAAAhost comment\n", ""
        raise AssertionError(f"the stand-in does not know {args}")

    def _start(self, rest: list[str]) -> tuple[int, str, str]:
        value = {k: v for k, v in pairwise(rest) if k.startswith("--")}
        if value["--ip"] in self.allocated:
            self.add(value["--name"], "created", dict(_labels(rest)))
            return 125, "", f"Error: IPAM error: requested ip address {value['--ip']} is already allocated to container"
        self.add(
            value["--name"],
            labels=dict(_labels(rest)),
            cpus=float(value["--cpus"]),
            memory=int(value["--memory"].rstrip("b")),
            address=value["--ip"],
        )
        return 0, "", ""

    def _row(self, name: str, container: dict[str, Any]) -> dict[str, Any]:
        state = "" if container["state"] == "storage" else container["state"]
        return {"Id": container["id"], "Names": [name], "State": state, "Labels": container["labels"]}

    def _details(self, identity: str) -> dict[str, Any]:
        name, container = next((n, c) for n, c in self.containers.items() if c["id"] == identity)
        return {
            "Id": identity,
            "Name": name,
            "State": {"Status": container["state"]},
            "Config": {"Labels": container["labels"]},
            "HostConfig": {"NanoCpus": int(container.get("cpus", 0) * 1e9), "Memory": container.get("memory", 0)},
            "NetworkSettings": {"Networks": {"n": {"IPAddress": container.get("address", "")}}},
        }


def _labels(rest: list[str]) -> list[tuple[str, str]]:
    pairs = [v.partition("=") for k, v in pairwise(rest) if k == "--label"]
    return [(key, value) for key, _, value in pairs]
