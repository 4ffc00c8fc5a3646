"""Samples as lines and as columns: nothing is dropped, at any number of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlift.load import columns
from inferlift.load.plan import LoadPlan
from inferlift.load.result import Taken
from inferlift.load.samples import ERRORS, Sample, SampleWriter, line, read_samples
from inferlift.load.target import Target

optional = st.none() | st.floats(0, 1e6)
whole = st.none() | st.integers(0, 10**6)


@given(
    st.builds(
        Sample,
        i=st.integers(0, 10**7),
        at_s=st.floats(0, 1e5),
        delay_ms=st.floats(0, 1e5),
        connect_ms=optional,
        ttft_ms=optional,
        first_content_ms=optional,
        last_token_ms=optional,
        total_ms=optional,
        status=whole,
        error=st.none() | st.sampled_from(ERRORS),
        detail=st.text(),
        tokens=whole,
        prompt_tokens=whole,
        chunks=st.integers(0, 9999),
        retried=st.booleans(),
    )
)
def test_a_line_is_json_and_holds_the_sample(sample: Sample) -> None:
    text = line(sample)
    assert text.endswith("}\n")
    found = json.loads(text)
    assert found["i"] == sample.i
    assert found.get("error") == sample.error
    assert found.get("tokens") == sample.tokens
    assert found.get("retried", False) == sample.retried
    if sample.error is not None:
        assert found["detail"] == sample.detail
    for name in ("ttft_ms", "total_ms", "connect_ms"):
        assert found.get(name) == (
            None if getattr(sample, name) is None else pytest.approx(getattr(sample, name), abs=6e-4)
        )


def test_columns_hold_every_sample(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    writer = SampleWriter(path, {"label": "x"})
    for i in range(1000):
        writer.write(Sample(i=i, at_s=i / 10, total_ms=float(i), tokens=i % 5 or None, status=200,
                            error="timeout" if i % 10 == 0 else None))  # fmt: skip
    writer.close()
    with path.open("a") as file:
        file.write('{"i": 1000, "at_s"')  # killed while writing
    assert columns.write(path, tmp_path / "s.npz") == 1000
    found = columns.read(tmp_path / "s.npz")
    assert list(found["i"]) == list(range(1000))
    assert found["at_s"][7] == 0.7
    assert math.isnan(found["ttft_ms"][3])
    assert (found["tokens"][5], found["tokens"][6]) == (-1, 1)
    assert ERRORS[found["error"][10]] == "timeout"
    assert found["error"][11] == -1


def test_one_request_more_than_a_million_is_counted(tmp_path: Path) -> None:
    """Memory stays at a few bytes a request, and each one is in the figures."""
    n = 1_000_001
    taken = Taken(LoadPlan(Target("x"), 1, ["a"], tmp_path / "s", users=1), SampleWriter(tmp_path / "s", {}))
    sample = Sample(i=0, at_s=0.0, total_ms=1.0, ttft_ms=0.5, last_token_ms=0.9, tokens=2)
    for i in range(n):
        sample.total_ms = float(i)
        taken.count(sample)
    assert (taken.samples, taken.ok, taken.tokens) == (n, n, 2 * n)
    assert len(taken.columns["total"]) == n
    assert max(taken.columns["total"]) == n - 1
    assert sum(c.itemsize * len(c) for c in taken.columns.values()) < 40 * n


def test_lines_are_read_back(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path / "s", {"a": 1})
    writer.write(Sample(i=3, at_s=1.0, detail="\u2028\n", error="reset"))
    writer.close()
    assert [(s["i"], s["error"], s["detail"]) for s in read_samples(tmp_path / "s")] == [(3, "reset", "\u2028\n")]
