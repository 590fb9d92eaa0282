"""`specmeter completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes commands and options in your shell.

    \b
    Examples:
      specmeter completion bash >> ~/.bashrc
      specmeter completion zsh  >> ~/.zshrc
      specmeter completion fish >  ~/.config/fish/completions/specmeter.fish
    """
    from specmeter.cli import root

    kind = get_completion_class(shell)
    if kind is None:  # click knows all three
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(root, {}, "specmeter", "_SPECMETER_COMPLETE").source())
