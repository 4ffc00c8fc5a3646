"""The quality gate: prompts with checkable answers, asked greedily, judged by rules and not by taste."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import string
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlift.artifacts import Quality
from inferlift.errors import DeclarationError
from inferlift.load import schema
from inferlift.load.figures import Change, share_range
from inferlift.load.hidden import hider
from inferlift.load.protocols import Checked, Embeddings, Protocol
from inferlift.load.protocols.openai import embedding
from inferlift.load.target import Target, request_body
from inferlift.load.wire import ask

CHECKS = ("exact", "text", "contains", "regex", "number", "label", "schema", "embedding")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
CLOSE = 0.05  # cosine distance of an embedding, where the case gives no tolerance


@dataclass(frozen=True)
class Case:
    """`check`: exact; text (case, accents' form, punctuation and white space apart); contains (as text, whole
    words); regex (searched); number (the first number of the reply, within `tolerance`, relative); label (of
    `labels` the one that the reply names first); schema (the reply holds JSON that `answer`, a JSON schema, allows);
    embedding (the vector of `prompt` within `tolerance` of `answer`, by cosine distance)."""

    prompt: str
    check: str
    answer: Any
    max_tokens: int = 12
    tolerance: float = 0.0
    labels: tuple[str, ...] = ()
    picture: str = ""  # path of the picture that `prompt` asks about

    def right(self, reply: str) -> bool:
        """Whether this text is a right answer; an embedding's reply is its vector as JSON."""
        if self.check == "number":
            found = NUMBER.search(reply)
            wanted = float(self.answer)
            return found is not None and math.isclose(
                float(found.group().replace(",", "")), wanted, rel_tol=self.tolerance, abs_tol=1e-9
            )
        if self.check == "schema":
            return schema.fits(reply, self.answer)
        if self.check == "embedding":
            return distance(json.loads(reply), self.answer) <= (self.tolerance or CLOSE)
        answer = str(self.answer)
        if self.check == "exact":
            return reply == answer
        if self.check == "regex":
            return re.search(answer, reply) is not None
        if self.check == "text":
            return normal(reply) == normal(answer)
        if self.check == "label":
            return _first_label(reply, self.labels) == answer
        return f" {normal(answer)} " in f" {normal(reply)} "


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Cosine distance, 0 (same direction) to 2; vectors of different length are as far as can be."""
    if len(a) != len(b):
        return 2.0
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    size = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return 1 - dot / size if size else 2.0


def normal(text: str) -> str:
    """Case, Unicode form, punctuation and runs of white space make no difference."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(" " if c in string.punctuation else c for c in folded).split())


