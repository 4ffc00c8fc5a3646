"""HAProxy's configuration as rendered: place, slow start, request ids. That HAProxy takes it, the lab tests show."""

from __future__ import annotations

import re

import pytest
from role_templates import render

HOSTS: list[dict[str, str]] = [
    {"name": "model-1", "address": "192.0.2.31", "site": "edge"},
    {"name": "model-2", "address": "192.0.2.32", "site": "centre"},
]
MODELS = (["small"], ["small", "org/large:7b"])
BASE: dict[str, object] = {"gateway_backends": HOSTS, "inferlift_site": "edge", "gateway_buffer_bytes": 65536}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    nowhere = [{"name": h["name"], "address": h["address"]} for h in HOSTS]
    cases: dict[str, dict[str, object]] = {
        "edge": dict(BASE),
        "centre": {**BASE, "inferlift_site": "centre"},
        "models": {**BASE, "gateway_backends": [h | {"models": m} for h, m in zip(HOSTS, MODELS, strict=True)]},
        "uploads": {**BASE, "gateway_backends": nowhere, "gateway_upload_bytes": 50_000_000},
        "plain": {**BASE, "gateway_backends": nowhere, "gateway_slow_start_seconds": 20},
    }
    return render("gateway", "haproxy.cfg.j2", cases)


def backups(text: str) -> list[str]:
    return re.findall(r"^  server (\S+) .* backup$", text, re.MULTILINE)


def test_hosts_of_another_place_wait_until_none_of_this_one_is_left(texts: dict[str, str]) -> None:
    assert backups(texts["edge"]) == ["model-2"]
    assert backups(texts["centre"]) == ["model-1"]
    assert "option allbackups" in texts["edge"]


def test_without_places_all_serve(texts: dict[str, str]) -> None:
    assert backups(texts["plain"]) == []
    assert "allbackups" not in texts["plain"]


def test_a_host_that_comes_back_is_loaded_slowly_where_asked_for(texts: dict[str, str]) -> None:
    assert "slowstart 20s" in texts["plain"]
    assert "slowstart" not in texts["edge"]


def test_every_request_has_one_id_in_log_request_and_answer(texts: dict[str, str]) -> None:
    text = texts["plain"]
    assert '"id":' in text
    assert "http-request set-header X-Request-Id" in text
    assert "http-after-response set-header X-Request-Id" in text


def backend(text: str, name: str) -> str:
    found = re.search(rf"^backend {name}\n(.*?)(?=^\S)", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_a_named_model_goes_to_the_hosts_that_have_it_and_an_unknown_one_is_404(texts: dict[str, str]) -> None:
    text = texts["models"]
    names = {m: n for n, m in re.findall(r"use_backend (model-\d+) if \{ var\(txn.model\) -m str (\S+) \}", text)}
    assert set(names) == {"small", "org/large:7b"}
    hosts = {
        m: re.findall(r"^  server (\S+) .* track models/", backend(text, n), re.MULTILINE) for m, n in names.items()
    }
    assert hosts == {"small": ["model-1", "model-2"], "org/large:7b": ["model-2"]}
    assert "there is no such model" in text
    assert "txn.model" not in texts["plain"]


def test_a_model_that_another_place_alone_has_is_asked_there(texts: dict[str, str]) -> None:
    large = backend(texts["models"], "model-1")
    assert re.findall(r"^  server (\S+) .* backup$", large, re.MULTILINE) == ["model-2"]
    assert "option allbackups" in large


def test_large_bodies_are_gathered_on_disk_in_bounded_number(texts: dict[str, str]) -> None:
    text = texts["uploads"]
    assert "use_backend uploads if upload" in text
    assert "req.hdr_val(content-length) gt 50000000" in text
    assert "maxconn 8" in backend(text, "uploads")
    assert "uploads" not in texts["plain"]
