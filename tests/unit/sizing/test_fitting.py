"""The fit behind the predictions: how rows are read, that it finds what made them, that it repeats."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferlift.sizing import roofline, speed
from inferlift.sizing.correction import FEATURES, factor, features
from inferlift.sizing.hardware import Layout

np = pytest.importorskip("numpy")  # of the development set: nothing that predicts needs it

from inferlift.speedfit import elsewhere, fitting, judging, regression, sample  # noqa: E402

COLUMNS = """id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_size,tp_size,
attention_dp_size,moe_tp_size,moe_ep_size,prefill_num_workers,prefill_tp_size,prefill_attention_dp_size,
decode_batch_size,decode_num_workers,decode_tp_size,decode_attention_dp_size,decode_moe_tp_size,decode_moe_ep_size,
silicon_ttft_ms,silicon_tpot_ms""".replace("\n", "").split(",")
PLAIN = {
    "backend": "vllm", "model_path": "meta-llama/Llama-3.1-70B", "system": "h100_sxm", "precision": "fp8",
    "mode": "agg", "isl": 1024, "osl": 1024, "batch_size": 4, "tp_size": 2, "attention_dp_size": 1, "moe_tp_size": 1,
    "moe_ep_size": 1, "silicon_ttft_ms": 121.3, "silicon_tpot_ms": 17.4,
    "silicon_data_source": "source_file=2026-04-06.csv; silicon_concurrency=4; measured=2026-01-14T00:00:00.000Z",
}  # fmt: skip


def read(folder: Path, *rows: dict[str, Any]) -> list[sample.Row]:
    file = folder / "sample.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow({"id": f"row_{number}_tp1_ep1", **PLAIN, **row})
    return sample.read(file)


def told(requests: int) -> str:
    return f"db-dump/2026-04-27; silicon_concurrency={requests}; measured=2026-01-14T00:00:00.000Z"


def test_a_row_is_read_with_its_units(tmp_path: Path) -> None:
    (row,) = read(tmp_path, {})
    assert (row.ttft_s, row.tpot_s) == pytest.approx((0.1213, 0.0174))
    assert (row.run.concurrency, row.run.layout.gpus, row.run.gpu.name) == (4.0, 2, "H100 SXM")
    assert row.run.month == pytest.approx(12.4, abs=0.1)
    # Little: 4 requests that stay 0.1213 + 1023 * 0.0174 s each
    assert row.tokens_per_s == pytest.approx(4 * 1024 / (0.1213 + 1023 * 0.0174))


@pytest.mark.parametrize(
    ("columns", "gpus", "ranks"),
    [
        ({"backend": "sglang", "tp_size": 64, "moe_tp_size": 8, "moe_ep_size": 8}, 8, 1),
        ({"backend": "trtllm", "tp_size": 1, "attention_dp_size": 16, "moe_tp_size": 4, "moe_ep_size": 4}, 4, 4),
        ({"backend": "vllm", "tp_size": 4, "attention_dp_size": 4, "moe_tp_size": 1, "moe_ep_size": 16}, 4, 4),
        ({"backend": "vllm", "tp_size": 2, "attention_dp_size": "", "moe_tp_size": 4, "moe_ep_size": 1}, 4, 2),
        ({"backend": "trtllm", "tp_size": 1, "attention_dp_size": 8, "moe_tp_size": 1, "moe_ep_size": 8}, 8, 8),
    ],
    ids=["tp 8 ep 8 as 64", "dp 4 ep 4 as 16", "vllm dp 4 as 16", "tp 2 within moe tp 4", "dp 8 ep 8"],
)
def test_layouts_that_the_exports_multiplied(tmp_path: Path, columns: dict[str, Any], gpus: int, ranks: int) -> None:
    (row,) = read(tmp_path, {"model_path": "MiniMaxAI/MiniMax-M2.5", "system": "b200_sxm", **columns})
    assert (row.run.layout.gpus, row.run.data_parallel) == (gpus, ranks)
    assert row.run.pools is None


def test_more_gpus_than_a_host_has_were_those_of_all_pools(tmp_path: Path) -> None:
    (row,) = read(
        tmp_path, {"model_path": "deepseek-ai/DeepSeek-R1", "system": "gb200", "precision": "fp4", "tp_size": 28}
    )
    assert row.run.pools is not None
    assert row.run.pools.decode_workers is None


def test_weights_beyond_the_memory_are_excluded(tmp_path: Path) -> None:
    fits, beyond = read(tmp_path, {}, {"tp_size": 1, "model_path": "deepseek-ai/DeepSeek-V3"})
    assert not fits.excluded
    assert beyond.excluded == "the weights are larger than the memory of the GPUs stated"


def test_prompts_that_came_out_of_a_cache_are_excluded(tmp_path: Path) -> None:
    """2 * 70e9 FLOP a token; 64 requests of 9216 tokens in 1.1 s are 7.5e16 FLOP/s, 19 times what two H100 have."""
    (row,) = read(
        tmp_path, {"isl": 8192, "silicon_data_source": told(64), "silicon_ttft_ms": 100, "silicon_tpot_ms": 1}
    )
    assert row.excluded == "more compute than the data sheet of the GPUs stated"


def test_what_contradicts_its_curve_is_excluded_and_no_more_than_that(tmp_path: Path) -> None:
    times = {4: 17.4, 16: 22.0, 64: 40.0, 256: 9.0}
    rows = read(tmp_path, *({"silicon_data_source": told(n), "silicon_tpot_ms": ms} for n, ms in times.items()))
    assert [row.run.concurrency for row in rows if row.excluded] == [256.0]


def test_drafting_is_open_unless_the_dump_tells_the_run_too(tmp_path: Path) -> None:
    deepseek = {
        "model_path": "deepseek-ai/DeepSeek-R1", "system": "gb200", "mode": "disagg", "batch_size": "", "tp_size": "",
        "attention_dp_size": "", "prefill_tp_size": 4, "decode_tp_size": 8, "decode_moe_ep_size": 8,
    }  # fmt: skip
    export = {**deepseek, "silicon_data_source": PLAIN["silicon_data_source"]}
    dump = {**deepseek, "silicon_data_source": told(4), "decode_num_workers": 3, "prefill_num_workers": 1}
    alone = read(tmp_path, export)[0]
    assert not alone.run.plain
    twice, _ = read(tmp_path, export, dump)
    assert twice.run.plain
    assert twice.run.pools is not None
    assert twice.run.pools.decode_workers == 3


def test_architectures_add_up() -> None:
    """Parameters computed from the configurations against what their makers publish, in billions."""
    published = {
        "deepseek-ai/DeepSeek-R1": (671, 37),
        "Qwen/Qwen3-235B-A22B-FP8": (235, 22),
        "Qwen/Qwen3-32B": (32.8, None),
        "meta-llama/Llama-3.1-405B": (405, None),
        "moonshotai/Kimi-K2.5": (1000, 32),
        "openai/gpt-oss-120b": (117, 5.1 + 0.58),  # theirs is without the embedding table
    }
    for name, (total, active) in published.items():
        row = sample.models()[name]
        assert int(row["parameters_total"]) / 1e9 == pytest.approx(total, rel=0.03)
        if active:
            assert int(row["parameters_active"]) / 1e9 == pytest.approx(active, rel=0.03)


def synthetic(count: int) -> list[sample.Row]:
    """Rows whose times the form itself made, from coefficients apart from the starts."""
    drawn = random.Random(1)
    made = {**fitting.FIXED, **{n: math.sqrt(s * h) for n, (s, _, h) in {**fitting.STARTS, **fitting.FIRST}.items()}}
    rows = []
    for i in range(count):
        name = drawn.choice(["meta-llama/Llama-3.1-70B", "Qwen/Qwen3-32B", "MiniMaxAI/MiniMax-M2.5"])
        run = roofline.Run(
            sample.model(name, drawn.choice(["fp8", "fp4"]), ""),
            sample._gpu(drawn.choice(["h100_sxm", "h200_sxm", "b200_sxm"])),
            Layout(drawn.choice([2, 4, 8])),
            drawn.choice(["vllm", "sglang", "trtllm"]),
            drawn.choice([1024.0, 8192.0]),
            1024.0,
            float(2 ** drawn.randint(0, 6)),
        )
        t = roofline.terms(run)
        tpot = roofline.tpot_s(t, made)
        rows.append(sample.Row(str(i), run, "h100_sxm", roofline.ttft_s(t, made, tpot), tpot, str(i), str(i)))
    return rows


@pytest.fixture(scope="module")
def small_fit() -> Iterator[tuple[list[sample.Row], dict[str, Any]]]:
    rows = synthetic(180)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TPOT_TREES", "TTFT_TREES"):
            patch.setattr(fitting, name, {"trees": 20, "rate": 0.1, "leaves": 4, "least": 6, "ridge": 4.0})
        yield rows, fitting.fit(rows[:120])


def test_the_fit_finds_what_made_the_times(small_fit: tuple[list[sample.Row], dict[str, Any]]) -> None:
    rows, made = small_fit
    errors = judging.judged(fitting.missed(rows[120:], made)).errors
    assert errors["tpot"] < 0.05
    assert errors["rate"] < 0.05


def test_the_same_rows_give_the_same_fit(small_fit: tuple[list[sample.Row], dict[str, Any]]) -> None:
    rows, made = small_fit
    assert json.dumps(fitting.fit(rows[:120])) == json.dumps(made)


def test_trees_say_the_same_when_read_back() -> None:
    """The fit's own sums against the pure Python reading of them, with thresholds on values that many rows share."""
    drawn = np.random.default_rng(1)
    x = np.stack([drawn.integers(0, 5, 400).astype(float), np.log(drawn.integers(1, 9, 400))], axis=1)
    y = 0.3 * (x[:, 0] > 2) - 0.2 * (x[:, 1] > 1)
    trees = regression.boost(x, y, np.ones(400), trees=40, rate=0.3, leaves=4, least=5, ridge=1.0)
    read_back = np.array([math.log(factor(json.loads(json.dumps(trees)), list(row))) for row in x])
    assert np.abs(read_back - y).max() < 0.02


