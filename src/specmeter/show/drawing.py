"""Figures as SVG, PNG and PDF, for papers: the specifications of the page, drawn without a browser by vl-convert."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from specmeter.errors import UsageError
from specmeter.extensions import installing
from specmeter.show.figure import Figure, specification
from specmeter.show.palette import PRINT

if TYPE_CHECKING:
    from specmeter.messages import Words


FORMATS = ("svg", "png", "pdf")
_PIXELS_PER_CM = 96 / 2.54
"""CSS pixels, which vl-convert's SVG and PDF are made of."""
_PNG_SCALE = 300 / 96
"""300 dots per inch."""


def figures(shown: Iterable[Figure], words: Words, formats: Sequence[str], width_cm: float) -> list[tuple[str, bytes]]:
    """(file name, bytes) of every panel in every format; `width_cm` is that of the whole figure.

    Raises `UsageError` for an unknown format, and where vl-convert is not installed.
    """
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"--format {name}: no such format for figures", fix=f"use one of {', '.join(FORMATS)}")
    try:
        converter: Any = importlib.import_module("vl_convert")
    except ImportError:
        raise UsageError("figures need vl-convert, which is not installed", fix=installing("figures")) from None
    width = round(width_cm * _PIXELS_PER_CM)
    panels = [panel for figure in shown for panel in figure.panels]
    specs = {panel.name: specification(panel, words, PRINT, width=width) for panel in panels}
    return [(f"{panel}.{name}", _draw(converter, spec, name)) for panel, spec in specs.items() for name in formats]


def _draw(converter: Any, spec: dict[str, Any], name: str) -> bytes:
    # No base URL is allowed: a specification that asked for anything outside itself would fail.
    options: dict[str, Any] = {"allowed_base_urls": []}
    if name == "svg":
        return str(converter.vegalite_to_svg(spec, **options)).encode()
    if name == "png":
        return bytes(converter.vegalite_to_png(spec, scale=_PNG_SCALE, **options))
    return bytes(converter.vegalite_to_pdf(spec, **options))
