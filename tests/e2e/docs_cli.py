"""Makes ``docs/reference/cli.md`` from the command line itself: ``python tests/e2e/docs_cli.py`` writes it anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lakegate.cli.commandline import PROGRAM
from lakegate.cli.main import cli
from lakegate.cli.registry import COMMANDS, PANELS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
_HEAD = """# Command line

<!-- Made by tests/e2e/docs_cli.py from the commands themselves. Do not edit it by hand. -->

`lakegate COMMAND --help` shows the same, with examples. Standard output is data; standard error is progress, notes and
errors. `lakegate completion bash` prints the completion script for your shell.

Every command exits with 0 when it did what it was asked, with 2 when something given to it is wrong, with 3 when trying
again may help, with 70 on a bug and with 130 when interrupted. `ingest`, `audit` and `publish` also exit with 1 when
the audit failed; `ingest` and `publish` exit with 4 when the catalog went away with the commit. More on
[errors and exit codes](errors.md).

## lakegate

These options go before or after the name of any command.
"""


def render() -> str:
    """Return the page."""
    root = click.Context(cli, info_name=PROGRAM, **cli.context_settings)
    parts = [_HEAD, *_options(cli, root), _contents()]
    for entry in COMMANDS:
        command = cli.get_command(root, entry.name)
        assert command is not None
        parts += _command(
            command, click.Context(command, info_name=f"{PROGRAM} {entry.name}", **command.context_settings)
        )
    return "\n".join(parts).rstrip() + "\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, those of groups included."""
    for entry in COMMANDS:
        command = cli.get_command(click.Context(cli, info_name=PROGRAM), entry.name)
        assert command is not None
        yield f"{PROGRAM} {entry.name}", command
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield f"{PROGRAM} {entry.name} {name}", inner


def _contents() -> str:
    lines = ["## Commands", ""]
    for panel in PANELS:
        names = (f"[`{entry.name}`](#{PROGRAM}-{entry.name})" for entry in COMMANDS if entry.panel == panel)
        lines.append(f"- {panel}: {', '.join(names)}")
    return "\n".join([*lines, ""])


def _command(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield f"## {ctx.info_name}\n"
    yield f"{_paragraphs(command)}\n"
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _command(
                inner, click.Context(inner, info_name=f"{ctx.info_name} {name}", **inner.context_settings)
            )
        return
    yield f"```text\n{ctx.info_name} {' '.join(command.collect_usage_pieces(ctx))}\n```\n"
    yield from _options(command, ctx)
    examples = getattr(command, "examples", ())
    if examples:
        yield "\n".join(["Examples:", "", "```text", *examples, "```", ""])


def _paragraphs(command: click.Command) -> str:
    texts = (command.help or "").split("\n\n")
    return "\n\n".join(" ".join(text.split()) for text in texts)


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    rows = [
        f"| {_cell(_names(option, ctx))} | {_cell(option.help or '')} | {_default(option)} |"
        for option in command.get_params(ctx)
        if isinstance(option, click.Option) and not option.hidden and ("--help" not in option.opts or command is cli)
    ]
    if rows:
        yield "\n".join(["| option | meaning | default |", "| --- | --- | --- |", *rows, ""])


def _names(option: click.Option, ctx: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len, reverse=True))
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {' '.join(f'`{choice}`' for choice in option.type.choices)}"
    return f"{names} `{_metavar(option, ctx)}`"


def _metavar(option: click.Option, ctx: click.Context) -> str:
    if isinstance(option.type, (click.IntRange, click.FloatRange)) and option.metavar is None:
        return "NUMBER"
    return str(option.make_metavar(ctx)).strip("[]")


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    value: Any = option.default
    shown = isinstance(value, (str, int, float)) and not isinstance(value, bool) and option.show_default
    return f"`{value}`" if shown else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} written\n")
