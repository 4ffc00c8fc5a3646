"""The guard's script: one write, everything to the old side; no data and other people's records leave it still.

The back ends here are stand-ins; tests/lab/test_dns_backends.py runs the script against PowerDNS and Knot.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dns_standins import NAME, NEW, OLD, OWNER, journal
from hypothesis import given
from hypothesis import strategies as st

from inferlift.dns import guard as rendering
from inferlift.dns import record
from inferlift.dns.gating import MetricGate
from inferlift.errors import DeclarationError

SCRIPT = rendering.TEMPLATES / "guard.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("inferlift_guard", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(rendering.TEMPLATES))
guard = load()
zones = sys.modules["guard_zones"]
CONFIG: dict[str, Any] = {
    "name": f"{NAME}.", "zone": "demo.test.", "old": OLD, "new": NEW, "owner": OWNER, "failures": 3, "every_s": 1,
    "gates": [], "backend": {"kind": "powerdns"},
}  # fmt: skip


def stands(weights: dict[str, int], **changed: Any) -> dict[str, Any]:
    intended = {OLD: weights.get(OLD, 0), NEW: weights.get(NEW, 0)}
    book = journal(intended=intended, **changed).model_dump(mode="json")
    return {"weights": {a: w for a, w in weights.items() if w}, "ttl_s": 2, "journal": book}


class Zone:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state, self.written = state, list[dict[str, Any]]()

    def read(self) -> dict[str, Any]:
        return self.state

    def put_back(self, found: dict[str, Any], book: dict[str, Any]) -> None:
        self.written.append(book)
        self.state = {"weights": {OLD: 100}, "ttl_s": found["ttl_s"], "journal": book}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    script: list[str] = []
    monkeypatch.setattr(guard, "look", lambda config: (script.pop(0), "stand-in"))
    monkeypatch.setitem(CONFIG, "state_file", str(tmp_path / "state.json"))
    return script


def run(zone: Zone, looks: list[str], script: str) -> list[str]:
    looks += {"p": ["pass"], "f": ["fail"], "i": ["inconclusive"]}.get(script, []) or [
        {"p": "pass", "f": "fail", "i": "inconclusive"}[c] for c in script
    ]
    state: dict[str, Any] = {}
    return [guard.step(CONFIG, zone, state) for _ in range(len(looks))]


@pytest.mark.parametrize(
    ("script", "back"),
    [("fff", True), ("ffpff", False), ("ffiif", True), ("iiiiiiiii", False), ("ppp", False), ("fifif", True)],
)
def test_failures_in_a_row_take_users_back_and_no_data_never_does(looks: list[str], script: str, back: bool) -> None:
    zone = Zone(stands({OLD: 90, NEW: 10}))
    outcomes = run(zone, looks, script)
    assert ("rolled back" in outcomes) is back
    assert len(zone.written) == back
    if back:
        assert record.shares(zone.state["weights"]) == {OLD: 1.0}
        assert json.loads(Path(CONFIG["state_file"]).read_text())["rolled_back"]["why"] == "stand-in"


def test_the_journal_it_writes_is_one_that_the_operators_run_understands(looks: list[str]) -> None:
    zone = Zone(stands({OLD: 90, NEW: 10}))
    run(zone, looks, "fff")
    found = record.decode(tuple(zones.encode(zone.written[0])))
    assert (found.phase, found.run, found.sequence, found.intended) == ("rolled-back", "guard", 4, {OLD: 100, NEW: 0})
    assert zones.encode(zone.written[0]) == list(record.encode(found))
    assert zones.decode(list(record.encode(journal()))) == journal().model_dump(mode="json")


@pytest.mark.parametrize(
    "state",
    [
        stands({OLD: 90, NEW: 10}, owner="another@host"),
        {**stands({OLD: 90, NEW: 10}), "weights": {OLD: 30, NEW: 70}},
        {**stands({OLD: 90, NEW: 10}), "ttl_s": 60},
        {**stands({OLD: 90, NEW: 10}), "weights": {}},
        {**stands({OLD: 90, NEW: 10}), "weights": {"192.0.2.66": 1}},
        {"weights": {NEW: 1}, "ttl_s": 2, "journal": None},
    ],
)
def test_other_peoples_records_are_left_as_they_are(looks: list[str], state: dict[str, Any]) -> None:
    zone = Zone(state)
    assert run(zone, looks, "ffff")[-1] == "left alone"
    assert zone.written == []


@given(
    st.dictionaries(st.sampled_from([OLD, NEW, "192.0.2.66"]), st.integers(0, 255)),
    st.sampled_from(["stepping", "done", "rehearsing", "weighted", "rolled-back"]),
    st.integers(0, 100),
)
def test_it_can_only_move_weight_back(weights: dict[str, int], phase: str, intended: int) -> None:
    book = journal(phase=phase, intended={OLD: 100 - intended, NEW: intended}).model_dump(mode="json")
    try:
        written = guard.back(CONFIG, {"weights": weights, "ttl_s": 2, "journal": book})
    except guard.NotOurs:
        return
    if written is not None:
        assert written["intended"] == {OLD: 100, NEW: 0}
        assert written["phase"] == "rolled-back"
        assert weights.get(NEW, 0) > 0  # there was something to take back


def test_each_back_end_writes_the_old_side_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    pdns = zones.PowerDns({**CONFIG, "backend": {"url": "http://x", "key_file": "/x"}})
    monkeypatch.setattr(pdns, "_call", lambda method, path, body=None: sent.append((method, body)))
    state = stands({OLD: 90, NEW: 10})
    book = guard.back(CONFIG, state)
    pdns.put_back(state, book)
    (method, body) = sent[0]
    assert method == "PATCH"
    assert [(r["name"], r["type"], r["changetype"]) for r in body["rrsets"]] == [
        (f"{NAME}.", "LUA", "REPLACE"), (f"_inferlift.{NAME}.", "TXT", "REPLACE"),
    ]  # fmt: skip
    assert body["rrsets"][0]["records"] == [{"content": f"A \"pickwrandom({{{{100,'{OLD}'}}}})\"", "disabled": False}]
    assert NEW not in json.dumps(body["rrsets"][0])

    entry = {"Name": f"{NAME}.", "Type": "A", "TTL": 2, "HealthCheckId": "h"}
    sets = [
        {**entry, "SetIdentifier": "o", "Weight": 90, "ResourceRecords": [{"Value": OLD}]},
        {**entry, "SetIdentifier": "n", "Weight": 10, "ResourceRecords": [{"Value": NEW}]},
        {"Name": f"_inferlift.{NAME}.", "Type": "TXT", "TTL": 2,
         "ResourceRecords": [{"Value": zones.quoted(t)} for t in zones.encode(state["journal"])]},
    ]  # fmt: skip

    class Client:
        def list_resource_record_sets(self, **named: Any) -> Any:
            return {"ResourceRecordSets": [r for r in sets if r["Name"] == named["StartRecordName"]]}

        def change_resource_record_sets(self, **named: Any) -> None:
            sent.append(named["ChangeBatch"])

    aws = zones.Route53({**CONFIG, "backend": {"zone_id": "Z1"}}, Client())
    found = aws.read()
    assert found["weights"] == {OLD: 90, NEW: 10}
    aws.put_back(found, guard.back(CONFIG, found))
    changes = [(c["Action"], c["ResourceRecordSet"].get("SetIdentifier")) for c in sent[1]["Changes"]]
    assert changes == [
        ("DELETE", "o"), ("DELETE", "n"), ("DELETE", None), ("CREATE", "o"), ("CREATE", None),
    ]  # fmt: skip
    assert sent[1]["Changes"][3]["ResourceRecordSet"]["Weight"] == 100


@pytest.mark.parametrize(
    ("value", "count", "verdict"),
    [
        (None, 99, "inconclusive"),
        (0.0, 5, "inconclusive"),
        (0.9, None, "inconclusive"),
        (0.9, 99, "fail"),
        (0.01, 99, "pass"),
    ],
)
def test_too_few_samples_and_no_data_decide_nothing(value: float | None, count: float | None, verdict: str) -> None:
    assert guard.judge({"count": "n", "minimum": 30, "target": 0.05}, value, count) == verdict


def test_no_gate_at_all_decides_nothing() -> None:
    assert guard.look(CONFIG)[0] == "inconclusive"


def render(**more: Any) -> tuple[rendering.HostFile, ...]:
    backend = rendering.GuardBackend(kind="powerdns", url="https://10.0.0.3:8443", key_file="/etc/k", ca="/etc/ca")
    named: dict[str, Any] = {"prometheus": "https://127.0.0.1:9090", **more}
    gates = [MetricGate("errors", "errors:rate1m", 0.05, count="requests:count1m")]
    return rendering.render(NAME, "demo.test", OLD, NEW, OWNER, named.pop("backend", backend), gates, **named)


def test_rendered_files_hold_no_secret_and_the_unit_says_what_it_may() -> None:
    script, beside, config, unit = render()
    assert script.text == SCRIPT.read_text()
    assert Path(beside.path).parent == Path(script.path).parent
    assert json.loads(config.text)["backend"]["key_file"] == "/etc/k"
    assert (script.mode, config.mode, config.owner) == ("0755", "0640", "inferlift-guard")
    assert "ProtectSystem=strict" in unit.text
    assert "WatchdogSec=95" in unit.text
    assert "ProtectSystem" not in render(hardened=False)[3].text
    assert "{{" not in unit.text


def test_a_guard_that_cannot_work_is_not_rendered() -> None:
    with pytest.raises(DeclarationError, match="without a gate"):
        rendering.render(
            NAME, "demo.test", OLD, NEW, OWNER, rendering.GuardBackend("route53", zone_id="Z"), [], prometheus="x"
        )
    with pytest.raises(DeclarationError, match="lacks zone_id"):
        render(backend=rendering.GuardBackend("route53"))
    with pytest.raises(DeclarationError, match="lacks url"):
        render(backend=rendering.GuardBackend("powerdns"))


def test_the_script_needs_nothing_but_python_and_one_package_of_its_back_end() -> None:
    text = SCRIPT.read_text() + (rendering.TEMPLATES / "guard_zones.py").read_text()
    top = {
        (n.names[0].name if isinstance(n, ast.Import) else str(n.module)).partition(".")[0]
        for n in ast.parse(text).body
        if isinstance(n, ast.Import | ast.ImportFrom)
    }
    assert top - {"guard_zones"} <= set(sys.stdlib_module_names)
    inside = set(re.findall(r"import(?:_module\(\")? ?(dns|boto3|botocore)", text))
    assert inside == {"dns", "boto3", "botocore"}


def test_credentials_are_narrowed_as_far_as_the_back_end_goes() -> None:
    iam = json.loads(rendering.narrowing("route53", NAME, "demo.test", zone_id="Z1")["policy"])
    condition = iam["Statement"][0]["Condition"]["ForAllValues:StringEquals"]
    assert condition["route53:ChangeResourceRecordSetsNormalizedRecordNames"] == [NAME, f"_inferlift.{NAME}"]
    assert condition["route53:ChangeResourceRecordSetsRecordTypes"] == ["A", "TXT"]
    assert iam["Statement"][0]["Resource"].endswith("hostedzone/Z1")
    tsig = rendering.narrowing("rfc2136", NAME, "demo.test")
    assert "update-owner-name: [ai, _inferlift.ai]" in tsig["knot"]
    assert f"name {NAME}. A" in tsig["bind"]
    pdns = rendering.narrowing("powerdns", NAME, "demo.test")
    assert "cannot be narrowed" in pdns["open"]
    assert "location = /api/v1/servers/localhost/zones/demo.test. {" in pdns["proxy"]
    assert "limit_except GET PATCH { deny all; }" in pdns["proxy"]
    with pytest.raises(DeclarationError):
        rendering.narrowing("gateway", NAME, "demo.test")
