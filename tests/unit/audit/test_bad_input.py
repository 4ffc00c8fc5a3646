"""Bad input (bad_cases.yaml): counted, shown and read on, or refused; never an exception, never a silent drop."""

from __future__ import annotations

import bz2
import gzip
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
import zstandard

from inferlift.audit import audit, blocks
from inferlift.errors import DeclarationError

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "bad_cases.yaml").read_text(encoding="utf-8"))
LINE = '10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "POST /api/chat HTTP/1.1" 200 9 "-" "-" rt=0.100'
PACK: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zstandard.compress}


def content(case: dict[str, Any]) -> bytes:
    whole = b""
    for part in case["parts"]:
        if isinstance(part, dict):
            whole += made(part)
            continue
        text, times = part if isinstance(part, list) else (part, 1)
        whole += text.replace("LINE", LINE).encode("latin-1") * times
    whole = PACK[case["pack"]](whole) if "pack" in case else whole
    return whole[: int(len(whole) * case["cut"])] if "cut" in case else whole


def made(part: dict[str, Any]) -> bytes:
    if "utf16" in part:
        return str(part["utf16"]).replace("LINE", LINE).encode("utf-16-le")
    if "random" in part:
        return random.Random(1).randbytes(part["random"]).hex().encode()
    noise = random.Random(2)
    words = ("".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(part["routes"]))
    return "".join(LINE.replace("/api/chat", f"/api/chat/{word}/{word}") + "\n" for word in words).encode()


def meddled(path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something happens to the file once its first block has been read."""
    monkeypatch.setattr(blocks, "BLOCK", 2000)
    whole, seen = blocks._block, []

    def block(data: bytes) -> Any:
        if not seen and what == "grow":
            with path.open("a", encoding="utf-8") as file:
                file.write(LINE + "\n")
        elif not seen and what == "rotate":
            path.rename(path.with_suffix(".1"))
            path.write_text(LINE + "\n", encoding="utf-8")
        elif not seen:
            with path.open("r+b") as file:
                file.truncate(0)
        seen.append(what)
        return whole(data)

    monkeypatch.setattr(blocks, "_block", block)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(content(case))
    if "during" in case:
        meddled(path, case["during"], monkeypatch)
    routes = ["/api/chat"] if "routes" not in case else None
    if "refused" in case:
        with pytest.raises(DeclarationError) as error:
            audit([path], routes=routes)
        assert case["refused"] in str(error.value)
        assert error.value.exit_code == 2
        return
    evidence = audit([path], routes=routes, zone=case.get("zone", "UTC"))
    told, quality = evidence.model_dump(), evidence.quality
    assert quality.lines == quality.understood + quality.refused
    assert (quality.refused == 0) == (not quality.examples)
    for dotted, wanted in case.get("expect", {}).items():
        found = told
        for part in dotted.split("."):
            found = found[part]
        assert (found.isoformat() if isinstance(found, datetime) else found) == wanted, dotted
    assert evidence.n >= case.get("least", 0)
    assert evidence.n < case.get("less", 10**9)
    assert len(evidence.routes) <= case.get("routes", 10**9)
    for key, texts in (("example", quality.examples), ("note", quality.notes), ("question", quality.questions)):
        assert not case.get(key) or any(case[key] in text for text in texts), (key, texts)
    if "trigger" in case:
        name, said = case["trigger"]
        assert said in next(trigger.why for trigger in evidence.triggers if trigger.name == name)
    assert "SECRET" not in evidence.model_dump_json()


def test_lines_are_kept_apart_from_blocks() -> None:
    """A block's part knows its own refused rows."""
    block = blocks.Block(pl.Series(["a", "b", "c"]), {2: "why"})
    assert block.part(1, 3, next(iter(blocks_formats()))).refused == {1: "why"}


def blocks_formats() -> Any:
    from inferlift.audit.formats import formats

    return formats()
