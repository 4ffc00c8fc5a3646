"""What is typed for a load test: understood, or refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mock_server import Mock

from inferlift.errors import DeclarationError
from inferlift.load.endpoint import Sent, target
from inferlift.load.options import asked
from inferlift.load.outputs import prepare
from inferlift.load.protocols import Chat, KServe, KServeGrpc
from inferlift.load.standalone import Asked


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"users": 4, "rate": 1.0}, "do not go together"),
        ({"prices": (1.0, 2.0)}, "2 prices for 1"),
        ({"key": "env:NOT_SET_ANYWHERE"}, "cannot be read"),
        ({"key": "secret-in-plain"}, "cannot be read"),
        ({"requests": 0}, "at least one request"),
        ({"users": None, "shape": Path("/nonexistent")}, "no traffic shape"),
        ({"quality": Path("/nonexistent")}, "cannot be read"),
        ({"sent": Sent("telepathy")}, "unknown protocol"),
        ({"sent": Sent("http")}, "needs a body"),
        ({"sent": Sent("kserve")}, "needs a model"),
        ({"sent": Sent("image")}, "at least one file"),
        ({"sent": Sent(extra="[1]")}, "no JSON object"),
    ],
)
def test_refused_before_anything_is_sent(tested: Any, more: dict[str, Any], told: str) -> None:
    with Mock() as server:
        with pytest.raises(DeclarationError, match=told):
            tested(server, **more)
        assert server.requests == 0


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", "http://user:pass@x/", "http://x:a"])
def test_what_is_no_endpoint(url: str) -> None:
    with pytest.raises(DeclarationError) as error:
        target(url, Chat(["a"]))
    assert "pass" not in str(error.value).replace("http://user:pass@x/", "")


def test_urls() -> None:
    tensor = [[{"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}]]
    assert target("h:81", Chat(["a"])).url == "http://h:81/v1/chat/completions"
    assert target("https://h/own?x=1", Chat(["a"])).url == "https://h/own?x=1"
    assert target("http://h", KServe("m", tensor)).route == "/v2/models/m/infer"
    assert target("http://h:8001", KServeGrpc("m", tensor)).route == "/inference.GRPCInferenceService/ModelInfer"
    assert target("https://[::1]:8443/", Chat(["a"])).name == "::1"


def test_a_host_with_letters_of_its_own_language() -> None:
    assert target("http://münchen.test/x", Chat(["a"])).name == "xn--mnchen-3ya.test"


def test_options_as_typed() -> None:
    found = asked(["http://h"], users=4, prices=["1.5"], body="t.json", protocol="kserve", model="m", idle=3)
    assert (found.users, found.rate, found.prices, found.idle_s) == (4, None, (1.5,), 3)
    assert found.sent.tensors == Path("t.json")
    assert found.sent.body is None
    assert not asked(["http://h"], cached=True).sent.fresh
    assert found.targets.quality is None
    assert asked(["http://h"], prices=["-", "2"]).prices == (None, 2.0)
    assert asked(["http://h"], quality="q.jsonl").targets.quality == 0.9


@pytest.mark.parametrize(
    "wrong",
    [{"users": -1}, {"rate": -1.0}, {"timeout": 0.0}, {"prices": ["cheap"]}, {"p95_ttft": 9.0, "p95_total": 5.0},
     {"error_share": 2.0}, {"quality_share": -0.1}, {"rate": float("nan")}, {"rate": float("inf")},
     {"knee": float("nan")}, {"idle": float("inf")}, {"p95_ttft": float("nan")}, {"p95_total": float("inf")},
     {"deadline": float("nan")}, {"timeout": float("inf")}, {"error_share": float("nan")}, {"prices": ["nan"]},
     {"prices": ["inf"]}, {"prices": ["-1"]}, {"seed": "-1"}, {"seed": "x"}, {"max_tokens": 0}, {"requests": 0},
     {"warm_up": -2}, {"workers": -1}, {"check": "x"}, {"body": "x"}, {"images": ["x"]}, {"rows": "x"}, {"ca": "x"},
     {"arrivals": "bursty"}, {"key_header": "X-Key"}, {"protocol": "image", "stream": False},
     {"protocol": "http", "quality": "q"}],
)  # fmt: skip
def test_options_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        asked(["http://h"], **wrong)


@pytest.mark.parametrize(
    "more",
    [{"html": Path("/proc/x/p.html")}, {"junit": Path("/dev/null/j.xml")}, {"folder": Path("/proc/x")},
     {"html": Path("/tmp")}],
)  # fmt: skip
def test_where_nothing_can_be_written_nothing_is_sent(tested: Any, more: dict[str, Any]) -> None:
    with Mock() as server:
        with pytest.raises(DeclarationError):
            tested(server, **more)
        assert server.requests == 0


def test_two_tests_of_the_same_second_have_folders_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = {prepare(Asked(("http://h",))) for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.is_dir() for folder in folders)


def test_a_former_result_is_not_replaced_unasked(tested: Any, tmp_path: Path) -> None:
    page, junit, folder = tmp_path / "p.html", tmp_path / "j.xml", tmp_path / "out"
    with Mock() as server:
        tested(server, html=page, junit=junit)
        sent, text = server.requests, page.read_text()
        for more in ({}, {"folder": tmp_path / "o2", "html": page}, {"folder": tmp_path / "o2", "junit": junit}):
            with pytest.raises(DeclarationError, match="replace") as error:
                tested(server, **more)
            assert "--replace" in error.value.next_command
        assert server.requests == sent
        tested(server, html=page, junit=junit, folder=folder, replace=True)
        assert page.read_text() != text
