"""specmeter measures whether speculative decoding makes a language model faster on this machine, and why.

    import specmeter

    run = specmeter.run("demo")           # as `specmeter run demo`; an interrupted run continues
    run = specmeter.load("latest")        # a run that was measured before
    run.answers, run.verdict, run.findings
    run.to_pandas("requests")             # every table of the run as a data frame

Nothing heavy is imported before it is needed. The names listed here are public; everything else may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "Advice",
    "Audit",
    "Experiment",
    "Predicted",
    "Run",
    "RunComparison",
    "RunTable",
    "Schedule",
    "SpecmeterError",
    "__version__",
    "advise",
    "audit",
    "compare",
    "errors",
    "load",
    "predict",
    "run",
    "schedule",
]

if TYPE_CHECKING:
    from types import ModuleType

    from specmeter import errors
    from specmeter.advise.advice import Advice
    from specmeter.advise.schedule import Schedule
    from specmeter.analysis.comparison import RunComparison
    from specmeter.analysis.prediction.speedup import Predicted
    from specmeter.api.advice import advise, schedule
    from specmeter.api.audit import audit
    from specmeter.api.comparison import compare
    from specmeter.api.prediction import predict
    from specmeter.api.runs import Experiment, Run, load, run
    from specmeter.audit.reading import Audit
    from specmeter.errors import SpecmeterError
    from specmeter.show.export.run_table import RunTable

    studies: ModuleType
    """The package `specmeter_studies`, where it is installed."""
else:
    # Packages that are called like functions. Imported here, where they are docstrings only, and taken from the names
    # again, they never stand in the functions' places, whatever is imported first.
    for _name in ("advise", "audit"):
        import_module(f"specmeter.{_name}")
        del globals()[_name]

    _HOME = {
        "Advice": "advise.advice",
        "Audit": "audit.reading",
        "Predicted": "analysis.prediction.speedup",
        "RunComparison": "analysis.comparison",
        "RunTable": "show.export.run_table",
        "Schedule": "advise.schedule",
        "SpecmeterError": "errors",
        "advise": "api.advice",
        "audit": "api.audit",
        "compare": "api.comparison",
        "predict": "api.prediction",
        "schedule": "api.advice",
    }

    def __getattr__(name):
        """A public name, imported when it is first asked for (PEP 562)."""
        if name == "studies":
            return _studies()
        if name not in __all__:
            raise AttributeError(f"module 'specmeter' has no attribute {name!r}")
        if name == "errors":
            return import_module("specmeter.errors")
        return getattr(import_module(f"specmeter.{_HOME.get(name, 'api.runs')}"), name)

    def _studies():
        from specmeter import extensions

        if extensions.studies() is None:
            raise AttributeError(str(extensions.not_installed("specmeter.studies")))
        return import_module("specmeter_studies")

    def __dir__():
        return __all__
