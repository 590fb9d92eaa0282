"""Removes the effect of requests that were held up, for comparisons among arms.

A request that waits half a second for something else weighs as much as a hundred steps, and which arm it hits is
chance: at 2.5 % of requests, held up for a second each, three quarters of the variance of a race of short texts is
theirs. A race has too few requests to tell how often an arm stalls; it can tell which arm is faster without stalls. So
comparisons *among arms* are made on steadied times: with arm, prompt and block effects

    log ms_abp = m_ap + f_b + r_abp,    all fitted by medians,

a residual beyond `FAR` robust deviations of its arm is moved to there (Huber 1964, doi:10.1214/aoms/1177703732: the
bounded residual). Residuals of medians of B blocks are too small by about (B - 1) / B.

A printed speedup is never steadied: it keeps the stalls of its arm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats

FAR = 3.0
"""Robust standard deviations of an arm's requests."""
MIN_BLOCKS = 3
"""Two blocks do not say which of them was held up."""
_NORMAL = 1.4826
"""Standard deviation of normal values over the median of their distances from the middle."""


def steadied(logs: Floats) -> Floats:
    """Logarithms of times, arms x blocks x prompts, without what held single requests up; nan where nothing was
    measured, and stays so. Fewer than three blocks, and arms whose requests do not differ, stay as they are."""
    blocks = logs.shape[1]
    if blocks < MIN_BLOCKS:
        return logs
    drift = np.zeros((1, blocks, 1))
    rest = logs
    for _ in range(2):
        rest = logs - drift
        rest = rest - _median(rest, (1,))
        drift = drift + _median(rest, (0, 2))
    rest = logs - drift
    rest = rest - _median(rest, (1,))
    far = FAR * _NORMAL * blocks / (blocks - 1) * _median(np.abs(rest), (1, 2))
    return np.where((far > 0) & (np.abs(rest) > far), logs - rest + np.sign(rest) * far, logs)


def _median(values: Floats, axes: tuple[int, ...]) -> Floats:
    """Along these axes, of what is there; 0 of nothing."""
    known = np.isfinite(values)
    filled = np.where(known.any(axis=axes, keepdims=True), values, 0.0)
    return np.nanmedian(filled, axis=axes, keepdims=True)
