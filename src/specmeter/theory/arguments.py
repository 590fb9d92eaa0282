"""Checks the arguments of the functions of this room: numbers or arrays of them.

Scalars in, a float out; arrays (or sequences) in, an array out, by NumPy's broadcasting. A NaN, an infinity, a
percentage instead of a probability, a negative length: each ends in a `UsageError` that names the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from specmeter.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Many = NDArray[np.floating[Any]] | NDArray[np.integer[Any]] | Sequence[float]
    """Several numbers."""
    Values = float | Many
    """One number, or several."""


@overload
def numbers(
    name: str, value: float, *, least: float | None = None, most: float | None = None, whole: bool = False
) -> float: ...
@overload
def numbers(
    name: str, value: Many, *, least: float | None = None, most: float | None = None, whole: bool = False
) -> Floats: ...
@overload
def numbers(
    name: str, value: Values, *, least: float | None = None, most: float | None = None, whole: bool = False
) -> float | Floats: ...
def numbers(
    name: str, value: Values, *, least: float | None = None, most: float | None = None, whole: bool = False
) -> float | Floats:
    """`value` as float64 (a float, or an array of the same shape), all finite and within [least, most].

    `whole` asks for integers. Raises `UsageError` that names the argument, the first bad value and its place.
    """
    values = _floats(name, value)
    good = np.isfinite(values)
    if least is not None:
        good &= values >= least
    if most is not None:
        good &= values <= most
    if whole:
        good &= values == np.floor(values)
    if not good.all():
        kind = "a whole number" if whole else "a finite number"
        span = _span(least, most)
        raise refusal(name, values, ~good, f"it must be {kind}{span}", f"give {name} as {kind}{span}")
    return plain(values)


def positive(name: str, value: float) -> float:
    """One finite number above 0."""
    number = numbers(name, value)
    if number <= 0:
        raise UsageError(f"{name} is {value}: it must be above 0", fix=f"give {name} as a number above 0")
    return number


@overload
def probabilities(name: str, value: float) -> float: ...
@overload
def probabilities(name: str, value: Many) -> Floats: ...
def probabilities(name: str, value: Values) -> float | Floats:
    """`value` as float64, all within [0, 1]."""
    values = _floats(name, value)
    good = (values >= 0) & (values <= 1)
    if not good.all():
        raise refusal(name, values, ~good, "it must be between 0 and 1", f"give {name} as a fraction, 0.8 for 80%")
    return plain(values)


def experts_and_used(experts: int, used: int) -> tuple[int, int]:
    """Experts per layer (E) and experts of a token (K), 1 <= K <= E."""
    numbers("experts", experts, least=1, whole=True)
    numbers("used", used, least=1, whole=True)
    if used > experts:
        raise UsageError(
            f"used is {used}, but there are only {experts} experts",
            fix="give the experts per token as `used` and all experts of a layer as `experts`",
        )
    return int(experts), int(used)


def same_length(**columns: Many) -> list[Floats]:
    """The columns of one table, as one-dimensional arrays of one length that is not 0."""
    arrays = {name: np.atleast_1d(_floats(name, column)) for name, column in columns.items()}
    sizes = {name: array.shape for name, array in arrays.items()}
    shape = next(iter(sizes.values()))
    if len(set(sizes.values())) > 1 or len(shape) != 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise UsageError(f"columns differ in shape: {told}", fix="give one value in each column per measured point")
    if shape[0] == 0:
        raise UsageError(f"{', '.join(sizes)}: no points", fix="give at least one measured point")
    return list(arrays.values())


@overload
def plain(value: float) -> float: ...
@overload
def plain(value: float | Floats) -> float | Floats: ...
def plain(value: float | Floats) -> float | Floats:
    """A float where there is one number, the array otherwise."""
    return float(value) if np.ndim(value) == 0 else value


def refusal(name: str, values: Floats, bad: NDArray[np.bool_], why: str, fix: str) -> UsageError:
    """The error for the first bad value of an argument."""
    if values.ndim == 0:
        return UsageError(f"{name} is {float(values):g}: {why}", fix=fix)
    place = tuple(int(index[0]) for index in np.nonzero(bad))
    shown = place[0] if len(place) == 1 else place
    return UsageError(f"{name}[{shown}] is {float(values[place]):g}: {why}", fix=fix)


def _floats(name: str, value: Values) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} is not a number or an array of numbers: {str(value)[:80]!r}", fix=f"give {name} as numbers"
        ) from None


def _span(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" between {least:g} and {most:g}"
    if least is not None:
        return f" of at least {least:g}"
    return "" if most is None else f" of at most {most:g}"
