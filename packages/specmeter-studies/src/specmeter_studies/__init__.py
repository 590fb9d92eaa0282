"""Studies: published documents whose systems run with specmeter, and whose claims are put to the test.

library/NAME  one folder per document: study.yaml (parts, claims, tables, figures), and the code of its rules
definition    what study.yaml may say; setting: what a study was measured with
loading       bundled studies and those of users, and what they say about data
selection     rows and quantities by name; builders: tables and figures of them
rules         rules that many claims share
telling       the one rule of what supports a claim
study         the words all studies speak: data, claims, tables, figures
measured      data of a study from our own runs and quality measurements (rows, places, amount)
from_claims   data of a study from published rows, with what the audit rules about each
runner        a study from beginning to end; order, availability: its parts; folder: what is kept of it
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["find", "findings", "load", "names", "published"]

if TYPE_CHECKING:
    from specmeter_studies.loading import find
    from specmeter_studies.reading import findings, load, names, published
else:

    def __getattr__(name):
        """A public name, imported when it is first asked for (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module 'specmeter_studies' has no attribute {name!r}")
        return getattr(import_module(f"specmeter_studies.{'loading' if name == 'find' else 'reading'}"), name)