def load_cases(path: Path) -> tuple[Case, ...]:
    """Cases of a JSON-lines file. Raises DeclarationError with file and line of what is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"the quality prompts {path} cannot be read", why=str(error)) from None
    cases = [case_of(line, f"{path}:{k}") for k, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise DeclarationError(
            f"{path} holds no quality prompt", why='expected lines like {"prompt": ..., "answer": ...}'
        )
    return tuple(cases)


def assess(
    target: Target,
    cases: Sequence[Case],
    users: int = 2,
    say: Callable[[str], None] | None = None,
    *,
    protocol: Protocol | None = None,
) -> Quality:
    """Ask every case once, greedily; where a protocol is given, its request k is that of case k.

    A case without an answer (an error of the wire, asked twice) is named and not counted: what was not answered says
    nothing about quality.
    """
    correct = answered = 0
    kinds: dict[str, tuple[int, int]] = {}
    wrong: list[str] = []
    hide = hider(target)
    with ThreadPoolExecutor(max_workers=max(1, users)) as pool:
        try:
            for k, (case, reply) in enumerate(
                zip(cases, pool.map(lambda k: _ask(target, cases[k], k, protocol), range(len(cases))), strict=True), 1
            ):
                text, problem = reply
                if problem is not None:
                    wrong.append(f"{case.prompt!r}: not answered ({problem})")
                else:
                    answered += 1
                    good = case.right(text)
                    before = kinds.get(case.check, (0, 0))
                    kinds[case.check] = (before[0] + good, before[1] + 1)
                    if good:
                        correct += 1
                    else:
                        wrong.append(f"{case.prompt!r}: {hide(text)[:60]!r}, expected {case.answer!r}")
                if say is not None and (k % 5 == 0 or k == len(cases)):
                    say(f"quality: {k}/{len(cases)} asked, {correct} right")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Quality(
        n=answered, correct=correct, share=correct / answered if answered else None, wrong=tuple(wrong),
        range=share_range(correct, answered), kinds=kinds,
    )  # fmt: skip


def change(before: Quality, after: Quality) -> Change | None:
    """How much the share of right answers moved, with its 95 % range (Newcombe 1998, method 10); None: unknown."""
    if before.share is None or after.share is None or before.range is None or after.range is None:
        return None
    value = after.share - before.share
    low = math.hypot(after.share - after.range[0], before.range[1] - before.share)
    high = math.hypot(after.range[1] - after.share, before.share - before.range[0])
    return Change(value, value - low, value + high)


def _ask(target: Target, case: Case, k: int, protocol: Protocol | None) -> tuple[str, str | None]:
    if case.check == "embedding":
        return _vector(target, case)
    body = protocol.body(k) if protocol else request_body(case.prompt, case.max_tokens, model=target.model)
    for _ in range(2):
        reply = ask(target, body, answer=protocol.answer() if protocol else None)
        if reply.error is None or (reply.error == "content" and reply.finish_reason is not None):
            return reply.text.strip(), None  # an empty answer is an answer, and a wrong one
    return "", f"{reply.error}: {reply.detail}"


def _vector(target: Target, case: Case) -> tuple[str, str | None]:
    asked = Embeddings([case.prompt], model=target.model)
    route = target.route.removesuffix("chat/completions").removesuffix("completions")
    where = dataclasses.replace(target, route=f"{route}embeddings" if route.endswith("/") else route)
    kept: list[bytes] = []
    reply = ask(where, asked.body(0), answer=Checked(lambda data: kept.append(data)))
    if reply.error is not None:
        return "", f"{reply.error}: {reply.detail}"
    try:
        return json.dumps(embedding(json.loads(kept[0]))), None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return "", f"content: no embedding ({type(error).__name__})"


def _first_label(reply: str, labels: Sequence[str]) -> str | None:
    """The label named first, as whole words; the longer one where two begin at the same place."""
    text = f" {normal(reply)} "
    places = [(text.find(f" {normal(label)} "), -len(label), label) for label in labels]
    found = sorted(place for place in places if place[0] >= 0)
    return found[0][2] if found else None


def case_of(line: str, place: str) -> Case:
    """A line of such a file. Raises DeclarationError that names `place`."""
    try:
        raw: Any = json.loads(line)
    except ValueError as error:
        raise DeclarationError(f"{place}: not JSON", why=str(error)) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("prompt"), str) or "answer" not in raw:
        raise DeclarationError(f"{place}: a case needs a prompt and an answer")
    unknown = set(raw) - set(Case.__dataclass_fields__)
    if unknown:
        raise DeclarationError(
            f"{place}: unknown key {sorted(unknown)[0]!r}", why=f"known: {', '.join(Case.__dataclass_fields__)}"
        )
    case = Case(**{"check": "contains", **raw, "labels": tuple(raw.get("labels", ()))})
    if case.check not in CHECKS:
        raise DeclarationError(f"{place}: unknown check {case.check!r}", why=f"known: {', '.join(CHECKS)}")
    try:
        if case.check == "number":
            float(case.answer)
        elif case.check == "regex":
            re.compile(str(case.answer))
        elif case.check == "schema":
            schema.check(case.answer)
        elif case.check == "embedding":
            if not isinstance(case.answer, list) or not all(isinstance(x, int | float) for x in case.answer):
                raise ValueError("the answer of this check is a list of numbers")
        elif not isinstance(case.answer, str):
            raise ValueError("the answer of this check is a text")
        if case.check == "label" and case.answer not in case.labels:
            raise ValueError("the answer of a label check is one of its labels")
        if case.check in ("text", "contains") and not normal(str(case.answer)):
            raise ValueError("an answer without a letter or digit fits every reply")
        if not isinstance(case.max_tokens, int) or case.max_tokens < 1:
            raise ValueError("max_tokens is a whole number of at least 1")
    except (ValueError, TypeError, re.error) as error:
        raise DeclarationError(f"{place}: {error}") from None
    return case
