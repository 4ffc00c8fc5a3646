"""A real registry (Debian's docker-registry, the CNCF distribution) with TLS and a password, on a lab host."""

from __future__ import annotations

from pathlib import Path

from inferlift import configure, ssh
from inferlift.artifacts import Host
from inferlift.images.registry import Registry

PASSWORD = "planted-registry-word"
PACKAGES = "docker-registry apache2-utils"
FILES = "/etc/docker/registry"
CONFIG = f"""version: 0.1
storage: {{filesystem: {{rootdirectory: /srv/registry}}}}
auth: {{htpasswd: {{realm: r, path: {FILES}/htpasswd}}}}
http: {{addr: ":5000", tls: {{certificate: {FILES}/tls.pem, key: {FILES}/tls.key}}}}
"""


def registry_on(host: Host, folder: Path) -> Registry:
    """Installed and running when this returns. Its CA and the password lie in `folder`."""
    ca = configure.ensure_ca(folder / "ca", "a registry's test")
    certificate, key = configure.issue(ca, folder / "ca", "registry", ips=(host.address,))
    install = (
        f"apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends {PACKAGES}"
    )
    ssh.run(host, install, timeout_s=300)
    texts = {"tls.pem": Path(certificate).read_text(), "tls.key": Path(key).read_text(), "config.yml": CONFIG}
    for name, text in texts.items():
        ssh.run(host, f"cat > {FILES}/{name}", stdin=text)
    ssh.run(
        host,
        f"mkdir -p /srv/registry && htpasswd -Bbc {FILES}/htpasswd ci {PASSWORD} && "
        f"chown docker-registry /srv/registry {FILES}/* && systemctl restart docker-registry && "
        "for i in $(seq 100); do ss -ltn | grep -q ':5000 ' && exit 0; sleep 0.1; done; exit 1",
    )
    (folder / "password").write_text(PASSWORD)
    return Registry(f"{host.address}:5000/team", "ci", f"file:{folder / 'password'}", ca=str(ca.cert))
