"""HAProxy for real, on loopback: weights of requests, by its runtime API."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dns_sides import FAST, NAME, NEW, OLD, OWNER, Asker, get, sides, switch

from inferlift.dns import loopback
from inferlift.dns.gateway import Gateway
from inferlift.dns.record import shares
from inferlift.errors import Refusal

pytestmark = pytest.mark.lab


def test_haproxy_forward_back_and_forward_without_a_failed_request(found: loopback.Programs, tmp_path: Path) -> None:
    def execute(host: Any, command: str) -> str:
        env = {**found.env(), "PATH": f"{found.root}/usr/bin:{os.environ['PATH']}"}
        done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with sides() as web:
        servers = {"old": (OLD, web), "new": (NEW, web)}
        with loopback.haproxy(found, tmp_path / "gw", servers, backend="users") as gw:

            def gateway(run: str = "run-1") -> Gateway:
                return Gateway(
                    "gw", execute, backend="users", servers={OLD: "old", NEW: "new"}, names=[NAME], owner=OWNER,
                    run=run, socket=f"{gw.folder}/admin.sock", journal=f"{gw.folder}/switch.json",
                    state_file=f"{gw.folder}/servers",
                )  # fmt: skip

            def probe(n: int) -> None:
                for _ in range(n):
                    get(gw.port)

            net = gateway().net(probe)
            before = gateway().read(NAME)
            assert before.weights == {OLD: 100}
            with Asker(lambda: get(gw.port)) as asker:
                first = switch(gateway(), net, **FAST).run()
                times = switch(gateway(), net).rollback()
                assert shares(gateway().read(NAME).weights) == {OLD: 1.0}
                # killed between the weights and the journal: the next look finishes it
                stands = gateway().read(NAME)
                (gw.folder / "switch.json").rename(gw.folder / "switch.json.next")
                (gw.folder / "switch.json.meant").write_text((gw.folder / "switch.json.now").read_text())
                assert gateway().read(NAME) == stands
                again = switch(gateway("run-2"), net, **FAST).run()
            print(
                f"{dict(asker.seen)}, back after {times.authority_s:.3f} s; {[s.authority_share for s in first.steps]}"
            )
            assert asker.failed == []
            assert set(asker.seen) == {OLD, NEW}
            assert [s.weight for s in first.steps] == [0, 1, 10, 50, 100]
            assert not again.rolled_back
            # someone else's weight is found and named
            execute("gw", f"printf 'set server users/old weight 40\\n' | socat - UNIX-CONNECT:{gw.folder}/admin.sock")
            with pytest.raises(Refusal) as refused:
                switch(gateway("run-3"), net).run()
            assert OLD in refused.value.why
            switch(gateway("run-3"), net).rollback()
            switch(gateway("run-3"), net).restore()
            assert gateway().read(NAME) == before
        # the state file keeps the weights over a restart
        assert "users" in (tmp_path / "gw" / "servers").read_text()
