"""The silicon sample as runs with measured times: which columns mean what, which rows can't be as stated."""

from __future__ import annotations

import csv
import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from inferlift.profile import Model
from inferlift.sizing.hardware import Gpu, Layout, gpus
from inferlift.sizing.roofline import Pools, Run, terms

SYSTEMS = {
    "h100_sxm": "H100 SXM",
    "h200_sxm": "H200 SXM",
    "b200_sxm": "B200 SXM",
    "b300_sxm": "B300 SXM",
    "gb200": "GB200",
    "gb300": "GB300",
}
_FORMATS = {
    "": ("bf16", 16.0),
    "bf16": ("bf16", 16.0),
    "fp8": ("fp8", 8.0),
    "fp4": ("nvfp4", 4.5),
    "int4": ("w4a16", 4.25),
}
_DRAFTING = "DeepSeek"  # the models of the sample whose own drafting layer the benches also switch on
_NODE = 8  # GPUs of the largest host; more of them "in one copy" were the GPUs of all pools together
_DISORDER = 1.5  # a step can't be this much slower than with more requests, all else as stated the same


@dataclass(frozen=True)
class Row:
    id: str
    run: Run
    system: str
    ttft_s: float
    tpot_s: float
    copy: str  # the same for rows that tell one measurement again
    curve: str  # the same for rows that differ in requests or release only; "": pools, whose rows leave much open
    excluded: str = ""  # why; "" for rows that count

    @property
    def tokens_per_s(self) -> float:
        """Little's law over a request's stay: requests in flight * output tokens / (TTFT + TPOT * (output - 1))."""
        osl = self.run.output_tokens
        return self.run.concurrency * osl / (self.ttft_s + self.tpot_s * (osl - 1))


