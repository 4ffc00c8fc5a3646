"""The shadow snippet in a real nginx on loopback."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from dns_sides import AUTHORITY, NAME, NEW, OLD, get, sides

from inferlift.dns import answers, loopback, shadow

pytestmark = pytest.mark.lab


def test_nginx_takes_the_shadow_snippet_and_users_notice_nothing(found: loopback.Programs, tmp_path: Path) -> None:
    from inferlift.dns import pinned

    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.pem"), "-subj", f"/CN={NAME}",
         "-addext", f"subjectAltName=DNS:{NAME}"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with sides() as web:
        port, tls = loopback.free_port(), loopback.free_port()
        text = shadow.snippet(
            NAME, NEW, share=100, ca=str(tmp_path / "ca.pem"), port=tls, log=str(tmp_path / "shadow.log"),
            own_logs=(str(tmp_path / "access.log"),),
        )  # fmt: skip
        (tmp_path / "nginx.conf").write_text(f"""daemon off;
pid {tmp_path}/pid;
error_log {tmp_path}/error.log info;
worker_processes 1;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy; fastcgi_temp_path {tmp_path}/f;
    uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
{text.http}
    server {{
        listen 127.0.0.1:{port};
{text.server}
        location / {{
            {text.location}
            proxy_pass http://{OLD}:{web};
        }}
    }}
    server {{
        listen {NEW}:{tls} ssl;
        server_name {NAME};
        ssl_certificate {tmp_path}/ca.pem; ssl_certificate_key {tmp_path}/key.pem;
        location /broken {{ return 500; }}
        location / {{ proxy_pass http://{NEW}:{web}; }}
    }}
}}
""")
        argv = [found.path("nginx"), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
        child = subprocess.Popen(argv, env=found.env())
        try:
            up = answers.wait_visible(lambda: listens(port), timeout_s=5)
            assert up is not None, (tmp_path / "error.log").read_text()
            probe = pinned.Probe(f"http://{NAME}:{port}/v1/x")
            assert all(pinned.ask(probe, AUTHORITY).ok for _ in range(20))
            broken = pinned.Probe(f"http://{NAME}:{port}/broken")
            assert pinned.ask(broken, AUTHORITY).ok  # users have the old side's answer
            slow = pinned.Probe(f"http://{NAME}:{port}/v1/slow")
            assert all(pinned.ask(slow, AUTHORITY).ok for _ in range(6))
            # nginx logs a request when its copy has ended too; 28 with our own look whether it listens
            whole = answers.wait_visible(
                lambda: len((tmp_path / "access.log").read_text().splitlines()) == 28, timeout_s=5
            )
            assert whole is not None, (tmp_path / "access.log").read_text()
        finally:
            child.terminate()
            child.wait(10)
    print((tmp_path / "error.log").read_text()[-2000:])
    compared = shadow.compare((tmp_path / "shadow.log").read_text().splitlines())
    print(compared)
    assert compared.pairs >= 15
    assert compared.worse >= 1
    assert any(what.startswith("1 x /broken: 200 there, 50") for what in compared.differing)
    assert shadow.shadow_gates(compared, minimum=5)[0].verdict == "fail"
    # users waited for the copy's end; the old side's own time is told without it
    slow_ones = [line for line in (tmp_path / "shadow.log").read_text().splitlines() if "/v1/slow" in line]
    only = shadow.compare(slow_ones)
    assert only.old_p95_s is not None
    assert only.new_p95_s is not None
    assert only.old_p95_s < only.new_p95_s
    assert only.new_p95_s >= 0.3


def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        return get(port) != ""
    return False
