"""A real registry (Debian's docker-registry, the CNCF distribution) with TLS and a password, on a lab host: pushed to
by digest, pulled by digest on the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from registry_host import PASSWORD, registry_on
from role_hosts import RoleHosts

from inferlift import configure, toolchain
from inferlift.artifacts import Image
from inferlift.errors import CheckFailed, Refusal
from inferlift.images import build, delivery, registry
from inferlift.images.registry import Registry
from inferlift.toolchain.images import base_image, podman_env

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleHosts]:
    hosts = RoleHosts("registry", 74, tmp_path_factory.mktemp("registry"))
    try:
        hosts.raise_hosts(["model-1"])
        yield hosts
    finally:
        hosts.sweep()


@pytest.fixture(scope="module")
def there(host: RoleHosts) -> Registry:
    return registry_on(host.hosts[0], host.folder)


@pytest.fixture(scope="module")
def image(host: RoleHosts) -> Image:
    toolchain.ensure(["base-image"], print)
    context = host.folder / "context"
    context.mkdir()
    text = "ARG BASE\nFROM ${BASE}\nRUN echo from-the-registry > /said\nCMD cat /said\n"
    return build(context, text, base_image(), "app", host.folder / "app.tar", podman_env(), print)


def test_pushed_by_digest_and_pulled_by_digest(host: RoleHosts, there: Registry, image: Image) -> None:
    done = registry.push(image, there, print)
    assert done.digest == image.digest
    assert done.bytes_sent > 10**6
    assert registry.push(image, there, print).bytes_sent == 0
    (check,) = delivery.pull(host.hosts, done.reference, "localhost/inferlift-app:x", there, print, deadline_s=120)
    assert check.detail.startswith(f"{image.digest} pulled in ")
    ran = host.on("model-1", "podman --runtime crun run --rm --network host localhost/inferlift-app:x")
    assert ran == "from-the-registry\n"
    (again,) = delivery.pull(host.hosts, done.reference, "localhost/inferlift-app:x", there, print, deadline_s=120)
    assert again.detail == f"{image.digest} was there"
    kept = host.on(
        "model-1",
        f"grep -rl {PASSWORD} /etc /run /var/lib /root 2>/dev/null || true; ls -d /run/inferlift-pull* || true",
    )
    assert kept == ""


def test_who_has_no_password_or_another_ca_is_refused(host: RoleHosts, there: Registry, image: Image) -> None:
    with pytest.raises(Refusal, match="does not let us push"):
        registry.push(image, Registry(there.address, ca=there.ca), print)
    with pytest.raises(Refusal, match="no certificate that is trusted"):
        registry.push(image, Registry(there.address, there.user, there.password), print)


def test_a_deadline_and_an_unknown_digest_are_told(host: RoleHosts, there: Registry, image: Image) -> None:
    nothing = f"{there.host}/team/app@sha256:{'0' * 64}"
    with pytest.raises(CheckFailed, match="1 of 1 hosts do not have the image"):
        delivery.pull(host.hosts, nothing, "localhost/none:x", there, print, deadline_s=60)
    reference = f"{there.host}/team/app@{image.digest}"
    with pytest.raises(CheckFailed, match="was not there after"):
        delivery.pull(host.hosts, reference, "localhost/other:x", there, print, deadline_s=0.01)


def test_what_was_pulled_is_taken_away_again(host: RoleHosts) -> None:
    done = configure.apply(
        host.hosts, "remove.yml", {"inferlift_remove_roles": ["images"]}, {}, host.folder / "work", print
    )
    assert done.changed == 1
    assert host.on("model-1", "podman images --quiet; ls /var/lib/inferlift /etc/inferlift 2>/dev/null || true") == ""
