"""Text that fits a terminal: broken between words, or shortened in the middle of a name, never cut inside a word."""

from __future__ import annotations

import re
import sys
from shutil import get_terminal_size
from textwrap import wrap

import click

_SHORTEST = 3
_COMMAND = re.compile(r"(?P<before>.*[:.] )(?P<command>lakegate \S.*)")
"""A hint that ends with a command."""
_WORD = re.compile(r"""(?:--?\w[\w-]* (?!-))?(?:'[^']*'|"[^"]*"|[^\s'"])+""")
"""A shell word, or an option with its value."""


def shorten(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters, without its middle: names differ at both ends.

    Example:
        >>> shorten("wap/nyc.trips_20260131T070509-1f2e3d4c", 20)
        'wap/nyc.tr…-1f2e3d4c'
    """
    if len(text) <= width or width < _SHORTEST:
        return text if len(text) <= width else "…"[:width]
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[-end:]}"


def cut_off(text: str, width: int) -> str:
    """Return the first words of ``text`` that fit in ``width`` characters.

    Example:
        >>> cut_off("in_range(fare, min=0, max=200)", 20), cut_off("passenger_count", 9)
        ('in_range(fare,…', 'pass…ount')
    """
    words = text[:width].rpartition(" ")[0].rstrip()
    return text if len(text) <= width else f"{words}…" if len(words) > width // 2 else shorten(text, width)


def wrapped(text: str, width: int, *, indent: str = "") -> str:
    r"""Break long lines between words, and indent all but each first one. A word that is too long stays whole.

    Example:
        >>> wrapped("main is unchanged", 8, indent="  ")
        'main is\n  unchanged'
    """
    lines = (
        [line] if len(line) <= width else wrap(line, max(width, 1), break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )
    return "\n".join(f"\n{indent}".join(parts) for parts in lines)


def wrapped_command(command: str, width: int, *, indent: str = "") -> str:
    r"""Break a shell command between words, so that what is copied still runs.

    Example:
        >>> print(wrapped_command("lakegate query 'SELECT 1' --ref wap/january", 30))
        lakegate query 'SELECT 1' \
          --ref wap/january
    """
    words = _WORD.findall(command)
    if len(command) <= width or " ".join(words) != command:
        return wrapped(command, width, indent=indent)
    lines = words[:1]
    for word in words[1:]:
        if len(f"{lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines += _quoted_lines(f"  {word}", width)
    return f"\n{indent}".join(lines)


def _quoted_lines(word: str, width: int) -> list[str]:
    """Break a shell word within its quotes, where a line break is white space, as it is in SQL."""
    start = re.search("['\"]", word)
    if start is None:
        return [word]
    unbroken = word[: start.end()].replace(" ", "\N{NO-BREAK SPACE}")
    lines = wrapped(unbroken + word[start.end() :], width).split("\n")
    return [word[: start.end()] + lines[0][start.end() :], *lines[1:]]


def wrapped_hint(hint: str, width: int, *, indent: str = "") -> str:
    """Break a hint between words. A command at its end that doesn't fit goes on lines of its own."""
    ending = _COMMAND.fullmatch(hint)
    if ending is None or len(hint) <= width:
        return wrapped(hint, width, indent=indent)
    command = wrapped_command(ending["command"], width, indent=indent)
    return f"{wrapped(ending['before'].rstrip(), width, indent=indent)}\n{indent}{command}"


def tell(text: str) -> None:
    """Print a note on standard error, on a terminal broken as hints are."""
    is_terminal = sys.stderr and sys.stderr.isatty()
    click.echo(wrapped_hint(text, get_terminal_size().columns) if is_terminal else text, err=True)
