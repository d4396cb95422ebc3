"""Parses a YAML file into nodes that know their lines, and writes YAML values. Nothing in a file is executed.

PyYAML (with libyaml, if available) parses the text. This module reads values by YAML 1.2's core schema, where ``no``
and ``12:30`` are text rather than ``False`` and ``750``, and refuses tags, anchors and duplicate keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lakegate.errors import ConfigurationError
from lakegate.model.words import rounded, size

_MAX_BYTES = 16 << 20
_MAX_DEPTH = 60
_PLAIN: Mapping[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[ .][A-Za-z0-9_]+)*")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file. Line and column count from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Node:
    """A value with its place: text, a number, a boolean or ``None``, or a list or mapping of nodes.

    Attributes:
        value: The value; for a mapping, the nodes by key.
        text: For scalars: the text as written.
    """

    value: Any
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)
    text: str = ""

    @property
    def mapping(self) -> dict[str, Node]:
        """A mapping's nodes by key; empty for other nodes."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """A list's nodes; empty for other nodes."""
        return self.value if isinstance(self.value, list) else []

    def get(self, key: str) -> Node | None:
        """Return the node for ``key``; ``None`` if there is none or it's null."""
        found = self.mapping.get(key)
        return None if found is None or found.value is None else found

    def items_of(self, key: str) -> list[Node]:
        """Return the items of the list at ``key``; nothing if there is no list."""
        return self.mapping[key].items if key in self.mapping else []

    def value_of(self, key: str) -> Any:
        """Return the value for ``key``; ``None`` if there is none."""
        return self.mapping[key].value if key in self.mapping else None

    def plain(self) -> Any:
        """Return the node's contents as plain values."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def find(self, path: Sequence[str | int]) -> tuple[Node, Mark]:
        """Return the node at ``path`` (keys and positions), or the last one on the way, and the place of its key."""
        node, mark = self, self.mark
        for step in path:
            if isinstance(step, str) and step in node.mapping:
                mark, node = node.keys[step], node.mapping[step]
            elif isinstance(step, int) and step < len(node.items):
                node = node.items[step]
                mark = node.mark
        return node, mark


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: its name for messages, and its contents."""

    name: str
    root: Node

    def at(self, mark: Mark) -> str:
        """Return ``file:line:column``."""
        return f"{self.name}:{mark.line}:{mark.column}"

    def error(self, mark: Mark, problem: str, *, hint: str | None = None) -> ConfigurationError:
        """Return an error that begins with the place."""
        return located(self.name, mark, problem, hint=hint)


def located(name: str, mark: Mark, problem: str, *, hint: str | None = None) -> ConfigurationError:
    """Return an error about a place in a file."""
    place = f"{name}:{mark.line}:{mark.column}"
    return ConfigurationError(f"{place}: {problem}", hint=hint, file=name, line=mark.line, column=mark.column)


