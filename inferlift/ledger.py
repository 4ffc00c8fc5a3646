"""What is known about one (profile, target): stages, intents, approvals, timings, in one SQLite file.

An intent is written before an action and its outcome after it; whatever a kill leaves open is settled by the
next command before anything else happens. One exclusive lock: a second run is told who holds it since when.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import quote

from inferlift.artifacts import Artifact, Status
from inferlift.errors import CheckFailed, InferliftError, Refusal
from inferlift.lock import exclusive

A = TypeVar("A", bound=Artifact)

_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS stage (
  name TEXT PRIMARY KEY, key TEXT NOT NULL, status TEXT NOT NULL, artifact TEXT, digest TEXT,
  started TEXT, finished TEXT, seconds REAL, message TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS intent (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL, stage TEXT NOT NULL, key TEXT NOT NULL, action TEXT NOT NULL,
  subject TEXT NOT NULL, before TEXT NOT NULL, planned TEXT NOT NULL, started TEXT NOT NULL,
  outcome TEXT, result TEXT, finished TEXT, live INTEGER NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS document (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS timing (step TEXT NOT NULL, seconds REAL NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS run (
  id TEXT PRIMARY KEY, command TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
  finished TEXT, exit INTEGER, message TEXT);
COMMIT;
"""


@dataclass(frozen=True)
class StageRow:
    name: str
    key: str
    status: Status
    artifact: str | None
    digest: str | None
    started: str | None
    finished: str | None
    seconds: float | None
    message: str


@dataclass(frozen=True)
class Intent:
    """An action that was begun. `outcome` None: a kill left it open."""

    id: int
    stage: str
    key: str
    action: str
    subject: str
    before: dict[str, Any]
    planned: dict[str, Any]
    started: str
    outcome: str | None
    result: str | None


