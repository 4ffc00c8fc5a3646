"""Server and GPU decide the roles of a model host; a model server is added by one role and one entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from configure_hosts import SHA, contract, fleet, images, profile
from role_templates import filled, read

from inferlift.artifacts import Figure, Fleet, Memory, Offer, Serving, Sizing
from inferlift.artifacts.fleet import AwsPlan, AwsSettings
from inferlift.configure import clusters, fleet_secrets, fleet_variables, model_variables
from inferlift.configure.variables import FleetVariables
from inferlift.errors import DeclarationError
from inferlift.profile import ROOT, Profile
from inferlift.profile import servers as table

OCR = {"source": "pypi://rapidocr==3.10.0/rapidocr/models/rec.onnx", "sha256": SHA}
HUB = {"source": "hf://nvidia/Llama-3.1-70B-Instruct-FP8", "sha256": None}


def figure(value: float | None) -> Figure:
    return Figure(value=value, unit="x", basis="assumed", source="test")


def plan(serving: Serving | None) -> Sizing:
    return Sizing(
        verdict="go", why="", memory=Memory(
            weights_bytes=1, kv_bytes_per_token=0, kv_bytes=0, overhead_bytes=0, total_bytes=1, explain=()
        ),
        peak_rps=figure(1), rate_per_replica=figure(1), replicas=1, spare=0, offers=(), choice="p5.48xlarge",
        cost_per_hour=figure(None), cost_per_1000=figure(None), currency="EUR", serving=serving,
    )  # fmt: skip


def server(**given: Any) -> Profile:
    known = profile().model.model_dump(exclude_none=True)
    return profile(server=given, model=known | (OCR if given["kind"] == "triton" else HUB))


def spread(folder: Path, models: int) -> Fleet:
    given = AwsPlan(settings=AwsSettings.model_validate({}), sites=(), nodes_per_replica=2)
    return fleet(folder, models).model_copy(update={"aws": given})


def told(the_profile: Profile, the_fleet: Fleet, serving: Serving | None, folder: Path, **more: Any) -> FleetVariables:
    secrets = fleet_secrets(folder / "secrets")
    return model_variables(the_profile, the_fleet, plan(serving), secrets=secrets, root=folder, **more)


PINS = "requirements.txt"
GPU = ("nvidia", "scratch")
H100 = Serving(gpu="H100 SXM", tensor=8)


@pytest.mark.parametrize(
    ("given", "serving", "roles"),
    [
        ({"kind": "triton"}, None, ["weights", "triton", "container"]),
        ({"kind": "triton", "image": f"r/t@sha256:{SHA}"}, Serving(gpu="L4"), [*GPU, "weights", "triton", "container"]),
        ({"kind": "vllm", "requirements": PINS}, Serving(gpu="L40S"), [*GPU, "weights", "vllm", "container"]),
        ({"kind": "llamacpp"}, None, ["weights", "llamacpp", "container"]),
        ({"kind": "container"}, Serving(gpu="T4"), [*GPU, "container"]),
    ],
)  # fmt: skip
def test_server_and_gpu_decide_the_roles(
    tmp_path: Path, given: dict[str, Any], serving: Serving | None, roles: list[str]
) -> None:
    made = told(server(**given), fleet(tmp_path), serving, tmp_path)
    assert made.variables["inferlift_model_roles"] == roles
    assert made.variables.get("nvidia_gpu") == (serving.gpu if serving else None)


def test_the_plans_disks_and_gpus_reach_the_roles(tmp_path: Path) -> None:
    offer = Offer(name="p5.48xlarge", source="", date="", nvme_gb=30_000, nvme_mb_s=12_000)
    stanza = tmp_path / "nvidia.sources"
    stanza.write_text("Types: deb\n")
    given = server(kind="vllm", requirements=PINS, driver_repository="nvidia.sources")
    got = told(given, fleet(tmp_path), H100, tmp_path, offer=offer).variables
    assert (got["nvidia_gpus"], got["nvidia_fabric"], got["vllm_gpus"]) == (8, "nvswitch", 8)
    assert (got["scratch_required"], got["scratch_mb_per_s_planned"]) == (True, 12_000)
    assert got["nvidia_repository"] == "Types: deb"
    assert got["vllm_requirements"] == str(tmp_path / PINS)


def test_a_copy_over_two_hosts_is_on_ray_and_its_first_host_answers(tmp_path: Path) -> None:
    the_fleet = spread(tmp_path, 4)
    given = server(kind="vllm", requirements=PINS, driver_repository=PINS)
    (tmp_path / PINS).write_text("x")
    made = told(given, the_fleet, Serving(gpu="H100 SXM", tensor=8, pipeline=2), tmp_path)
    rows: Any = made.variables["ray_clusters"]
    assert [(row["head"], len(row["hosts"])) for row in rows] == [("model-1", 2), ("model-3", 2)]
    assert made.variables["inferlift_model_roles"] == ["nvidia", "scratch", "weights", "ray", "vllm", "container"]
    assert set(made.secrets) == {"vllm_key", "ray_token"}
    workers = [h.name for copy in clusters(the_fleet) for h in copy[1:]]
    whole = fleet_variables(
        given, the_fleet, contract(tmp_path), images(tmp_path), secrets=fleet_secrets(tmp_path / "secrets"),
        tls_folder=tmp_path, wheels=None, workers=workers,
    )  # fmt: skip
    backends: Any = whole.variables["gateway_backends"]
    assert [b["name"] for b in backends] == ["model-1", "model-3"]


def test_hosts_that_make_no_whole_copy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="no whole number of copies"):
        clusters(spread(tmp_path, 3))


@pytest.mark.parametrize(
    ("given", "serving"),
    [({"kind": "vllm"}, H100), ({"kind": "triton"}, Serving(gpu="L4"))],
)
def test_a_server_that_nothing_pins_is_refused(tmp_path: Path, given: dict[str, Any], serving: Serving) -> None:
    with pytest.raises(DeclarationError, match="nothing says which"):
        told(server(**given), fleet(tmp_path), serving, tmp_path)


def test_an_unknown_server_is_a_wrong_declaration() -> None:
    with pytest.raises(ValueError, match="not one of llamacpp, vllm, triton, container"):
        profile(server={"kind": "sglang"})


# --- one role and one entry ---------------------------------------------------------------------------------------

ENTRY = """
mine:
  sized_as: vllm
  roles: [weights, mine, container]
  port: 8090
  unit: mine.service
  variables:
    mine_model: place
    mine_slots: settings.max_num_seqs or server.slots
  secrets: {mine_key: model_key}