def read(path: Path) -> list[Row]:
    """All rows of silicon_sample.csv, those that cannot be as stated marked as excluded."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [_row(told) for told in csv.DictReader(file)]
    return _excluded(_told_twice(rows))


@cache
def models() -> dict[str, dict[str, str]]:
    with Path(__file__).with_name("models.csv").open(encoding="utf-8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


@cache
def model(name: str, precision: str, engine: str) -> Model:
    """The architecture in a format of the sample: layers in it, embeddings and head at 16 bits."""
    row = models()[name]
    figures = {key: int(value) for key, value in row.items() if value and key not in ("model", "attention", "source")}
    weight_format, bits = _FORMATS[precision]
    if "gpt-oss" in name:
        weight_format, bits = "mxfp4", 4.25
    total, table = figures["parameters_total"], 2 * figures["vocab"] * figures["hidden"]
    moe = "experts" in figures
    kept = table
    if moe and bits < 6:  # attention and shared layers stay at 16 bits too
        experts, chosen = figures["experts"], figures["experts_per_token"]
        expert = (total - figures["parameters_active"]) / (experts - chosen)
        kept = round(total - experts * expert)
    average = (bits * (total - kept) + 16 * kept) / total
    # The sample does not say how keys and values are kept; NVIDIA's 4- and 8-bit checkpoints declare 8 bits.
    kv_bits = 16.0 if bits == 16 else 8.0
    return Model.model_validate(
        {
            "name": name,
            "source": row["source"],
            "attention": row["attention"],
            "weight_format": weight_format,
            "weight_bits": average,
            "kv_bits": kv_bits,
            "tied_embeddings": False,
            **figures,
        }
    )


def _row(told: dict[str, str]) -> Row:
    source, engine = told["silicon_data_source"], told["backend"]
    apart = told["mode"] == "disagg"
    part = "decode_" if apart else ""
    tensor, groups = _count(told[f"{part}tp_size"]), _count(told[f"{part}attention_dp_size"])
    moe_tensor, experts = _count(told[f"{part}moe_tp_size"]), _count(told[f"{part}moe_ep_size"])
    stated = tensor * groups
    many = stated
    if not apart:
        if moe_tensor > 1 and moe_tensor == experts and "epnone" not in told["id"]:
            many = moe_tensor  # these exports multiplied "TP n, EP n", which are the same n GPUs
        elif engine == "vllm" and tensor == groups > 1:
            many = tensor  # as above for "TP n with data-parallel attention"
        elif not told["attention_dp_size"] and moe_tensor * experts > tensor:
            many = moe_tensor * experts
            groups = many // tensor
    pools = None
    if apart:
        prefill = _count(told["prefill_tp_size"]) * _count(told["prefill_attention_dp_size"])
        pools = Pools(prefill, _number(told["prefill_num_workers"]), _number(told["decode_num_workers"]))
    elif many > _NODE:
        pools, groups = Pools(many), 1
    groups = min(groups, many)
    found = re.search(r"silicon_concurrency=(\d+)", source)
    batch = _number(told["decode_batch_size" if apart else "batch_size"]) or 1.0
    workers = (pools.decode_workers if pools else None) or 1.0
    concurrency = float(found[1]) if found else batch * groups * workers
    measured = re.search(r"measured=(\d{4})-(\d\d)-(\d\d)", source)
    day = dt.date(*(int(part) for part in measured.groups())) if measured else None
    run = Run(
        model(told["model_path"], told["precision"], engine),
        _gpu(told["system"]),
        Layout(many),
        engine,
        float(told["isl"]),
        float(told["osl"]),
        concurrency,
        data_parallel=groups,
        expert_parallel=min(experts, many),
        pools=pools,
        plain=not (_DRAFTING in told["model_path"] and source.startswith("source_file=20")),
        month=(day - dt.date(2025, 1, 1)).days / 30.44 if day else -1.0,
    )
    ttft, tpot = float(told["silicon_ttft_ms"]) / 1000, float(told["silicon_tpot_ms"]) / 1000
    same = (told["system"], run.input_tokens, run.output_tokens, round(tpot * 1e5), round(ttft * 1e4))
    columns = [value for key, value in told.items() if key not in _OF_A_ROW]
    return Row(told["id"], run, told["system"], ttft, tpot, repr(same), "" if pools else repr(columns))


_OF_A_ROW = (
    "id",
    "silicon_data_source",
    "backend_version",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
    "batch_size",
    "decode_batch_size",
)


def _told_twice(rows: list[Row]) -> list[Row]:
    """Rows of the CSV exports that the database dump tells too (same day, GPU, lengths, requests, GPUs of a decode
    worker) are of plain decoding, since the dump holds nothing else, and have the numbers of workers it gives."""
    dump: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for row in rows:
        if row.run.plain:
            dump[_same_run(row)].append(row.run)
    return [row if row.run.plain else _completed(row, dump.get(_same_run(row), [])) for row in rows]


def _completed(row: Row, told: list[Run]) -> Row:
    if not told:
        return row
    layouts = {(run.pools, run.data_parallel, run.expert_parallel, run.layout) for run in told}
    run = replace(row.run, plain=True)
    if row.run.pools is not None and len(layouts) == 1:
        pools, groups, experts, layout = layouts.pop()
        run = replace(run, pools=pools, data_parallel=groups, expert_parallel=experts, layout=layout)
    return replace(row, run=run)


def _same_run(row: Row) -> tuple[object, ...]:
    run = row.run
    formats = (run.model.layers, run.model.hidden, run.model.weight_format)
    lengths = (run.input_tokens, run.output_tokens, run.concurrency, round(run.month, 3))
    return (row.system, run.engine, *formats, *lengths, run.pools is None, run.layout)


def _excluded(rows: Iterable[Row]) -> list[Row]:
    """By rules that know no prediction: weights larger than the memory of the GPUs stated; more FLOP/s than they have;
    and of a curve (all columns the same but requests and release) the fewest rows without which none is more than 1.5
    times slower than one with more requests."""
    listed = list(rows)
    curves: dict[str, list[Row]] = defaultdict(list)
    for row in listed:
        if row.curve:
            curves[row.curve].append(row)
    disordered = {row.id for curve in curves.values() for row in _disordered(curve)}
    marked = []
    for row in listed:
        why = ""
        t = terms(row.run)
        if t["free"] < 0:
            why = "the weights are larger than the memory of the GPUs stated"
        elif row.run.pools is None and _tokens_read_and_written_per_s(row) * t["t_token"] > 1:
            why = "more compute than the data sheet of the GPUs stated"  # prompts came out of a cache
        elif row.id in disordered:
            why = "contradicts its curve: fewer requests were more than 1.5 times slower"
        marked.append(replace(row, excluded=why))
    return marked


def _tokens_read_and_written_per_s(row: Row) -> float:
    return row.tokens_per_s / row.run.output_tokens * (row.run.input_tokens + row.run.output_tokens)


def _disordered(curve: Sequence[Row]) -> list[Row]:
    """Those to leave out, the one with most contradictions first, of equals the one with most requests."""
    left = list(curve)
    out: list[Row] = []
    while True:
        against = {row.id: sum(_contradict(row, other) for other in left) for row in left}
        worst = max(left, key=lambda row: (against[row.id], row.run.concurrency))
        if not against[worst.id]:
            return out
        left.remove(worst)
        out.append(worst)


def _contradict(one: Row, other: Row) -> bool:
    fewer, more = sorted((one, other), key=lambda row: row.run.concurrency)
    return fewer.run.concurrency < more.run.concurrency and fewer.tpot_s > _DISORDER * more.tpot_s


def summary(rows: Iterable[Row]) -> Counter[str]:
    return Counter(row.excluded for row in rows)


def _gpu(system: str) -> Gpu:
    return next(gpu for gpu in gpus() if gpu.name == SYSTEMS[system])


def _count(text: str) -> int:
    return max(int(float(text or 1)), 1)


def _number(text: str) -> float | None:
    return float(text) if text else None
