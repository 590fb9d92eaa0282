"""Catalogues: what every code says in a language.

A catalogue is JSON, one line a message: it is read in a millisecond by every program that translators use, and line n
of each language is the same message. A language is one file here and one in each package that says something; its
`language` is what it calls itself, `language.tag` its name in HTML.
"""

from __future__ import annotations

import json
from pathlib import Path

from specmeter import extensions

_OWN = Path(__file__).parent

LANGUAGES = tuple(sorted((it.stem for it in _OWN.glob("*.json")), key=lambda it: (it != "en", it)))
"""Every language that there is a catalogue of, English first."""


def texts(language: str) -> dict[str, str]:
    """Code -> its text, those of installed packages among them; what the language lacks is in English."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(("en", language)):
        for folder in (_OWN, *extensions.catalogues()):
            file = Path(folder, f"{name}.json")
            found |= json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found
