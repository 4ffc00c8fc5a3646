"""The quality gate: prompts with checkable answers, asked greedily, judged by rules and not by taste."""

from __future__ import annotations

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
from inferlift.load.target import Target, request_body
from inferlift.load.wire import ask

CHECKS = ("exact", "text", "contains", "regex", "number")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Case:
    """`check`: exact; text (case, accents' form, punctuation and white space apart); contains (as text, whole
    words); regex (searched); number (the first number of the reply, within `tolerance`, relative)."""

    prompt: str
    check: str
    answer: str | float
    max_tokens: int = 12
    tolerance: float = 0.0

    def right(self, reply: str) -> bool:
        if self.check == "number":
            found = NUMBER.search(reply)
            wanted = float(self.answer)
            return found is not None and math.isclose(
                float(found.group().replace(",", "")), wanted, rel_tol=self.tolerance, abs_tol=1e-9
            )
        answer = str(self.answer)
        if self.check == "exact":
            return reply == answer
        if self.check == "regex":
            return re.search(answer, reply) is not None
        if self.check == "text":
            return normal(reply) == normal(answer)
        return f" {normal(answer)} " in f" {normal(reply)} "


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
    cases = [_case(line, f"{path}:{k}") for k, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise DeclarationError(
            f"{path} holds no quality prompt", why='expected lines like {"prompt": ..., "answer": ...}'
        )
    return tuple(cases)


def assess(target: Target, cases: Sequence[Case], users: int = 2, say: Callable[[str], None] | None = None) -> Quality:
    """Ask every case once, greedily. A case without an answer (an error of the wire, asked twice) is named and
    not counted: what was not answered says nothing about quality."""
    correct = answered = 0
    wrong: list[str] = []
    with ThreadPoolExecutor(max_workers=max(1, users)) as pool:
        try:
            for k, (case, reply) in enumerate(zip(cases, pool.map(lambda c: _ask(target, c), cases), strict=True), 1):
                text, problem = reply
                if problem is not None:
                    wrong.append(f"{case.prompt!r}: not answered ({problem})")
                else:
                    answered += 1
                    if case.right(text):
                        correct += 1
                    else:
                        wrong.append(f"{case.prompt!r}: {text[:60]!r}, expected {case.answer!r}")
                if say is not None and (k % 5 == 0 or k == len(cases)):
                    say(f"quality: {k}/{len(cases)} asked, {correct} right")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Quality(n=answered, correct=correct, share=correct / answered if answered else None, wrong=tuple(wrong))


def _ask(target: Target, case: Case) -> tuple[str, str | None]:
    body = request_body(case.prompt, case.max_tokens, model=target.model)
    for _ in range(2):
        reply = ask(target, body)
        if reply.error is None or (reply.error == "content" and reply.finish_reason is not None):
            return reply.text.strip(), None  # an empty answer is an answer, and a wrong one
    return "", f"{reply.error}: {reply.detail}"


def _case(line: str, place: str) -> Case:
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
    case = Case(**{"check": "contains", **raw})
    if case.check not in CHECKS:
        raise DeclarationError(f"{place}: unknown check {case.check!r}", why=f"known: {', '.join(CHECKS)}")
    try:
        if case.check == "number":
            float(case.answer)
        elif case.check == "regex":
            re.compile(str(case.answer))
        elif not isinstance(case.answer, str):
            raise ValueError("the answer of this check is a text")
        if case.check in ("text", "contains") and not normal(str(case.answer)):
            raise ValueError("an answer without a letter or digit fits every reply")
        if not isinstance(case.max_tokens, int) or case.max_tokens < 1:
            raise ValueError("max_tokens is a whole number of at least 1")
    except (ValueError, TypeError, re.error) as error:
        raise DeclarationError(f"{place}: {error}") from None
    return case
