"""What a stage is, and what it is given.

A stage previews, runs, verifies (reads the world apart from what changed it), settles an intent that a kill left
open, and undoes. It reads earlier artifacts from the context and returns its own; nothing else passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from inferlift.artifacts import Artifact, Check, Cutover, Status, World
from inferlift.errors import CheckFailed, Refusal
from inferlift.ledger import Intent, Ledger

if TYPE_CHECKING:
    from inferlift.profile import Profile
    from inferlift.progress import Progress
    from inferlift.provision import Tools

A = TypeVar("A", bound=Artifact)
Settled = Literal["done", "absent", "adopted", "unknown"]


@dataclass(frozen=True)
class Options:
    """What the operator asked for on the command line."""

    load_origin: bool = False
    refresh: bool = False
    locked: Path | None = None
    explicit: bool = False  # this stage was asked for by name


@dataclass
class Context:
    """One run of one migration."""

    root: Path  # the project: playbooks, stacks, templates, profiles
    folder: Path  # this migration's own folder
    run_folder: Path  # logs and samples of this run
    owner: str  # label value prefix of everything this migration makes
    profile: Profile
    profile_path: Path
    ledger: Ledger
    progress: Progress
    options: Options = field(default_factory=Options)
    stage: str = ""
    key: str = ""
    drift: Callable[[], list[Check]] | None = None  # what is not as it was left; None where nobody can look
    _tools: Tools | None = None
    _finding_tools: Lock = field(default_factory=Lock)
    _probes: dict[str, Future[Any]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32, "probe"))

    def say(self, line: str) -> None:
        self.progress.say(line)

    def announce(self, line: str) -> None:
        """What begins and takes minutes: never left out, however soon after another line."""
        self.progress.say(line, always=True)

    # --- artifacts -------------------------------------------------------------------------------------------

    def need(self, stage: str, model: type[A]) -> A:
        """An earlier stage's artifact. Raises Refusal naming the stage to run first."""
        found = self.ledger.artifact(stage, model)
        if found is None:
            raise Refusal(
                f"{self.stage or 'this'} needs the result of {stage}, which has not run",
                next_command=f"./invoke {self._task(stage)} --profile {self.profile.name}",
            )
        return found

    def _task(self, stage: str) -> str:
        if stage != "world":
            return stage
        return "lab up" if self.profile.raised is not None else "deploy --to audit"

    def optional(self, stage: str, model: type[A]) -> A | None:
        return self.ledger.artifact(stage, model)

    def world(self) -> World | None:
        return self.optional("world", World)

    # --- steps: an intent before, an outcome after ---------------------------------------------------------

    def step(
        self,
        action: str,
        do: Callable[[], A],
        model: type[A],
        *,
        subject: str = "",
        before: dict[str, Any] | None = None,
        planned: dict[str, Any] | None = None,
    ) -> A:
        """Do it once: in an attempt that goes on after a kill, a finished step gives its recorded result."""
        known = self.ledger.finished_step(self.stage, self.key, action, subject)
        if known is not None and known.result is not None:
            return model.model_validate_json(known.result)
        with self.ledger.intent(self.stage, self.key, action, subject, before or {}, planned or {}) as keep:
            result = do()
            keep(result.model_dump_json())
        return result

    @contextmanager
    def intent(self, action: str, subject: str, before: dict[str, Any], planned: dict[str, Any]) -> Iterator[None]:
        """An intent without a result of its own, for engines that drive several writes."""
        with self.ledger.intent(self.stage, self.key, action, subject, before, planned):
            yield

    # --- probes: several stages look at the same thing, it is looked at once --------------------------------

    def start_probe(self, name: str, look: Callable[[], list[Check]]) -> None:
        """Begin to look; `probe` collects."""
        if name not in self._probes:
            self._probes[name] = self._pool.submit(look)

    def probe(self, name: str, look: Callable[[], list[Check]]) -> list[Check]:
        self.start_probe(name, look)
        found: list[Check] = self._probes[name].result()
        return found

    def forget_probes(self) -> None:
        self._probes.clear()

    def close(self) -> None:
        """What nobody collects any more is not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def overruled(self, stage: str, why: str) -> bool:
        """Did someone approve just this, with a reason? An approval of other numbers does not count."""
        given = (self.ledger.document("approved") or {}).get(stage)
        return isinstance(given, dict) and why in (given.get("overruled"), *given.get("earlier", ()))

    # --- places ---------------------------------------------------------------------------------------------

    def path(self, *parts: str) -> Path:
        """A private folder of this migration, made when first asked for."""
        path = self.folder.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def tools(self) -> Tools:
        """The engine and the host image, made if they are missing (a progress line each); looked for once a run."""
        from inferlift import toolchain
        from inferlift.provision import Tools

        with self._finding_tools:
            if self._tools is None:
                lab = [] if self.profile.lab is None else ["debian-packages", "host-image"]
                toolchain.ensure(["pulumi", *lab], self.announce)
                self._tools = Tools(
                    pulumi_bin=toolchain.pulumi_bin() / "pulumi",
                    python_plugin=None,
                    host_image=toolchain.host_image(),
                    podman_env=toolchain.podman_env(),
                )
            return self._tools


class Stage(ABC):
    """Subclasses say what they are in `name`, what they depend on in `key`, and do one thing in `run`."""

    name: str
    artifact: type[Artifact]
    approval: Literal["none", "first", "second"] = "none"

    @abstractmethod
    def key(self, ctx: Context) -> dict[str, Any]:
        """What the result depends on, by meaning; its digest decides whether the stage runs again."""

    @abstractmethod
    def preview(self, ctx: Context) -> list[str]:
        """What `run` would do, in lines; changes nothing."""

    @abstractmethod
    def run(self, ctx: Context) -> Artifact:
        """Do it. Repeatable: it may have been killed anywhere before."""

    @abstractmethod
    def verify(self, ctx: Context, artifact: Artifact) -> list[Check]:
        """Is it still true? Reads the world."""

    def repair(self, ctx: Context, artifact: Artifact, findings: list[Check]) -> Artifact:
        """Make it true again; by default by running again."""
        return self.run(ctx)

    def applicable(self, ctx: Context) -> str | None:
        """None, or why this stage makes no sense for this workload."""
        return None

    def settle(self, ctx: Context, intent: Intent) -> Settled:
        """What became of an action with an unknown outcome. Every run here repeats what is absent."""
        return "absent"

    def undo(self, ctx: Context) -> list[str]:
        """Take back what this stage did; returns lines that say so."""
        return []

    def summary(self, artifact: Artifact) -> str:
        """One line for people."""
        return ""


def moved(ledger: Ledger) -> bool:
    """Are users on the fleet, or may they be: a switch that stopped half-way left some there."""
    row = ledger.stage("switch")
    if row is None:
        return False
    if row.status is not Status.DONE:
        kept = ledger.document("switch_steps") or {"steps": []}
        return not kept.get("back") and any(step["weight"] > 0 for step in kept["steps"])
    try:
        cutover = ledger.artifact("switch", Cutover)
    except CheckFailed:
        return True  # it was done, and nobody can say that they left again
    return cutover is not None and not cutover.rolled_back


def all_back(ledger: Ledger) -> None:
    """Every user is on the old side again: the attempt's steps stay for the report, but nobody is there, and no step
    waits for an approval any more."""
    ledger.drop_document("waiting")
    if (kept := ledger.document("switch_steps")) is not None:
        ledger.set_document("switch_steps", {**kept, "back": True})