def read_document(path: Path, *, name: str | None = None) -> Document:
    """Read a YAML file.

    Args:
        name: Its name in messages. Default: its path.

    Raises:
        ConfigurationError: With file, line and column, if the file can't be read, isn't YAML, or contains what isn't
            allowed: several documents, tags, anchors, aliases, merge keys (``<<``), or duplicate keys.
    """
    shown = name or str(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{shown} is larger than {size(_MAX_BYTES)}.", file=shown)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"There's no file {shown}.", hint="Check the path.", file=shown) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{shown} isn't UTF-8 text: {error.reason}.", file=shown) from None
    except OSError as error:
        raise ConfigurationError(f"Can't read {shown}: {error.strerror}.", file=shown) from None
    return parse_document(text, name=shown)


def parse_document(text: str, *, name: str) -> Document:
    """Parse YAML text as :func:`read_document` does.

    Example:
        >>> parse_document("country: NO", name="x.yaml").root.plain()
        {'country': 'NO'}
    """
    try:
        return Document(name, _root(text, name))
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(1, 1) if at is None else _mark(at)
        problem = f"invalid YAML: {error.problem or error.context}."
        raise located(name, mark, problem, hint="Check the indentation, colons and quotes.") from None
    except yaml.YAMLError as error:  # a character that YAML doesn't allow; the error has only its offset
        before = text[: getattr(error, "position", 0) or 0]
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise located(name, mark, f"invalid YAML: {getattr(error, 'reason', error)}.") from None


def _root(text: str, name: str) -> Node:
    """Return the outermost node. Built from events, because composing a deep file would overflow the stack."""
    root: Node | None = None
    around: list[Node] = []  # the lists and mappings that are open
    for event in yaml.parse(text, Loader=_LOADER):
        mark = _mark(event.start_mark)
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise located(name, mark, "a second document begins here.", hint="Write one document per file.")
        if isinstance(event, yaml.CollectionEndEvent):
            around.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        _refuse(event, name, mark)
        parent = around[-1] if around else None
        if parent is not None and isinstance(parent.value, dict) and len(parent.keys) == len(parent.value):
            _add_key(parent, event, name, mark)
            continue
        if isinstance(event, yaml.ScalarEvent):
            value = event.value if event.style else _resolved(event.value, name, mark)
            node = Node(value, mark, text=event.value)
        else:
            node = Node([] if isinstance(event, yaml.SequenceStartEvent) else {}, mark)
            around.append(node)
            if len(around) > _MAX_DEPTH:
                raise located(name, mark, f"more than {_MAX_DEPTH} levels of nesting.")
        if parent is None:
            root = node
        elif isinstance(parent.value, list):
            parent.value.append(node)
        else:
            parent.value[next(reversed(parent.keys))] = node
    return Node(None, Mark(1, 1)) if root is None else root


def _refuse(event: Any, name: str, mark: Mark) -> None:
    if event.anchor is not None:
        sign = "alias '*" if isinstance(event, yaml.AliasEvent) else "anchor '&"
        hint = "Write the value out where it's needed."
        raise located(name, mark, f"{sign}{event.anchor}' isn't allowed here.", hint=hint)
    if event.tag is not None:
        hint = "Write plain values; text may be in quotes."
        raise located(name, mark, f"tag '{event.tag}' isn't allowed.", hint=hint)


def _add_key(mapping: Node, event: Any, name: str, mark: Mark) -> None:
    """Add a key whose value comes next."""
    if not isinstance(event, yaml.ScalarEvent):
        raise located(name, mark, "a key must be text.")
    key = event.value
    if key in mapping.keys:
        problem = f"key '{key}' already appears on line {mapping.keys[key].line}."
        raise located(name, mark, problem, hint="Write each key once.")
    if key == "<<":
        raise located(name, mark, "merge key '<<' isn't allowed here.", hint="Write the values out.")
    mapping.keys[key] = mark


def _resolved(text: str, name: str, mark: Mark) -> Any:
    """Return a scalar without quotes as the value that it stands for."""
    if text in _PLAIN:
        return _PLAIN[text]
    if _LEADING_ZERO.fullmatch(text):
        hint = f"Write '{text}' in quotes, or without leading zeros."
        raise located(name, mark, f"{text} may be a number or a code.", hint=hint)
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        if (problem := rounded(text)) is not None:
            raise located(name, mark, f"{problem}.", hint=f"For a decimal column, write '{text}' in quotes.")
        return float(text)
    return float(text.lower().replace(".", "")) if _SPECIAL_FLOAT.fullmatch(text) else text


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    for one in node.items or node.mapping.values():
        yield from walk(one)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Quotes text that YAML 1.1 or 1.2 might read as anything else, and writes no anchors."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return a text's node."""
        is_plain = _PLAIN_TEXT.fullmatch(text) is not None and text.lower() not in _WORDS_OF_YAML
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')

    def ignore_aliases(self, data: object) -> bool:
        """Return whether to write a value again where it's used again."""
        del data
        return True


_Dumper.add_representer(str, _Dumper.represent_text)


def as_yaml(value: object, *, flow: bool | None) -> str:
    """Return a value as YAML that parsers of YAML 1.1 and 1.2 read as the same value.

    Args:
        flow: Write collections in brackets: all, none, or (``None``) those without further ones inside.
    """
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text


def one_line(value: object) -> str:
    """Return a value as YAML in one line.

    Example:
        >>> one_line("cash"), one_line("no"), one_line("1: x"), one_line([2.5, None])
        ('cash', '"no"', '"1: x"', '[2.5, null]')
    """
    return as_yaml(value, flow=True).removesuffix("...\n").rstrip("\n")


def comment(text: str) -> str:
    """Return text that can't break out of a comment."""
    return "".join(one if one.isprintable() else "�" for one in text)