def test_splits_keep_copies_together(tmp_path: Path) -> None:
    rows = [row for i in range(40) for row in read(tmp_path, *[{"silicon_tpot_ms": 10 + i}] * 3)]
    train, test = judging.split(rows, 1, keep_copies_together=True)
    assert train
    assert test
    assert not {row.copy for row in train} & {row.copy for row in test}
    assert judging.split(rows, 1)[0] == judging.split(rows, 1)[0] != judging.split(rows, 2)[0]


def test_widths_hold_nine_of_ten() -> None:
    rows = synthetic(1)
    drawn = random.Random(2)
    misses = [
        fitting.Miss(rows[0], "measured", (value, value, value), (0, 0, 0), (True,) * 3, (0, 0, 0))
        for value in (drawn.gauss(0, 0.2) for _ in range(2000))
    ]
    low, high = fitting.widths(misses)["tpot"]
    assert low == pytest.approx(math.exp(-1.645 * 0.2), rel=0.05)
    assert high == pytest.approx(math.exp(1.645 * 0.2), rel=0.05)


def test_the_shipped_fit_is_whole() -> None:
    shipped = speed.fitted()
    assert set(shipped["form"]) == set(fitting.FIXED) | set(fitting.STARTS) | set(fitting.FIRST)
    assert set(shipped["ranges"]) == set(fitting.BANDS)
    for name, (_, low, high) in {**fitting.STARTS, **fitting.FIRST}.items():
        assert low * 0.999 <= shipped["form"][name] <= high * 1.001
    (row,) = synthetic(1)
    t = roofline.terms(row.run)
    assert len(features(t, 1.0, 2.0, 1.0)) == len(FEATURES)
    assert shipped["rows"] > 5000
    assert sum(shipped["excluded"].values()) / (shipped["rows"] + sum(shipped["excluded"].values())) <= 0.02


def test_figures_published_elsewhere() -> None:
    """Output tokens a second of others' measurements, with what ships: within 25 % on average, and in range mostly."""
    errors = elsewhere.errors(speed.fitted())
    counted = [row for row in elsewhere.published() if row.counts]
    assert len(counted) >= 10
    assert sum(errors[row.id] for row in counted) / len(counted) <= 0.25
    ranges = [speed.of(speed.dated(row.run, speed.fitted()), speed.fitted()).tokens_per_s for row in counted]
    held = sum(r.low <= row.tokens_per_s <= r.high for r, row in zip(ranges, counted, strict=True))
    assert held / len(counted) >= 0.8
