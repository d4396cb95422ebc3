"""Print the completion script for your shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lakegate.cli.app import PROGRAM, App, command


@command(
    "completion",
    formats=(),
    examples=(
        "bash: echo 'eval \"$(lakegate admin completion bash)\"' >> ~/.bashrc",
        "zsh:  echo 'eval \"$(lakegate admin completion zsh)\"' >> ~/.zshrc",
        "fish: lakegate admin completion fish > ~/.config/fish/completions/lakegate.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(_app: App, /, *, shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands and options, and, while the catalog is running, names of tables, branches and runs.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"This version of click can't complete in {shell}.")
    root = click.get_current_context().find_root()
    click.echo(kind(root.command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
