"""The master of a distributed load test, a process of its own (Locust changes Python's sockets and threads for good).

    python -m inferlift.load.locust_master HOST PORT SCENARIO SAMPLES

It waits for the workers, shares the requests out, writes every sample it gets to SAMPLES (appending), says how it goes
on stderr, and prints one JSON object: the workers' records, or the problem. Its stdin is the way to stop it.
"""

from __future__ import annotations

import gevent.monkey

gevent.monkey.patch_all()

import json  # noqa: E402
import os  # noqa: E402
import pickle  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, TextIO  # noqa: E402

import gevent  # noqa: E402
import gevent.os  # noqa: E402
from locust import events  # noqa: E402
from locust.env import Environment  # noqa: E402

from inferlift.load.locust_users import InferenceUser  # noqa: E402
from inferlift.load.scenario import DONE, GO, PART, PLAN, READY, STOP, share  # noqa: E402

JOIN_S = 120.0  # workers have so long to come
READY_S = 60.0
SPAWN_S = 60.0


class Master:
    def __init__(self, host: str, port: int, told: dict[str, Any], samples: TextIO) -> None:
        self.told, self.samples = told, samples
        self.workers: int = told["workers"]
        self.environment = Environment(user_classes=[InferenceUser], events=events)
        self.runner = self.environment.create_master_runner(host, port)
        self.port: int = self.runner.server.port
        self.index: dict[str, int] = {}
        self.ready: dict[int, str] = {}
        self.records: dict[int, dict[str, Any]] = {}
        self.lines = [0] * self.workers
        self.stopped = False
        for name, listener in ((READY, self._ready), (PART, self._part), (DONE, self._done)):
            self.runner.register_message(name, listener)

    def run(self) -> dict[str, Any]:
        """The workers' records; `problem` where the test could not be carried out or its result is not whole."""
        gevent.spawn(self._listen)
        if problem := self._wait(lambda: len(self.runner.clients.ready) >= self.workers, JOIN_S, "came", self._came):
            return {"problem": problem}
        for node in sorted(self.runner.clients.ready, key=lambda c: c.id)[: self.workers]:
            self.index[node.id] = len(self.index)
        for client, k in self.index.items():
            self.runner.send_message(PLAN, share(self.told, k), client)
        if problem := self._wait(
            lambda: len(self.ready) == self.workers, READY_S, "are ready", lambda: len(self.ready)
        ):
            return {"problem": problem}
        if wrong := [text for text in self.ready.values() if text]:
            return {"problem": f"a worker cannot do it: {wrong[0]}"}
        users = self.told["users"]
        self.runner.start(users, spawn_rate=max(users, 1))
        if problem := self._wait(lambda: self.runner.user_count >= users, SPAWN_S, "made their users", self._came):
            return {"problem": problem}
        self.runner.send_message(GO, {})
        return self._measure()

    def _measure(self) -> dict[str, Any]:
        said = began = time.monotonic()
        limit = self.told["deadline_s"] + self.told["timeout_s"] + 60
        while len(self.records) < self.workers:
            gevent.sleep(0.05)
            now = time.monotonic()
            if now - said >= 1:
                said = now
                say(f"{sum(self.lines)}/{self.told['requests']} answered by {self.workers} workers")
            gone = [k for client, k in self.index.items() if k not in self.records and not self._alive(client)]
            if gone or now - began > limit:
                lost = ", ".join(str(k + 1) for k in gone) or "all"
                return {"problem": f"worker {lost} of {self.workers} is gone, and with it what it sent since its last "
                                   "report"}  # fmt: skip
        short = [k for k, record in self.records.items() if record["sent"] != self.lines[k]]
        if short:
            return {"problem": f"worker {short[0] + 1} sent {self.records[short[0]]['sent']} requests, "
                               f"{self.lines[short[0]]} samples came"}  # fmt: skip
        return {"problem": "", "stopped": self.stopped, "records": [self.records[k] for k in sorted(self.records)]}

    def _alive(self, client: str) -> bool:
        node = self.runner.clients.get(client)
        return node is not None and node.state != "missing"

    def _came(self) -> int:
        return len(self.runner.clients.ready)

    def _wait(self, reached: Any, seconds: float, what: str, count: Any) -> str:
        give_up = time.monotonic() + seconds
        while not reached():
            if self.stopped:
                return "stopped"
            if time.monotonic() > give_up:
                return f"{count()} of {self.workers} workers {what} within {seconds:.0f} s"
            gevent.sleep(0.05)
        return ""

    def _listen(self) -> None:
        """Anything on stdin, or its end: stop. The process that started us may be gone."""
        gevent.os.tp_read(sys.stdin.fileno(), 1)
        self.stopped = True
        self.runner.send_message(STOP, {})

    def _ready(self, environment: Environment, msg: Any) -> None:
        self.ready[self.index[msg.node_id]] = msg.data["problem"]

    def _part(self, environment: Environment, msg: Any) -> None:
        self.samples.writelines(msg.data["lines"])
        self.lines[self.index[msg.node_id]] += len(msg.data["lines"])

    def _done(self, environment: Environment, msg: Any) -> None:
        self.samples.flush()
        self.records[self.index[msg.node_id]] = msg.data


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str]) -> None:
    host, port, scenario, samples = argv
    told = pickle.loads(Path(scenario).read_bytes())  # noqa: S301 (written by the process that started this one)
    with Path(samples).open("a", encoding="utf-8") as file:
        master = Master(host, int(port), told, file)
        print(json.dumps({"port": master.port}), flush=True)
        found = master.run()
    print(json.dumps(found), flush=True)
    master.runner.quit()
    sys.stdout.flush()
    os._exit(0)  # Locust's greenlets would be waited for


if __name__ == "__main__":
    main(sys.argv[1:])