def digest(value: Any) -> str:
    """A stable digest of JSON-like content; models are dumped first. This is what keys are made of."""
    return hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Ledger:
    """One open, exclusively locked ledger. Use `Ledger.open` as a context manager."""

    def __init__(self, folder: Path, db: sqlite3.Connection, run: str) -> None:
        self.folder = folder
        self.run = run
        self._db = db
        # Called with "STAGE ACTION SUBJECT intent|outcome" right after each write: tests kill the process there.
        self.on_boundary: Callable[[str], None] = lambda name: None

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, *, command: str, declared_in: Path) -> Iterator[Ledger]:
        """Lock and open. Raises Refusal if another run holds the lock, or the name belongs to another file."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Refusal(
                f"{folder} cannot be made",
                why=error.strerror or str(error),
                next_command="set INFERLIFT_STATE to a folder that can be written",
            ) from None
        with exclusive(folder / "lock", command, since=now()):
            db = connect(folder)
            run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{token_hex(3)}"
            ledger = cls(folder, db, run)
            ledger._claim(declared_in)
            db.execute("INSERT INTO run VALUES (?,?,?,?,NULL,NULL,NULL)", (run, command, os.getpid(), now()))
            code, message = 0, ""
            try:
                yield ledger
            except BaseException as error:
                code = error.exit_code if isinstance(error, InferliftError) else 1
                message = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise
            finally:
                db.execute("UPDATE run SET finished=?, exit=?, message=? WHERE id=?", (now(), code, message, run))
                db.close()

    @classmethod
    def empty(cls, folder: Path) -> Ledger:
        """A ledger that knows nothing and is kept nowhere: for previews before the first run."""
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        db.executescript(_SCHEMA)
        return cls(folder, db, "none")

    # --- stages ----------------------------------------------------------------------------------------------

    def stage(self, name: str) -> StageRow | None:
        row = self._db.execute("SELECT * FROM stage WHERE name=?", (name,)).fetchone()
        return StageRow(row[0], row[1], Status(row[2]), *row[3:]) if row else None

    def begin(self, name: str, key: str) -> None:
        """The stage starts, or goes on: finished steps of an attempt with another key are forgotten."""
        self._db.execute("UPDATE intent SET live=0 WHERE stage=? AND key<>?", (name, key))
        self._db.execute(
            "INSERT INTO stage (name,key,status,started) VALUES (?,?,?,?) ON CONFLICT(name) DO UPDATE SET "
            "key=excluded.key, status=excluded.status, started=excluded.started, message=''",
            (name, key, Status.UNCERTAIN, now()),
        )

    def finish(self, name: str, artifact: Artifact | None, status: Status, seconds: float, message: str = "") -> None:
        """Write the artifact beside the ledger, then the row: a kill in between repeats the write."""
        path, fingerprint = None, None
        if artifact is not None:
            file = self.folder / "artifacts" / f"{name}.json"
            fingerprint = write_atomically(file, artifact.model_dump_json(indent=1))
            path = str(file.relative_to(self.folder))
        self._db.execute(
            "UPDATE stage SET status=?, artifact=COALESCE(?,artifact), digest=COALESCE(?,digest), finished=?,"
            " seconds=?, message=? WHERE name=?",
            (status, path, fingerprint, now(), seconds, message, name),
        )
        if status is not Status.HELD:  # what is held goes on, once approved, from what it measured
            self.forget_steps(name)

    def mark(self, name: str, status: Status, message: str = "") -> None:
        self._db.execute("UPDATE stage SET status=?, message=? WHERE name=?", (status, message, name))

    def drop(self, *names: str) -> None:
        """Forget stages: they will run again."""
        for name in names:
            self._db.execute("DELETE FROM stage WHERE name=?", (name,))
            self.forget_steps(name)

    def artifact(self, name: str, model: type[A]) -> A | None:
        """The stage's artifact, its digest checked. Raises CheckFailed where the file was changed."""
        row = self.stage(name)
        if row is None or row.artifact is None:
            return None
        path = self.folder / row.artifact
        task = "deploy" if name == "world" else name
        anew = f"./invoke {task} (with the same profile) makes it anew"
        data = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(data).hexdigest() != row.digest:
            raise CheckFailed(
                f"the artifact of {name} is not what the ledger recorded",
                why=f"{path} was changed or removed",
                next_command=anew,
            )
        try:
            return model.model_validate_json(data)
        except ValueError as error:
            raise CheckFailed(
                f"the artifact of {name} was written by another version of inferlift",
                why=f"{path}: {str(error).splitlines()[0]}",
                next_command=anew,
            ) from None

    # --- intents ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def intent(
        self, stage: str, key: str, action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]
    ) -> Iterator[Callable[[str], None]]:
        """Intent before, outcome after. The yielded function takes the result (JSON) to be kept with the outcome."""
        cursor = self._db.execute(
            "INSERT INTO intent (run,stage,key,action,subject,before,planned,started) VALUES (?,?,?,?,?,?,?,?)",
            (
                self.run,
                stage,
                key,
                action,
                subject,
                json.dumps(_plain(before)),
                json.dumps(_plain(planned)),
                now(),
            ),
        )
        number = int(cursor.lastrowid or 0)
        self.on_boundary(f"{stage} {action} {subject} intent".replace("  ", " "))
        kept: list[str] = []
        try:
            yield kept.append
        except Exception as error:
            # An error that came back is an outcome; only silence (a kill, an interrupt) leaves the intent open.
            if not isinstance(error, InferliftError) or error.exit_code != 130:
                self.close_intent(number, f"failed: {str(error).splitlines()[0] if str(error) else error!r}")
            raise
        self.close_intent(number, "done", kept[-1] if kept else None)
        self.on_boundary(f"{stage} {action} {subject} outcome".replace("  ", " "))

    def close_intent(self, number: int, outcome: str, result: str | None = None) -> None:
        self._db.execute(
            "UPDATE intent SET outcome=?, result=?, finished=? WHERE id=?", (outcome, result, now(), number)
        )

    def open_intents(self) -> list[Intent]:
        return self._intents("outcome IS NULL")

    def finished_step(self, stage: str, key: str, action: str, subject: str) -> Intent | None:
        """The outcome of a step in the attempt that goes on: it need not be done twice."""
        found = self._intents(
            "outcome='done' AND live=1 AND stage=? AND key=? AND action=? AND subject=?",
            stage,
            key,
            action,
            subject,
        )
        return found[-1] if found else None

    def forget_steps(self, stage: str) -> None:
        self._db.execute("UPDATE intent SET live=0 WHERE stage=?", (stage,))

    def intents(self) -> list[Intent]:
        return self._intents("1")

    # --- documents, timings, runs ----------------------------------------------------------------------------

    def document(self, name: str) -> Any:
        row = self._db.execute("SELECT body FROM document WHERE name=?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def set_document(self, name: str, body: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO document VALUES (?,?)", (name, json.dumps(_plain(body))))

    def drop_document(self, name: str) -> None:
        self._db.execute("DELETE FROM document WHERE name=?", (name,))

    def timed(self, step: str, seconds: float) -> None:
        self._db.execute("INSERT INTO timing VALUES (?,?,?)", (step, seconds, now()))

    def expected_seconds(self, step: str) -> float | None:
        """Median of the last five; None when the step never ran here."""
        rows = [
            r[0] for r in self._db.execute("SELECT seconds FROM timing WHERE step=? ORDER BY at DESC LIMIT 5", (step,))
        ]
        return sorted(rows)[len(rows) // 2] if rows else None

    def runs(self) -> list[tuple[Any, ...]]:
        return self._db.execute("SELECT * FROM run ORDER BY started").fetchall()

    # --- helpers ---------------------------------------------------------------------------------------------

    def _claim(self, declared_in: Path) -> None:
        owner = self.document("declared_in")
        if owner is None:
            self.set_document("declared_in", str(declared_in))
        elif owner != str(declared_in) and Path(owner).resolve() != declared_in.resolve():
            raise Refusal(
                f"the profile name of {declared_in} already belongs to {owner}",
                why="one name is one migration; two files must not steer the same hosts",
                next_command="give the new profile another `name:`",
            )

    def _intents(self, where: str, *values: str) -> list[Intent]:
        rows = self._db.execute(
            "SELECT id,stage,key,action,subject,before,planned,started,outcome,result FROM intent "
            f"WHERE {where} ORDER BY id",
            values,
        )
        return [Intent(r[0], r[1], r[2], r[3], r[4], json.loads(r[5]), json.loads(r[6]), *r[7:]) for r in rows]


def connect(folder: Path, *, read_only: bool = False) -> sqlite3.Connection:
    path = folder / "ledger.sqlite"
    try:
        if read_only:
            address = f"file:{quote(str(path))}?mode=ro"
            db = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        else:
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            path.chmod(0o600)
            db.executescript(_SCHEMA)
        _know(db, path)
    except (sqlite3.Error, OSError) as error:
        raise Refusal(
            f"the ledger {path} cannot be used",
            why=str(error),
            next_command=f"free space or mend its rights; a damaged one: move {path} away and deploy again",
        ) from None
    return db


def _know(db: sqlite3.Connection, path: Path) -> None:
    """Raises Refusal where another version of the tool wrote columns or states that this one does not know."""
    if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        return  # another run is about to make it
    wanted = sqlite3.connect(":memory:")
    wanted.executescript(_SCHEMA)
    for table in ("stage", "intent", "document", "timing", "run"):
        ask = f"SELECT name FROM pragma_table_info('{table}')"
        here, known = [r[0] for r in db.execute(ask)], [r[0] for r in wanted.execute(ask)]
        if here != known:
            raise _other_version(path, f"its table {table} has {', '.join(here) or 'no columns'}")
    wanted.close()
    if odd := {r[0] for r in db.execute("SELECT DISTINCT status FROM stage")} - set(Status):
        raise _other_version(path, f"a stage is {', '.join(sorted(map(str, odd)))}")


def _other_version(path: Path, why: str) -> Refusal:
    return Refusal(
        f"the ledger {path} was written by another version of inferlift",
        why=why,
        next_command="use the version that wrote it, or another INFERLIFT_STATE",
    )


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[Ledger | None]:
    """A ledger for looking only, without the lock; None where there is none yet."""
    try:
        there = (folder / "ledger.sqlite").exists()
    except OSError as error:
        raise Refusal(
            f"{folder} cannot be read",
            why=error.strerror or str(error),
            next_command="run it as the user who deployed (root)",
        ) from None
    if not there:
        yield None
        return
    db = connect(folder, read_only=True)
    try:
        made = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        yield Ledger(folder, db, "read") if made else None
    finally:
        db.close()


def write_atomically(path: Path, text: str) -> str:
    """Write by rename, so that a reader or a kill never sees half of it. Returns the sha256 of the text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk keeps no half file
        raise
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    return value
