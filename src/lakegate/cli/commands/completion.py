"""``lakegate completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lakegate.cli.commandline import PROGRAM, command


@command(
    "completion",
    examples=(
        "bash: echo 'eval \"$(lakegate completion bash)\"' >> ~/.bashrc",
        "zsh:  echo 'eval \"$(lakegate completion zsh)\"' >> ~/.zshrc",
        "fish: lakegate completion fish > ~/.config/fish/completions/lakegate.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, /, *, shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options, and names of tables, branches and runs where the catalog is up.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"This version of click cannot complete in {shell}.")
    root = ctx.find_root()
    click.echo(kind(root.command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
