"""How a rehearsal judges an end, with a lab that is a stand-in: it shows no fault, only what is made of one's end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferlift.errors import CheckFailed, DeclarationError, Refusal, Retryable
from inferlift.profile import ROOT
from inferlift.rehearsal import run
from inferlift.rehearsal.faults import FAULTS
from inferlift.rehearsal.run import Spec
from inferlift.rehearsal.standing import Ended, own_place

SPEC = Spec(name="f", what="w", after="scale", type="switch", exit=1, users="old", says="no room", heal="deploy")
NAMES = (
    "no-capacity kill-after-create host-lost model-crash bad-model slow-model health-lies no-metrics dns-refused "
    "dns-foreign-change resolver-stale gateway-restart disk-full cert-expired"
)


class Lab:
    """Stand-in for a standing migration."""

    def __init__(self, *ends: Ended, users: str = "old") -> None:
        self.ends, self.where, self.typed = list(ends), users, list[str]()

    def invoke(self, line: str) -> Ended:
        self.typed.append(line)
        return self.ends.pop(0)

    def users(self) -> str:
        return self.where


class Fault:
    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble, self.did = trouble, list[str]()

    def plant(self, lab: Any) -> None:
        self.did.append("plant")
        if self.trouble:
            raise self.trouble

    def heal(self, lab: Any) -> None:
        self.did.append("heal")


def met(lab: Lab, fault: Fault | None = None, spec: Spec = SPEC) -> run.FaultRow:
    return run.meet(lab, spec, {"f": lambda: fault or Fault()})  # type: ignore[arg-type]


GOOD = Ended(1, "inferlift: this machine has no room for it\n  why: x\n")


def test_there_are_fourteen_and_each_has_a_class() -> None:
    assert {s.name for s in run.specs()} == set(FAULTS) == set(NAMES.split())
    assert len(FAULTS) == 14


def test_an_end_as_documented() -> None:
    lab, fault = Lab(GOOD, Ended(0, "")), Fault()
    row = met(lab, fault)
    assert (row.ok, row.exit, row.outcome) == (True, 1, "this machine has no room for it")
    assert lab.typed == ["switch", "deploy"]
    assert fault.did == ["plant", "heal"]


@pytest.mark.parametrize(
    ("lab", "said"),
    [
        (Lab(Ended(0, "no room"), Ended(0, "")), "ended with 0, documented is 1"),
        (Lab(Ended(1, "something else"), Ended(0, "")), "does not say"),
        (Lab(Ended(1, "no room\nTraceback (most recent call last)"), Ended(0, "")), "traceback"),
        (Lab(GOOD, Ended(1, "inferlift: broken")), "after it, `deploy` ended with 1"),
    ],
)
def test_another_end_is_no_pass(lab: Lab, said: str) -> None:
    row = met(lab)
    assert not row.ok
    assert said in row.outcome


def test_users_elsewhere_are_no_pass() -> None:
    spec = Spec(**{**SPEC.__dict__, "users": "new"})
    assert "users are at old" in met(Lab(GOOD, Ended(0, "")), spec=spec).outcome


def test_a_fault_that_could_not_be_planted_is_healed_and_no_pass() -> None:
    lab, fault = Lab(Ended(0, "")), Fault(CheckFailed("it did not break"))
    row = met(lab, fault)
    assert not row.ok
    assert row.exit is None
    assert "could not be rehearsed: it did not break" in row.outcome
    assert fault.did == ["plant", "heal"]
    assert not met(Lab(Ended(0, "")), Fault(Retryable("no ssh"))).ok


def test_a_wrong_name_names_the_nearest() -> None:
    with pytest.raises(DeclarationError, match="did you mean host-lost"):
        run.choose("host-lots", run.specs())
    assert [s.name for s in run.choose("disk-full,host-lost", run.specs())] == ["disk-full", "host-lost"]


def test_results_are_kept_by_fault_and_the_table_keeps_other_rows(tmp_path: Path) -> None:
    row = met(Lab(GOOD, Ended(0, "")))
    one, two = (run.FaultRow(**{**row.__dict__, "fault": name}) for name in ("host-lost", "disk-full"))
    run.keep_rows(tmp_path, [one])
    run.keep_rows(tmp_path, [two])
    assert (tmp_path / run.RESULTS).read_text().count('"fault"') == 2
    page = tmp_path / "faults.md"
    page.write_text(f"before\n{run.BEGIN}\n{run.END}\nafter\n")
    run.write_doc([one], page)
    run.write_doc([two], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.index("`host-lost`") < text.index("`disk-full`")
    assert text.count("\n| `") == 2


def test_the_rehearsals_lab_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inferlift.place import place

    monkeypatch.setenv("INFERLIFT_STATE", str(tmp_path / "state"))
    users, (own, path) = place("demo-small"), own_place("demo-small")
    assert own.owner != users.owner
    assert own.folder != users.folder
    assert path.is_relative_to(tmp_path)
    assert not list((ROOT / "profiles").glob("*rehearsal*"))


@pytest.mark.parametrize("profile", ["demo-aws", "on-prem"])
def test_nothing_is_broken_on_purpose_outside_of_the_lab(profile: str) -> None:
    from inferlift.place import place
    from inferlift.rehearsal.standing import lab_only

    with pytest.raises(Refusal, match="in the lab only"):
        lab_only(place(profile, planning=True))


def test_a_service_that_exists_is_never_broken_on_purpose(tmp_path: Path) -> None:
    from inferlift.place import place
    from inferlift.rehearsal.standing import lab_only

    path = tmp_path / "real.yaml"
    path.write_text(
        "extends: demo-small\nname: real\norigin: {name: ai.example.com, logs: /var/log/a.log}\n", encoding="utf-8"
    )
    with pytest.raises(Refusal, match="the lab's own old world only"):
        lab_only(place(str(path), planning=True))
