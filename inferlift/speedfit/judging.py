"""How right the fit is on rows it has not seen: random splits, a GPU type left out, a model left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferlift.sizing.speed import architecture
from inferlift.speedfit import fitting
from inferlift.speedfit.fitting import FIGURES, Miss
from inferlift.speedfit.sample import SYSTEMS, Row

TRAIN_SHARE = 0.6
FEWEST = 50  # rows of a part from which it says something of a range
WORKERS = 2


@dataclass(frozen=True)
class Judged:
    """Means over the test rows, by figure of FIGURES; `widths` is the median half-width of the ranges."""

    errors: dict[str, float]
    coverage: dict[str, float]
    widths: dict[str, float]
    rows: int
    one_pool: dict[str, float]  # errors where one pool of GPUs does prefill and decode, as the planner lays it out


def split(rows: Sequence[Row], seed: int, *, keep_copies_together: bool = False) -> tuple[list[Row], list[Row]]:
    """60 % to fit, 40 % to test. The sample tells many measurements several times: `keep_copies_together` puts all
    rows of one measurement on one side."""
    drawn = random.Random(seed)  # noqa: S311  a reproducible sample, not a secret
    if keep_copies_together:
        sides = {copy: drawn.random() < TRAIN_SHARE for copy in sorted({row.copy for row in rows})}
        chosen = [sides[row.copy] for row in rows]
    else:
        chosen = [drawn.random() < TRAIN_SHARE for _ in rows]
    pairs = list(zip(rows, chosen, strict=True))
    return [row for row, c in pairs if c], [row for row, c in pairs if not c]


def judged(misses: Sequence[Miss]) -> Judged:
    one_pool = [miss for miss in misses if miss.row.run.pools is None]
    return Judged(
        _means(miss.errors for miss in misses),
        _means(miss.inside for miss in misses),
        {f: float(np.median([miss.half_widths[i] for miss in misses])) for i, f in enumerate(FIGURES)},
        len(misses),
        _means(miss.errors for miss in one_pool) if one_pool else {},
    )


def random_split(job: tuple[list[Row], list[Row], int, bool]) -> tuple[Judged, Judged | None]:
    """Of (rows that count, excluded rows, seed, copies together): the test part, then with the excluded rows in it."""
    rows, excluded, seed, together = job
    train, test = split(rows, seed, keep_copies_together=together)
    made = fitting.calibrated(train, folds=split(train, seed + 1, keep_copies_together=together))
    misses = fitting.missed(test, made)
    more = fitting.missed(split(excluded, seed)[1], made) if excluded else []
    return judged(misses), judged([*misses, *more]) if more else None


def without_gpu(job: tuple[list[Row], str, bool]) -> list[Miss]:
    """Of (rows, system, with the first token): the rows of the system by a fit on all others."""
    rows, system, first_token = job
    made = fitting.fit([row for row in rows if row.system != system], first_token=first_token)
    return fitting.missed([row for row in rows if row.system == system], made)


def without_model(job: tuple[list[Row], str]) -> list[Miss]:
    """Of (rows, layers x hidden): the rows of the architecture by the form fitted on all others."""
    rows, name = job
    made = fitting.form_only([row for row in rows if _body(row) != name])
    return fitting.missed([row for row in rows if _body(row) == name], made)


def shipped(rows: list[Row], *, seed: int) -> dict[str, Any]:
    """The fit on all rows. Its ranges: of measured models from rows held back with all their copies, of a new GPU
    and of a new model from fits without each."""
    made = fitting.calibrated(rows, folds=split(rows, seed, keep_copies_together=True))
    by_gpu = in_parallel(without_gpu, [(rows, system, True) for system in SYSTEMS])
    by_model = in_parallel(without_model, [(rows, name) for name in sorted({_body(row) for row in rows})])
    ranges = made["ranges"]
    ranges["new gpu"] = _balanced(by_gpu)
    ranges["new model"] = _balanced(by_model)
    # assumption: what another kind of GPU adds to the spread is as much again as a quarter of a new model's
    ranges["new kind"] = {
        f: (round(low**1.25, 3), round(high**1.25, 3)) for f, (low, high) in ranges["new model"].items()
    }
    return made


def in_parallel(work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    with ProcessPoolExecutor(WORKERS) as pool:
        return list(pool.map(work, jobs))


def new_gpu(by_gpu: Sequence[list[Miss]]) -> dict[str, tuple[float, float]]:
    """The range of a GPU type that was not measured, from fits without one type each."""
    return _balanced(by_gpu)


def as_planned(part: Sequence[Miss]) -> list[Miss]:
    """Plain decoding on one pool, which is what the planner asks for."""
    return [miss for miss in part if miss.row.run.pools is None and miss.row.run.plain]


def _balanced(parts: Sequence[list[Miss]]) -> dict[str, tuple[float, float]]:
    """Each part with enough rows counts the same, however many it has."""
    misses, weights = [], []
    for plain in map(as_planned, parts):
        if len(plain) >= FEWEST:
            misses += plain
            weights += [1 / len(plain)] * len(plain)
    return fitting.widths(misses, weights)


def _means(values: Any) -> dict[str, float]:
    table = np.array([[float(v) for v in row] for row in values])
    return dict(zip(FIGURES, (float(v) for v in table.mean(axis=0)), strict=True))


def _body(row: Row) -> str:
    return " ".join(architecture(row.run).split()[1:3])


def reasons(rows: Sequence[Row]) -> Counter[str]:
    """Excluded rows by reason."""
    return Counter(row.excluded for row in rows if row.excluded)
