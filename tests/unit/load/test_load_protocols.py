"""Each protocol against a stand-in that answers well, and one that does not."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mock_server import Mock, event

from inferlift.artifacts import LoadRun
from inferlift.errors import DeclarationError
from inferlift.load.client import LoadPlan, run
from inferlift.load.protocols import (
    Chat,
    Check,
    Completions,
    Embeddings,
    Generic,
    Image,
    KServe,
    KServeGrpc,
    Protocol,
)
from inferlift.load.protocols.tensors import GRPC_METHOD, fields, raw_values
from inferlift.load.target import Target

pytestmark = pytest.mark.programs

TENSOR = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.5, -2]}


@pytest.fixture
def go(tmp_path: Path) -> Any:
    def _go(server: Mock, protocol: Protocol, n: int = 6, **more: Any) -> LoadRun:
        route = getattr(protocol, "route", protocol.default_route)
        target = Target("127.0.0.1", port=server.port, tls=False, route=route)
        return run(LoadPlan(target, n, (), tmp_path / "s.jsonl", protocol=protocol, **({"users": 2} | more)))

    return _go


def answering(document: Any, status: int = 200) -> Mock:
    return Mock(raw=lambda head, body: (status, "application/json", json.dumps(document).encode()))


def test_completions(go: Any) -> None:
    stream = b'data: {"choices":[{"text":"a","index":0}]}\n\ndata: {"choices":[{"text":"b","index":0}]}\n\n'
    with Mock(script=[(0.0, stream + b"data: [DONE]\n\n")]) as server:
        found = go(server, Completions(["once upon"], 4, model="m", extra={"seed": 1}))
    body = json.loads(server.bodies[0])
    assert (body["prompt"], body["max_tokens"], body["model"], body["seed"]) == ("once upon", 4, "m", 1)
    assert "messages" not in body
    assert b"POST /v1/completions HTTP/1.1" in server.heads[0]
    assert (found.counts.ok, found.protocol, found.ttft.n if found.ttft else 0) == (6, "completions", 6)


def test_fresh_prompts_begin_differently_and_a_cache_is_declared(go: Any) -> None:
    with Mock() as server:
        fresh = go(server, Chat(["same"], fresh=True))
        assert len({json.loads(b)["messages"][0]["content"][:5] for b in server.bodies}) == 6
        assert fresh.prefix_cache.startswith("avoided")
        assert go(server, Chat(["same"])).prefix_cache.startswith("possible")


def test_embeddings(go: Any) -> None:
    raw = base64.b64encode(struct.pack("<3f", 1, 2, 3)).decode()
    for vector in ([0.1, 0.2, 0.3], raw):
        document = {"data": [{"embedding": vector}], "usage": {"prompt_tokens": 4}}
        with answering(document) as server:
            found = go(server, Embeddings(["a", "b"], dimensions=3))
        assert (found.counts.ok, found.ttft, found.prompt_tokens) == (6, None, 24)
    assert sorted(json.loads(b)["input"] for b in server.bodies) == ["a"] * 3 + ["b"] * 3


@pytest.mark.parametrize(
    "document", [{}, {"data": []}, {"data": [{"embedding": []}]}, {"data": [{"embedding": ["x"]}]}, [1],
                 {"data": [{"embedding": [1, 2]}]}],
)  # fmt: skip
def test_what_is_no_embedding(go: Any, document: Any) -> None:
    with answering(document) as server:
        assert go(server, Embeddings(["a"], dimensions=3)).counts.errors == {"content": 6}


def test_kserve_by_http(go: Any) -> None:
    with answering({"outputs": [{"name": "y", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}) as server:
        assert go(server, KServe("m", [[TENSOR]], ["y"])).counts.ok == 6
        assert b"POST /v2/models/m/infer HTTP/1.1" in server.heads[0]
        assert json.loads(server.bodies[0])["inputs"] == [TENSOR]
        assert go(server, KServe("m", [[TENSOR]], ["z"])).counts.errors == {"content": 6}
    with answering({"outputs": [{"name": "y", "shape": [3], "datatype": "FP32", "data": [1, 2]}]}) as server:
        assert go(server, KServe("m", [[TENSOR]])).counts.errors == {"content": 6}
    with answering({"error": "no such model"}, 404) as server:
        assert go(server, KServe("m", [[TENSOR]])).counts.errors == {"http_4xx": 6}


@pytest.mark.parametrize(
    "wrong", [{"shape": [3]}, {"datatype": "FP31"}, {"shape": [-2]}, {"name": None, "shape": ["a"]}]
)  # fmt: skip
def test_tensors_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        KServe("m", [[{**TENSOR, **wrong}]])
    with pytest.raises(DeclarationError):
        KServe("m", [[{k: v for k, v in TENSOR.items() if k != "data"}]])
    with pytest.raises(DeclarationError):
        raw_values("UINT8", [300])


def output(name: str, count: int) -> bytes:
    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    tensor = field(1, name.encode()) + field(2, b"FP32") + field(3, bytes([count]))
    return field(5, tensor) + field(6, struct.pack(f"<{count}f", *range(count)))


@contextmanager
def grpc_server(answer: Any) -> Iterator[tuple[int, list[bytes]]]:
    import grpc

    seen: list[bytes] = []

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> Any:
            if call.method != GRPC_METHOD:
                return None

            def infer(body: bytes, context: Any) -> bytes:
                seen.append(body)
                return answer(context)

            return grpc.unary_unary_rpc_method_handler(infer)

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port, seen
    finally:
        server.stop(0)


def at(port: int) -> Target:
    return Target("127.0.0.1", port=port, tls=False, route=GRPC_METHOD)


def test_kserve_by_grpc(tmp_path: Path) -> None:
    protocol = KServeGrpc("model-1", [[TENSOR]], ["y"])
    with grpc_server(lambda context: output("y", 3)) as (port, seen):
        found = run(LoadPlan(at(port), 40, (), tmp_path / "s", protocol=protocol, users=4))
    assert (found.counts.ok, found.counts.sent, found.total.n) == (40, 40, 40)
    message = dict(fields(seen[0]))
    assert message[1] == b"model-1"
    assert message[7] == struct.pack("<2f", 1.5, -2)


def test_grpc_failures_have_their_class(tmp_path: Path) -> None:
    import grpc

    protocol = KServeGrpc("m", [[TENSOR]], ["y"])
    plan = {"users": 2, "protocol": protocol, "request_timeout_s": 0.3}
    for code, kind in (
        (grpc.StatusCode.INVALID_ARGUMENT, "http_4xx"), (grpc.StatusCode.INTERNAL, "http_5xx"),
    ):  # fmt: skip
        with grpc_server(lambda context, code=code: context.abort(code, "planned")) as (port, _):
            assert run(LoadPlan(at(port), 4, (), tmp_path / "s", **plan)).counts.errors == {kind: 4}
    with grpc_server(lambda context: output("other", 1)) as (port, _):
        assert run(LoadPlan(at(port), 4, (), tmp_path / "s", **plan)).counts.errors == {"content": 4}
    with grpc_server(lambda context: b"\xff\xff\xff") as (port, _):
        assert run(LoadPlan(at(port), 4, (), tmp_path / "s", **plan)).counts.errors == {"content": 4}
    assert run(LoadPlan(at(port), 2, (), tmp_path / "s", **plan)).counts.errors == {"connect": 2}


def test_images_raw_and_as_a_form(go: Any, tmp_path: Path) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    for k, file in enumerate(files):
        file.write_bytes(b"\x89PNG%d" % k)
    with answering({"text": "hello"}) as server:
        assert go(server, Image(files, check=Check(path="text", equals="hello"))).counts.ok == 6
        assert server.bodies[0].startswith(b"\x89PNG")
        assert b"Content-Type: image/png\r\n" in server.heads[0]
        assert go(server, Image(files, field="file", check=Check(path="text", equals="bye"))).counts.errors == {
            "content": 6
        }
        assert b'name="file"; filename="a.png"' in server.bodies[-1] + server.bodies[-2]
        assert b"multipart/form-data; boundary=" in server.heads[-1]
    with pytest.raises(DeclarationError, match="cannot be read"):
        Image([tmp_path / "none.png"])


def test_any_http_by_a_template_and_a_check(go: Any) -> None:
    protocol = Generic('{"n": {{ i }}, "who": {{ who | tojson }}}', [{"who": 'a"b'}, {"who": "c"}],
                       check=Check(matches="^okay$"))  # fmt: skip
    with Mock(raw=lambda head, body: (201, "text/plain", b"okay")) as server:
        assert go(server, protocol, users=1).counts.ok == 6
    assert [json.loads(b) for b in server.bodies[:2]] == [{"n": 0, "who": 'a"b'}, {"n": 1, "who": "c"}]
    with Mock(raw=lambda head, body: (200, "text/plain", b"")) as server:
        assert go(server, Generic("x")).counts.errors == {"content": 6}


@pytest.mark.parametrize("template", ["{{ missing }}", "{% if %}", "{{ ''.__class__.__mro__ }}"])
def test_a_template_that_cannot_be_filled_is_told_before_anything_is_sent(template: str) -> None:
    with pytest.raises(DeclarationError):
        Generic(template)


@pytest.mark.parametrize(
    ("check", "answer", "good"),
    [
        (Check(), b"x", True),
        (Check(), b"", False),
        (Check(matches="^a"), b"ab", True),
        (Check(matches="^b"), b"ab", False),
        (Check(path="a.1.b"), b'{"a":[0,{"b":0}]}', True),
        (Check(path="a.2.b"), b'{"a":[0,{"b":0}]}', False),
        (Check(path="a", equals=1), b'{"a":1}', True),
        (Check(path="a", equals=1), b'{"a":2}', False),
        (Check(path="a"), b"<html>", False),
    ],
)
def test_checks(check: Check, answer: bytes, good: bool) -> None:
    assert (check.wrong(answer) is None) == good


def test_a_stream_where_none_was_asked_and_the_other_way_round(go: Any) -> None:
    with Mock(script=[(0.0, event({"content": "x"}))]) as server:
        assert go(server, Chat(["a"], stream=True)).counts.errors == {"truncated": 6}
    with answering({"choices": [{"message": {"content": "a"}}]}) as server:
        assert go(server, Chat(["a"], stream=True)).counts.errors == {"content": 6}
        assert go(server, Chat(["a"], stream=False)).counts.ok == 6
