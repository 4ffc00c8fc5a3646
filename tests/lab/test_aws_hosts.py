"""Hosts behind the stand-in's instances: made by Pulumi, configured by Ansible, answering at the front's address.

What the stand-in does not prove is in tests/standin_aws/__init__.py.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from configured_site import declare

from inferlift import configure, provision, ssh, toolchain
from inferlift.artifacts import Contract, Route
from inferlift.artifacts.fleet import AwsSettings
from inferlift.load import probe
from inferlift.load.target import from_contract
from inferlift.profile import ROOT
from inferlift.provision import Tools
from inferlift.provision.aws import plan as planning
from tests.standin_aws import cloud as standin
from tests.standin_aws import provider
from tests.standin_aws.hosts import Hosts
from tests.unit.provision.aws_documents import profile

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_aws")]
CLONE = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
NAME, NETWORK = f"t-aws-{CLONE}", "10.243.0.0/16"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: Ansible's control sockets are limited to 108 characters."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    toolchain.ensure(["debian-packages", "host-image", "base-image", "wheels", "pulumi"], print)
    place = Path(tempfile.mkdtemp(prefix="il-aws-"))
    hosts = Hosts(NAME, {"eu-central-1": NETWORK}, toolchain.host_image(), toolchain.podman_env())
    try:
        with standin.cloud(hosts) as cloud:
            for key, value in {**standin.ENVIRONMENT, "AWS_ENDPOINT_URL": cloud.url}.items():
                monkeypatch.setenv(key, value)
            path = provider.install(place / "bin").parent
            monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
            yield place
    finally:
        hosts.sweep()
        shutil.rmtree(place, ignore_errors=True)


def test_a_fleet_on_aws_is_configured_and_answers(folder: Path) -> None:
    tools = Tools(pulumi_bin=toolchain.pulumi_bin() / "pulumi", python_plugin=None, host_image="")
    settings = AwsSettings(user_ranges=("0.0.0.0/0",), cidr=NETWORK)
    desired = planning.document(
        profile("llm-13b"), settings, choice="c7i.large", region="eu-central-1", label=f"{CLONE}/t-aws/fleet",
        floors={"poc": 1}, expires_at="2036-12-01T12:00:00Z",
    )  # fmt: skip
    fleet = provision.apply_fleet(desired, folder, tools, print)
    assert {h.name for h in fleet.hosts} == {"gateway-1", "model-1", "monitor-1"}
    for host in fleet.hosts:
        assert ssh.run(host, "hostname").stdout.strip() == host.name, "the pinned key is the host's own"

    keys, made, ca = declare(folder, fleet)
    done = configure.apply(fleet.hosts, "site.yml", made.variables, made.secrets, folder / "work", print)
    assert set(done.hosts) == {h.name for h in fleet.hosts}
    bad = [c for c in configure.validate(fleet, folder / "work") if not c.ok and not c.skipped]
    assert bad == []
    target = from_contract(contract(folder, ca), address=fleet.endpoints[0].address, timeout_s=60.0)
    assert all(c.ok for c in probe.complete(target, 3, print, wait_s=60))
    assert all(c.ok for c in provision.verify_fleet(fleet, folder, tools))

    assert provision.destroy_fleet(desired.label, folder, tools, print, delete_data=True) == []
    assert keys


def contract(folder: Path, ca: Path) -> Contract:
    """As `declare` made it."""
    return Contract(
        name="ai.demo.test", certificate=str(next((folder / "old").glob("ai.demo.test*.pem"))),
        certificate_key=f"file:{folder}/old", ca=str(ca), key_header="X-Api-Key", key=f"file:{folder}/user-key",
        routes=(Route(path="/api/chat", upstream="/v1/chat/completions"),),
    )  # fmt: skip
