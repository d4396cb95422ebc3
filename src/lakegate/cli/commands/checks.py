"""List the available checks, or show how to write one."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, command
from lakegate.cli.output import echo_json, safe, say, show_rows, width_or

if TYPE_CHECKING:
    from lakegate.checks.definition import CheckDefinition

_WIDE = 100
"""Terminal width from which there's room for examples."""


@command("checks", examples=("lakegate checks", "lakegate checks in_range", "lakegate checks -o json"))
@click.argument("name", required=False)
def checks(app: App, /, *, name: str | None) -> None:
    """List all checks, or show what the check NAME does and how to write it.

    Includes the checks of installed packages. To add your own, see the how-to page "Write a check of your own".
    """
    from lakegate.checks.registry import find_check, known_checks

    found = [find_check(one) for one in ([name] if name else known_checks())]
    if app.json:
        payloads = [_payload(one) for one in found]
        echo_json(payloads[0] if name else payloads)
    elif name:
        (one,) = found
        text = _wrapped(_plain(one.documentation) or "No description.", width_or(_WIDE))
        say(safe(one.signature), "", *map(safe, text.splitlines()), "")
        say(*(f"  [dim]{safe(example)}[/]" for example in one.example.split("  or  ")))
    else:
        rows = ((one.name, _plain(one.summary), one.example.partition("  or  ")[0]) for one in found)
        columns = ("check", "what it requires", "example")
        shown = 3 if width_or(_WIDE) >= _WIDE else 2
        show_rows(columns[:shown], (row[:shown] for row in rows))


def _payload(one: CheckDefinition[Any]) -> dict[str, Any]:
    return {
        "name": one.name,
        "signature": one.signature,
        "description": _plain(one.documentation),
        "examples": one.example.split("  or  "),
        "aliases": list(one.aliases),
    }


def _wrapped(text: str, width: int) -> str:
    """Wrap the paragraphs of a docstring anew, except for lists and indented lines."""
    return "\n\n".join(
        paragraph
        if any(line.startswith((" ", "-", "*", ">")) for line in paragraph.splitlines())
        else fill(paragraph, width, break_long_words=False, break_on_hyphens=False)
        for paragraph in text.split("\n\n")
    )


def _plain(text: str) -> str:
    return text.replace("``", "")
