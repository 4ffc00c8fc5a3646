"""`invoke init`: what it writes loads, or the loader asks for exactly what was left open."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferlift.artifacts import Evidence, Figure, LogQuality, Percentiles, RouteFigures, TrafficShape
from inferlift.declaration import load
from inferlift.drafting import UNKNOWN, Draft, describe, draft, on_terminal, questions
from inferlift.errors import DeclarationError
from inferlift.profile import Origin
from inferlift.profile.demand import TASKS
from inferlift.profile.dns import Dns
from inferlift.profile_schema import all_keys
from inferlift.stages._plan import planned

CHAT = {
    "task": "chat",
    "target": "aws",
    "description": "Our assistant: answers, politely # always",
    "model.name": "Llama-3.1-8B-Instruct",
    "model.source": "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct",
    "model.parameters_total": "8_030_261_248",
    "model.layers": "32",
    "model.heads": "32",
    "model.kv_heads": "8",
    "model.head_dim": "128",
    "model.context": "131072",
    "model.weight_format": "bf16",
    "requests.in_flight_peak": "100",
    "requests.input_tokens_p50": "300",
    "requests.input_tokens_p95": "1200",
    "requests.output_tokens": "200",
    "operations.residency": "eu, us-east",
    "budget.usd_rate": "1.15",
    "budget.usd_rate_source": "yes",
    "budget.usd_rate_date": "2026-11-01",
}
IMAGE = {
    "task": "image",
    "model.name": "ResNet-50",
    "model.source": "https://example.org/resnet50.onnx",
    "model.parameters_total": "25557032",
    "model.flops_per_item": "8.18e9",
    "model.weight_format": "fp16",
    "server.kind": "triton",
    "requests.in_flight_peak": "60",
    "requests.image_width": "1280",
    "requests.image_height": "720",
    "targets.p95_total_ms": "200",
    "budget.usd_rate": "1.15",
    "budget.usd_rate_source": "assumption",
    "budget.usd_rate_date": "2026-11-01",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "templates/workloads/chat").mkdir(parents=True)
    return tmp_path


def evidence(**more: object) -> Evidence:
    latency = Percentiles(n=900, p50_ms=400, p90_ms=700, p95_ms=812, p99_ms=1500, max_ms=3000, clock="total")
    told: dict[str, object] = {
        "start": datetime(2026, 10, 1, tzinfo=UTC),
        "end": datetime(2026, 10, 31, tzinfo=UTC),
        "n": 1000,
        "inference_n": 900,
        "errors": 3,
        "error_share": 0.003,
        "latency": latency,
        "routes": (
            RouteFigures(route="/health", n=100, errors=0, latency=latency),
            RouteFigures(route="/v1/chat/completions", n=900, errors=3, latency=latency),
        ),
        "per_minute_peak": 812,
        "in_flight_peak": 41,
        "triggers": (),
        "shape": TrafficShape(gaps_s=(1.0,), request_bytes=(900,), routes={}, per_minute_peak=812, in_flight_peak=41),
        "quality": LogQuality(lines=1000, understood=1000, refused=0),
        "statuses": {"200": 997},
    }
    return Evidence.model_validate({**told, **more})


@pytest.mark.parametrize("answers", [CHAT, IMAGE], ids=["chat", "image"])
def test_answered_it_loads(root: Path, answers: dict[str, str]) -> None:
    made = draft("mine", root, answers=answers)
    assert made.problems == ""
    profile = load("mine", root).profile
    assert (profile.name, profile.task, profile.model.name) == ("mine", answers["task"], answers["model.name"])


def test_answers_stand_in_the_file_as_typed(root: Path) -> None:
    draft("mine", root, answers=CHAT)
    profile = load("mine", root).profile
    assert profile.description == "Our assistant: answers, politely # always"
    assert profile.model.parameters_total == 8030261248
    assert profile.operations.residency == ("eu", "us-east")
    assert profile.budget.usd_rate_source == "yes"  # text, as typed
    assert profile.requests.per_minute_peak is None


def test_what_nobody_answered_is_a_question_and_the_loader_asks_for_the_required_ones(root: Path) -> None:
    left = {key: value for key, value in CHAT.items() if key not in ("requests.output_tokens", "model.layers")}
    made = draft("mine", root, answers=left)
    text = made.path.read_text(encoding="utf-8")
    assert "  # QUESTION: How many tokens has a reply, on average?\n  output_tokens: null\n" in text
    assert {"requests.output_tokens", "model.layers", "targets.p95_ttft_ms"} <= set(made.open)
    asked = re.findall(r"mine\.yaml:\d+: ([a-z0-9_.]+):", made.problems)
    assert asked == ["model.layers", "requests.output_tokens"]


def test_what_is_not_asked_is_a_default_that_is_said(root: Path) -> None:
    made = draft("mine", root, answers=CHAT)
    text = made.path.read_text(encoding="utf-8")
    assert "  # in_flight_peak" not in text  # answered
    assert "  # growth_per_month: 0.0  # growth a month, 0.1 = 10 %\n" in text
    assert "# hosting:  # uncomment this line with one of those below\n  # bill_monthly: null" in text
    assert "  kind: vllm  # what serves it (vllm, triton, llamacpp, container)\n" in text
    assert not {"hosting.bill_monthly", "requests.growth_per_month", "server.kind"} & set(made.open)
    image = draft("eye", root, answers={key: value for key, value in IMAGE.items() if key != "server.kind"})
    assert load("eye", root).profile.server.kind == "triton"
    assert image.problems == ""


@pytest.mark.parametrize("task", TASKS)
def test_without_any_answer_the_loader_asks_for_exactly_the_required_ones(root: Path, task: str) -> None:
    made = draft("mine", root, answers={"task": task})
    asked = set(re.findall(r"mine\.yaml:\d+: ([a-z0-9_.]+):", made.problems))
    required = {
        question.key for question in questions() if question.required and (not question.tasks or task in question.tasks)
    }
    # the number of bits follows from the format: the loader names both
    assert asked - {"model.weight_bits"} == required - {"model.weight_format"}


def test_the_editors_schema_lies_where_the_first_line_says(root: Path) -> None:
    made = draft("mine", root, answers=CHAT)
    first = made.path.read_text(encoding="utf-8").splitlines()[0]
    schema = (made.path.parent / first.partition("$schema=")[2]).resolve()
    assert json.loads(schema.read_text(encoding="utf-8"))["title"] == "inferlift profile"


def test_from_evidence_with_the_rest_left_open(root: Path) -> None:
    curve = tuple((10.0 + hour) / 516 for hour in range(24))
    found = evidence(
        day_curve=curve,
        growth_per_month=0.08,
        bill_monthly=Figure(value=1180.0, unit="EUR", basis="declared", source="bill"),
        gpu_model="Tesla T4\n# owned: true",
    )
    file = root / "evidence.json"
    file.write_text(found.model_dump_json(), encoding="utf-8")
    made = draft("mine", root, evidence=file)
    plain = yaml.safe_load(made.path.read_text(encoding="utf-8"))
    assert plain["task"] == "chat"
    assert plain["requests"]["per_minute_peak"] == 812
    assert plain["requests"]["in_flight_peak"] == 41
    assert plain["requests"]["day_curve"][-1] == 1
    assert plain["hosting"] == {"bill_monthly": 1180.0, "gpu": "Tesla T4\n# owned: true"}
    text = made.path.read_text(encoding="utf-8")
    assert "per_minute_peak: 812  # measured: busiest minute of 900 requests, 2026-10-01 to 2026-10-31" in text
    assert {"requests.input_tokens_p50", "model.name", "targets.p95_ttft_ms"} <= set(made.open)
    assert not {"requests.per_minute_peak", "requests.day_curve", "hosting.gpu"} & set(made.open)


def test_evidence_as_the_audit_prints_it_and_an_answer_wins_over_it(root: Path) -> None:
    file = root / "audit.json"
    file.write_text(json.dumps({"ok": True, "artifact": evidence().model_dump(mode="json")}), encoding="utf-8")
    draft("mine", root, evidence=file, answers={**CHAT, "requests.per_minute_peak": "900"})
    assert load("mine", root).profile.requests.per_minute_peak == 900


def test_logs_without_inference_tell_no_peak(root: Path) -> None:
    file = root / "evidence.json"
    file.write_text(evidence(inference_n=0, per_minute_peak=0, in_flight_peak=0).model_dump_json(), encoding="utf-8")
    made = draft("mine", root, evidence=file)
    assert "requests.per_minute_peak" in made.open
    assert "  # in_flight_peak: 1000" in made.path.read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"n": 1}', b"\xff\xfe", b'{"artifact": {"n": "x"}}'])
def test_what_is_no_evidence_is_refused(root: Path, content: bytes) -> None:
    file = root / "evidence.json"
    file.write_bytes(content)
    with pytest.raises(DeclarationError, match=r"evidence\.json is no"):
        draft("mine", root, evidence=file)
    assert not (root / "profiles" / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ([1 / 12] * 12, "expected 24 shares, one an hour, got 12"),
        ([1.0] * 24, "expected shares of a day that come to 1, got 24 in all"),
        ([0.0] * 24, "got 0 in all"),
        ([1.5, -0.5] + [0.0] * 22, "got 1 in all"),
        ([float("nan")] + [1 / 23] * 23, "nan"),
    ],
)
def test_a_day_that_is_no_day_is_refused(root: Path, curve: list[float], said: str) -> None:
    file = root / "evidence.json"
    for told in ({"day_curve": curve}, {"shape": {**evidence().shape.model_dump(), "arrivals_by_hour": curve}}):
        file.write_text(json.dumps({**evidence().model_dump(mode="json"), **told}), encoding="utf-8")
        with pytest.raises(DeclarationError, match=re.escape(said)):
            draft("mine", root, evidence=file)


def test_evidence_that_is_not_there(root: Path) -> None:
    with pytest.raises(DeclarationError, match="cannot be read: No such file"):
        draft("mine", root, evidence=root / "none.json")


def test_it_never_overwrites(root: Path) -> None:
    made = draft("mine", root, answers=CHAT)
    before = made.path.read_bytes()
    with pytest.raises(DeclarationError, match="is there already and stays as it is"):
        draft("mine", root, answers=IMAGE)
    assert made.path.read_bytes() == before
    (root / "profiles" / "linked.yaml").symlink_to(root / "elsewhere.yaml")
    with pytest.raises(DeclarationError, match="is there already"):
        draft("linked", root, answers=CHAT)
    assert not (root / "elsewhere.yaml").exists()


@pytest.mark.parametrize("name", ["", "Mine", "1x", "a/b", "../x", "x" * 32, "a b", "-x"])
def test_odd_names_are_refused(root: Path, name: str) -> None:
    with pytest.raises(DeclarationError, match="cannot be the name of a profile"):
        draft(name, root, answers=CHAT)


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("requests.output_tokens", "many", "requests.output_tokens: expected a whole number"),
        ("requests.output_tokens", "-3", "requests.output_tokens: expected a whole number"),
        ("task", "training", "task: expected one of chat, image"),
        ("target", "moon", "target: expected one of lab, aws, static"),
        ("budget.usd_rate_date", "today", "budget.usd_rate_date: expected text matching"),
        ("requests.outputtokens", "3", "did you mean 'requests.output_tokens'"),
        ("requests.image_width", "3", "requests.image_width is not asked where the task is chat"),
    ],
)
def test_wrong_answers_are_refused_and_nothing_is_written(root: Path, key: str, typed: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)):
        draft("mine", root, answers={**CHAT, key: typed})
    assert not (root / "profiles" / "mine.yaml").exists()


def test_questions_are_asked_once_each_and_again_where_the_answer_is_wrong(root: Path) -> None:
    asked: list[str] = []

    def ask(question: str, default: str) -> str:
        asked.append(question)
        key = next(one.key for one in questions() if question.endswith(one.ask))
        if key == "requests.output_tokens" and not question.startswith(key):
            return "a few"
        return CHAT.get(key, default)

    made = draft("mine", root, ask=ask)
    assert made.problems == ""
    again = [question for question in asked if question.startswith("requests.output_tokens: expected a whole number")]
    assert len(again) == 1
    assert len(asked) == len(set(asked))
    assert not any("pixels" in question for question in asked)


def answers_of(given: dict[str, str], asked: list[str]) -> Callable[[str, str], str]:
    """Answers by key; an empty line where none is given."""

    def ask(question: str, default: str) -> str:
        key = next(one.key for one in questions() if question.endswith(one.ask))
        asked.append(key)
        return given.get(key, "")

    return ask


@pytest.mark.parametrize(
    ("config", "given", "most"),
    [
        ("llama-3.1-8b", {"requests.input_tokens_p50": "300", "requests.input_tokens_p95": "900",
                          "requests.output_tokens": "200"}, 10),
        ("bge-m3", {"requests.input_tokens_p50": "128", "requests.input_tokens_p95": "400"}, 9),
        ("vit-b16", {"requests.image_width": "640", "requests.image_height": "480"}, 9),
    ],
)  # fmt: skip
def test_with_the_models_own_file_few_questions_make_a_plan(
    root: Path, config: str, given: dict[str, str], most: int
) -> None:
    configs = yaml.safe_load((Path(__file__).parent / "modelfile.yaml").read_text(encoding="utf-8"))
    (root / "my-model").mkdir()
    (root / "my-model" / "config.json").write_text(json.dumps(configs[config]["config"]), encoding="utf-8")
    asked: list[str] = []
    told = {"model.config": "my-model/config.json", "requests.per_minute_peak": "60", **given}
    made = draft("mine", root, ask=answers_of(told, asked))
    assert (made.problems, made.open) == ("", ())
    assert len(asked) <= most
    profile = load("mine", root).profile
    assert profile.model.name == "my-model"
    assert profile.task == {"llama-3.1-8b": "chat", "bge-m3": "embeddings", "vit-b16": "image"}[config]
    assert planned(profile, None).replicas >= 1


def test_a_models_file_that_cannot_be_read_is_asked_for_again(root: Path) -> None:
    asked: list[str] = []
    typed = iter(["nowhere/config.json", ""])

    def ask(question: str, default: str) -> str:
        asked.append(question)
        return next(typed, "") if "describes the model" in question else default

    made = draft("mine", root, ask=ask)
    assert asked[1].startswith("config.json: no such file. Which file describes the model")
    assert "model.config" not in made.open
    with pytest.raises(DeclarationError, match="no such file"):
        draft("other", root, answers={"model.config": "nowhere/config.json"})


def test_lab_and_static_get_their_sections(root: Path) -> None:
    assert draft("in-lab", root, answers={**CHAT, "target": "lab"}).problems == ""
    made = draft("own", root, answers={**CHAT, "target": "static"})
    assert re.findall(r"own\.yaml:\d+: ([a-z0-9_.]+):", made.problems) == [
        "static.hosts.0.cores",
        "static.hosts.0.ram_gb",
    ]


@pytest.mark.parametrize("target", ["aws", "static"])
def test_the_old_side_stands_there_to_be_filled_in(root: Path, target: str) -> None:
    text = draft("own", root, answers={**CHAT, "target": target}).path.read_text(encoding="utf-8")
    rows = text.partition("# origin:\n")[2].splitlines()
    plain = yaml.safe_load("origin:\n" + "\n".join(row.removeprefix("# ") for row in rows))
    assert Origin.model_validate(plain["origin"]).name == "ai.example.com"
    assert Dns.model_validate(plain["switch"]["dns"]).kind == "powerdns"


def test_every_question_is_about_a_key() -> None:
    assert [question.key for question in questions() if question.key not in all_keys()] == []
    assert len({question.key for question in questions()}) == len(questions())


def test_what_is_printed_names_what_is_open(root: Path) -> None:
    lines = describe(draft("mine", root), root)
    assert lines[0] == "wrote profiles/mine.yaml"
    assert "requests.output_tokens" in lines[1]
    assert lines[2] == "6 of them are answered by the model's own file, a config.json or GGUF: model.config"
    assert lines[-1] == "next: edit profiles/mine.yaml, then ./invoke size --profile mine"
    whole = describe(Draft(root / "profiles" / "whole.yaml"), root)
    assert whole[1:] == ["next: edit profiles/whole.yaml, then ./invoke size --profile whole"]


def test_the_end_of_the_input_is_no_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/null").open(encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert on_terminal("How many?", "3") == ""
    assert capsys.readouterr().err == "How many? [3] "


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30), st.sampled_from(["description", "model.name", "budget.usd_rate_source", "hosting.gpu"]))
def test_any_text_comes_back_as_it_was_typed(root: Path, text: str, key: str) -> None:
    path = root / "profiles" / "mine.yaml"
    path.unlink(missing_ok=True)
    try:
        made = draft("mine", root, answers={**CHAT, key: text})
    except DeclarationError:
        assert not path.exists()
        return
    if key in made.open or made.problems or text.strip().lower() in UNKNOWN:
        return
    section, _, inner = key.rpartition(".")
    profile = load("mine", root).profile
    value = getattr(getattr(profile, section) if section else profile, inner)
    assert value == (text.strip() or value)
