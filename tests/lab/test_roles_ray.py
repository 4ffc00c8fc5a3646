"""Ray over two lab hosts: it forms, serves, and outlives the loss of a worker, which comes back by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from role_hosts import RoleHosts, podman, wait_for_ssh
from waiting import until

from inferlift import configure, process, ssh
from inferlift.artifacts import Configured

pytestmark = [pytest.mark.lab, pytest.mark.long]

HERE = Path(__file__).parent


class Cluster:
    def __init__(self, hosts: RoleHosts, token: Path) -> None:
        self.hosts, self.token = hosts, token

    def play(self, *, check: bool = False) -> Configured:
        serve = {
            "code": str(HERE / "ray_app"),
            "import_path": "lines:app",
            "path": "/",
            "body": "abc",
            "expected": "cba",
        }
        shared = configure.ray_variables(
            [self.hosts.hosts], gpus_per_host=0, cpus=1, requirements=HERE / "ray_requirements.txt"
        )
        variables = {n: v for n, v in shared.items() if not n.startswith("vllm_")}
        return self.hosts.play(
            {"inferlift_model_roles": ["ray"], **variables, "ray_serve": serve},
            ["base", "ray"],
            secrets={"ray_token": f"file:{self.token}"},
            check=check,
        )

    def asked(self) -> tuple[int, str]:
        said = self.hosts.on("model-1", "curl -s -m 10 -w ' %{http_code}' -d hello http://127.0.0.1:8082/")
        text, _, status = said.rpartition(" ")
        return int(status), json.loads(text)["text"] if status == "200" else text

    def served(self) -> bool:
        """Three answers in a row."""
        return all(self.asked()[0] == 200 for _ in range(3))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("t-roles-ray")
    hosts = RoleHosts("ray", 42, folder)
    token = folder / "token"
    token.write_text("planted-token-of-the-cluster-" + "7" * 20)
    try:
        hosts.raise_hosts(["model-1", "model-2"])
        made = Cluster(hosts, token)
        first = made.play()
        print(f"first run: {first.seconds:.1f} s, {first.changed} changes")
        yield made
    finally:
        hosts.sweep()
        shutil.rmtree(folder, ignore_errors=True)


def test_both_hosts_are_in_the_cluster_and_the_application_answers(cluster: Cluster) -> None:
    assert until(lambda: cluster.hosts.bad() == {}, 60), cluster.hosts.bad()
    said = {c.name: c.detail for c in cluster.hosts.checks()}
    assert said["model-1: Ray"].startswith("2 of 2 hosts")
    assert cluster.asked() == (200, "olleh")


def test_a_second_run_changes_nothing(cluster: Cluster) -> None:
    assert cluster.play().changed == 0


def test_without_the_token_nobody_enters_and_others_do_not_even_get_there(cluster: Cluster) -> None:
    script = "import ray; ray.init(address='auto', log_to_driver=False); print(ray.nodes())"
    stranger = f'cd /tmp && env RAY_AUTH_MODE=token RAY_AUTH_TOKEN=wrong /opt/ray/current/venv/bin/python -c "{script}"'
    done = ssh.run(cluster.hosts.host("model-2"), stranger, timeout_s=90, check=False)
    assert done.returncode != 0
    assert "NodeID" not in done.stdout
    head = cluster.hosts.host("model-1").address
    outside = process.run(["timeout", "2", "bash", "-c", f"</dev/tcp/{head}/6379"], timeout_s=5, check=False)
    assert outside.returncode != 0


def test_a_lost_worker_is_named_the_rest_serves_and_it_comes_back(cluster: Cluster) -> None:
    name = f"{cluster.hosts.network}-model-2"
    podman("kill", name)
    # the head notices the loss: until then an answer says nothing of what comes after it
    assert until(lambda: "1 of 2 hosts" in cluster.hosts.bad().get("model-1: Ray", ""), 90)
    assert "model-2: answers" in cluster.hosts.bad()
    assert until(cluster.served, 60)
    podman("start", name)
    wait_for_ssh(cluster.hosts.host("model-2"))
    assert until(lambda: cluster.hosts.bad() == {}, 120), cluster.hosts.bad()
    assert cluster.asked() == (200, "olleh")


def test_the_token_is_in_no_argument_and_no_log(cluster: Cluster) -> None:
    value = cluster.token.read_text()
    for host in cluster.hosts.hosts:
        told = cluster.hosts.on(host.name, "cat /proc/*/cmdline | tr '\\0' ' '; journalctl -o cat | tail -n 3000")
        assert value not in told
    assert not [
        p for p in (cluster.hosts.folder / "work").rglob("*") if p.is_file() and value in p.read_text(errors="replace")
    ]
