"""The two fits, numpy only: robust least squares for the form's coefficients, boosted trees for what is left over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlift.sizing.correction import Tree

Floats = NDArray[np.float64]
_BINS = 64


def least_squares(
    residual: Callable[[Mapping[str, float]], Floats],
    bounds: Mapping[str, tuple[float, float, float]],
    *,
    scale: float,
    weights: Floats,
    rounds: int = 60,
) -> dict[str, float]:
    """Coefficients (start, lowest, highest) with the least sum of Cauchy-weighted squares of `residual`.

    Works on logarithms, so that every coefficient stays positive; a weak pull to the start keeps what the data
    do not tell where it was. Levenberg-Marquardt with numerical derivatives.
    """
    names = list(bounds)
    start, low, high = (np.log([bounds[n][i] for n in names]) for i in range(3))
    pull = 0.6

    def at(x: Floats) -> Floats:
        return residual({n: float(np.exp(v)) for n, v in zip(names, x, strict=True)})

    def loss(r: Floats, x: Floats) -> float:
        return float(np.sum(weights * np.log1p((r / scale) ** 2))) * scale**2 + float(np.sum((pull * (x - start)) ** 2))

    x, damping = start.copy(), 1e-2
    r = at(x)
    best = loss(r, x)
    for _ in range(rounds):
        jacobian = np.stack([(at(x + step) - r) / 1e-4 for step in np.eye(len(x)) * 1e-4], axis=1)
        w = weights / (1 + (r / scale) ** 2)
        normal = jacobian.T @ (jacobian * w[:, None]) + pull**2 * np.eye(len(x))
        slope = jacobian.T @ (w * r) + pull**2 * (x - start)
        for _ in range(8):
            ahead = np.clip(x - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), slope), low, high)
            tried = at(ahead)
            reached = loss(tried, ahead)
            if reached < best:
                break
            damping *= 4
        else:
            break
        gained, best, x, r, damping = best - reached, reached, ahead, tried, max(damping / 5, 1e-6)
        if gained < 1e-5 * best:
            break
    return {n: float(np.exp(v)) for n, v in zip(names, x, strict=True)}


def boost(
    x: Floats,
    y: Floats,
    weights: Floats,
    *,
    trees: int,
    rate: float,
    leaves: int,
    least: float,
    ridge: float,
    tilt: float = 0.3,
    clip: float = 0.3,
) -> list[Tree]:
    """Trees whose leaves' sum follows y in the relative error |exp(sum - y) - 1|, to be used by correction.factor.

    Each split is the best of 64 thresholds a feature by the squared gradient gained; a leaf has at least `least`
    rows and takes a step of `rate` to the mean of what is left of them, cut at `clip` and shrunk by `ridge` rows of
    nothing. `tilt`: how far the weights follow the relative error, which counts too high a guess more.
    """
    cuts = [_cuts(column) for column in x.T]
    binned = np.stack([np.searchsorted(c, column, side="left") for c, column in zip(cuts, x.T, strict=True)], axis=1)
    offset = binned + np.arange(x.shape[1]) * (_BINS + 1)
    sums = np.zeros(len(y))
    made: list[Tree] = []
    for _ in range(trees):
        left = y - sums
        # the relative error's slope: too low a guess of a small time weighs more than of a large one
        weight = weights * np.exp(np.clip(-left, -tilt, tilt))
        tree, value = _tree(offset, cuts, np.clip(left, -clip, clip), weight, rate, leaves, least, ridge)
        sums += value
        made.append(tree)
    return made


def _cuts(column: Floats) -> Floats:
    """Thresholds half way between neighbours, so that rounding one moves no row across it."""
    values = np.unique(column)
    between = (values[1:] + values[:-1]) / 2
    if len(between) < _BINS:
        return between
    return np.asarray(between[np.linspace(0, len(between) - 1, _BINS).astype(int)])


def _tree(
    offset: NDArray[np.int64],
    cuts: list[Floats],
    gradient: Floats,
    weight: Floats,
    rate: float,
    leaves: int,
    least: float,
    ridge: float,
) -> tuple[Tree, Floats]:
    values = np.zeros(len(gradient))
    everything = np.arange(len(gradient))
    root: list[Any] = [None]
    open_ = [(_best(offset, gradient, weight, everything, len(cuts), least, ridge), everything, root, 0)]
    count = 1
    while count < leaves:
        open_.sort(key=lambda o: o[0][0])
        (gain, feature, cut), rows, holder, slot = open_[-1]
        if gain <= 1e-9:
            break
        open_.pop()
        below = offset[rows, feature] - feature * (_BINS + 1) <= cut
        node: list[Any] = [feature, float(f"{cuts[feature][cut]:.9g}"), None, None]
        holder[slot] = node
        for part, where in ((rows[below], 2), (rows[~below], 3)):
            open_.append((_best(offset, gradient, weight, part, len(cuts), least, ridge), part, node, where))
        count += 1
    for _, rows, holder, slot in open_:
        w = weight[rows]
        shrunk = rate * float(np.sum(gradient[rows] * w) / (np.sum(w) + ridge))
        holder[slot] = float(f"{shrunk:.3g}")
        values[rows] = holder[slot]
    return root[0], values


def _best(
    offset: NDArray[np.int64], g: Floats, w: Floats, rows: NDArray[np.int64], count: int, least: float, ridge: float
) -> tuple[float, int, int]:
    """(gain, feature, bin) of the best split of these rows; gain 0: none."""
    if len(rows) < 2 * least:
        return 0.0, 0, 0
    flat = offset[rows].ravel()
    size = count * (_BINS + 1)
    wide = np.repeat(w[rows], count)
    summed = np.bincount(flat, np.repeat(g[rows] * w[rows], count), size).reshape(count, -1).cumsum(axis=1)
    weighed = np.bincount(flat, wide, size).reshape(count, -1).cumsum(axis=1)
    number = np.bincount(flat, minlength=size).reshape(count, -1).cumsum(axis=1)
    all_g, all_w, all_n = summed[:, -1:], weighed[:, -1:], number[:, -1:]
    gain = (
        summed**2 / (weighed + ridge) + (all_g - summed) ** 2 / (all_w - weighed + ridge) - all_g**2 / (all_w + ridge)
    )
    gain[(number < least) | (all_n - number < least)] = 0.0
    best = int(np.argmax(gain))
    return float(gain.flat[best]), best // (_BINS + 1), best % (_BINS + 1)
