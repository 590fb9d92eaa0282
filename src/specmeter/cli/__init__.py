"""The command line: one thin file per command, loaded when it is needed."""

from specmeter.cli.commands import GROUPS, all_commands, root
from specmeter.cli.invoking import invoke, main

__all__ = ["GROUPS", "all_commands", "invoke", "main", "root"]
