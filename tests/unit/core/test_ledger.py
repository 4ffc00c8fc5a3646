"""The ledger: one lock, intents that outlive a kill, artifacts that are what was recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from inferlift.artifacts import Quality, Status, Transfer
from inferlift.errors import CheckFailed, InferliftError, Interrupted, Refusal
from inferlift.ledger import Ledger, connect, reading, write_atomically

FOUND = Quality(n=4, correct=3, share=0.75)


def opened(folder: Path):
    return Ledger.open(folder, command="invoke test", declared_in=Path("/profiles/a.yaml"))


def test_second_run_is_told_who_holds_the_lock_since_when(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(Refusal) as refused, opened(tmp_path):
        pass
    assert f"pid {os.getpid()}" in str(refused.value)
    assert "invoke test" in str(refused.value)
    assert "since 20" in str(refused.value)


def test_the_same_name_from_another_file_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    other = Path("/profiles/b.yaml")
    with pytest.raises(Refusal, match=r"/profiles/a\.yaml"), Ledger.open(tmp_path, command="x", declared_in=other):
        pass


def test_a_kill_leaves_the_intent_open_and_frees_the_lock(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from inferlift.ledger import Ledger
        with Ledger.open(Path({str(tmp_path)!r}), command="x", declared_in=Path("/profiles/a.yaml")) as ledger:
            ledger.begin("poc", "k")
            with ledger.intent("poc", "k", "provision", "fleet", {{}}, {{"model": 1}}):
                os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=30)
    assert done.returncode == -signal.SIGKILL
    with opened(tmp_path) as ledger:
        (left,) = ledger.open_intents()
        assert (left.stage, left.action, left.planned) == ("poc", "provision", {"model": 1})
        ledger.close_intent(left.id, "adopted")
        assert ledger.open_intents() == []


def test_an_error_is_an_outcome_but_an_interrupt_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        with pytest.raises(CheckFailed), ledger.intent("load", "k", "requests", "", {}, {}):
            raise CheckFailed("no answer")
        assert ledger.open_intents() == []
        for stop in (KeyboardInterrupt(), Interrupted("stopped")):
            with pytest.raises(type(stop)), ledger.intent("load", "k", "requests", "", {}, {}):
                raise stop
        assert len(ledger.open_intents()) == 2


def test_a_finished_step_is_known_until_the_key_changes_or_the_stage_ends(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.begin("poc", "k1")
        with ledger.intent("poc", "k1", "provision", "fleet", {}, {}) as keep:
            keep("{}")
        assert ledger.finished_step("poc", "k1", "provision", "fleet") is not None
        ledger.begin("poc", "k1")
        assert ledger.finished_step("poc", "k1", "provision", "fleet") is not None
        ledger.begin("poc", "k2")
        assert ledger.finished_step("poc", "k1", "provision", "fleet") is None
        with ledger.intent("poc", "k2", "provision", "fleet", {}, {}) as keep:
            keep("{}")
        ledger.finish("poc", FOUND, Status.DONE, 1.0)
        assert ledger.finished_step("poc", "k2", "provision", "fleet") is None


def test_an_artifact_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.begin("load", "k")
        ledger.finish("load", FOUND, Status.DONE, 1.0)
        assert ledger.artifact("load", Quality) == FOUND
        path = tmp_path / "artifacts" / "load.json"
        path.write_text(path.read_text().replace("0.75", "1.0"))
        with pytest.raises(CheckFailed, match="not what the ledger recorded"):
            ledger.artifact("load", Quality)


def test_boundaries_are_told_before_and_after_each_action(tmp_path: Path) -> None:
    seen: list[str] = []
    with opened(tmp_path) as ledger:
        ledger.on_boundary = seen.append
        with ledger.intent("switch", "k", "weight", "ai", {}, {}):
            assert seen == ["switch weight ai intent"]
    assert seen == ["switch weight ai intent", "switch weight ai outcome"]


def test_reading_needs_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    with reading(tmp_path / "none") as nothing:
        assert nothing is None
    assert not (tmp_path / "none").exists()
    with opened(tmp_path) as ledger:
        ledger.set_document("floors", {"poc": 1})
        with reading(tmp_path) as other:
            assert other is not None
            assert other.document("floors") == {"poc": 1}


def test_expected_seconds_is_the_median_and_unknown_before_the_first_run(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.expected_seconds("load") is None
        for seconds in (10.0, 100.0, 12.0):
            ledger.timed("load", seconds)
        assert ledger.expected_seconds("load") == 12.0


def test_exit_code_and_message_of_a_run_are_kept(tmp_path: Path) -> None:
    with pytest.raises(InferliftError), opened(tmp_path):
        raise Refusal("not now")
    with opened(tmp_path) as ledger:
        assert next(r[5:] for r in ledger.runs()) == (2, "not now")


# --- what the machine, or another version, can do to a ledger ---------------------------------------------------------


def test_a_damaged_ledger_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 400)
    with pytest.raises(Refusal, match="cannot be used") as refused, opened(tmp_path):
        pass
    assert refused.value.exit_code == 2
    with pytest.raises(Refusal, match="cannot be used"), reading(tmp_path):
        pass


@pytest.mark.parametrize(
    "change", ["ALTER TABLE stage ADD COLUMN extra TEXT", "UPDATE stage SET status='frozen'", "DROP TABLE timing"]
)
def test_a_ledger_of_another_version_is_refused_before_it_is_changed(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as ledger:
        ledger.begin("poc", "k")
    with connect(tmp_path) as db:
        db.execute(change)
    with pytest.raises(Refusal, match="another version"), reading(tmp_path):
        pass
    if "DROP" not in change:  # a missing table is made by opening
        with pytest.raises(Refusal, match="another version"), opened(tmp_path):
            pass


def test_a_ledger_that_is_just_being_made_holds_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch()
    with reading(tmp_path) as nothing:
        assert nothing is None


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%41b", "a b"])
def test_any_folder_name_can_be_read(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / name) as ledger:
        ledger.set_document("x", 1)
    with reading(tmp_path / name) as known:
        assert known is not None
        assert known.document("x") == 1


def test_a_state_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match="cannot be made"), opened(tmp_path / "file" / "demo"):
        pass
    (tmp_path / "demo" / "lock").mkdir(parents=True)
    with pytest.raises(Refusal, match="cannot be opened"), opened(tmp_path / "demo"):
        pass


@pytest.mark.parametrize("text", ["", '{"pid": 1', "[]", "\x00"])
def test_a_lock_that_does_not_say_who_holds_it_still_holds(tmp_path: Path, text: str) -> None:
    with opened(tmp_path):
        (tmp_path / "lock").write_text(text)
        with pytest.raises(Refusal, match="another run holds"), opened(tmp_path):
            pass


def test_a_full_disk_keeps_the_old_artifact_and_no_half_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "page.html"
    write_atomically(path, "old")

    def full(self, text, encoding):
        self.write_bytes(text[:3].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "a new page")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert path.read_bytes() == b"old"


def test_an_artifact_that_is_no_text_or_of_another_shape_is_not_believed(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.begin("load", "k")
        ledger.finish("load", FOUND, Status.DONE, 1.0)
        with pytest.raises(CheckFailed, match="another version"):
            ledger.artifact("load", Transfer)
        (tmp_path / "artifacts" / "load.json").write_bytes(b"\xff\xfe")
        with pytest.raises(CheckFailed, match="not what the ledger recorded"):
            ledger.artifact("load", Quality)


def test_another_users_ledger_is_refused_in_words(tmp_path: Path, monkeypatch) -> None:
    def forbidden(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    with pytest.raises(Refusal, match="cannot be read"), reading(tmp_path):
        pass