"""
ROLE = """
- name: Write what the role was told
  ansible.builtin.copy:
    content: "{{ mine_model }} {{ mine_slots }} {{ inventory_hostname }}"
    dest: "{{ mine_out }}/{{ inventory_hostname }}"
    mode: "0600"
"""
SPECS = """
argument_specs:
  main:
    options:
      mine_model: {type: path, required: true}
      mine_slots: {type: int, required: true}
      mine_key: {type: str, required: true, no_log: true}
      mine_out: {type: path, required: true}
"""


@pytest.fixture
def with_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A role and an entry of the test's own; nothing else of the program is touched."""
    entries = tmp_path / "servers.yaml"
    entries.write_text(table.TABLE.read_text() + ENTRY)
    monkeypatch.setattr(table, "TABLE", entries)
    table.servers.cache_clear()
    role = tmp_path / "roles" / "mine"
    for part, text in (("tasks", ROLE), ("meta", SPECS)):
        (role / part).mkdir(parents=True)
        (role / part / ("main.yml" if part == "tasks" else "argument_specs.yml")).write_text(text)
    return tmp_path


@pytest.mark.programs
def test_a_server_is_added_by_one_role_and_one_entry(with_mine: Path) -> None:
    try:
        made = told(server(kind="mine", slots=6), fleet(with_mine), None, with_mine)
    finally:
        table.servers.cache_clear()
    assert made.variables["inferlift_model_roles"] == ["weights", "mine", "container"]
    assert made.variables["container_upstream"] == "http://127.0.0.1:8090"
    assert set(made.secrets) == {"mine_key"}
    out = with_mine / "out"
    out.mkdir()
    variables = {**made.variables, "mine_out": str(out), "mine_key": "planted-key"}
    hosts = {"model-1": "model", "gateway-1": "gateway"}
    play(with_mine, ROOT / "playbooks" / "site.yml", variables, hosts, "--tags", "mine")
    assert {p.name: p.read_text() for p in out.iterdir()} == {"model-1": "/srv/weights/model 6 model-1"}


def play(folder: Path, playbook: Path, variables: dict[str, Any], hosts: dict[str, str], *options: str) -> None:
    """On this machine, as each of `hosts` (name -> role); what is played writes into the test's folder alone."""
    groups: dict[str, Any] = {}
    for name, role in hosts.items():
        row = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "inferlift_role": role}
        groups.setdefault(role, {"hosts": {}})["hosts"][name] = row
    (folder / "inventory.json").write_text(json.dumps({"all": {"children": groups}}))
    (folder / "variables.json").write_text(json.dumps(variables))
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(folder / "inventory.json"),
        "-e", f"@{folder / 'variables.json'}", *options, str(playbook),
    ]  # fmt: skip
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "playbooks" / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder),
        "ANSIBLE_ROLES_PATH": f"{folder / 'roles'}:{ROOT / 'playbooks' / 'roles'}",
    }
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_workers_of_a_cluster_answer_nobody() -> None:
    """Which roles site.yml takes for a head, a worker and the others, as Ansible itself works it out."""
    given = read(ROOT / "playbooks" / "site.yml")[0]["vars"]
    settings = {
        "ray_clusters": [{"head": "model-1", "hosts": [{"name": "model-1"}, {"name": "model-2"}]}],
        "inferlift_model_roles": ["ray", "vllm", "container"],
        "container_image_digest": "x",
    }
    hosts = {"gateway-1": "gateway", "model-1": "model", "model-2": "model", "model-3": "model"}
    found = {
        name: filled(
            "[fleet_roles, fleet_leads]", given | settings | {"inventory_hostname": name, "inferlift_role": role}
        )
        for name, role in hosts.items()
    }
    assert found == {
        "gateway-1": [["base", "gateway"], True],
        "model-1": [["base", "ray", "vllm", "container"], True],
        "model-2": [["base", "ray", "vllm"], False],
        "model-3": [["base", "ray", "vllm", "container"], True],
    }
