"""Parses a YAML file into nodes that know their lines, and writes YAML values. Nothing in a file is executed.

PyYAML (with libyaml, if available) composes the text into nodes. This module interprets them by YAML 1.2's core schema,
where ``no`` and ``12:30`` are text rather than ``False`` and ``750``, and refuses tags and duplicate keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from lakegate.errors import ConfigurationError
from lakegate.model.words import rounded

_MAX_BYTES = 16 << 20
_MAX_DEPTH = 60
_MAX_NODES = 500_000
"""Counted with all aliases expanded: a few lines of nested aliases can expand to billions of nodes."""
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

Path_: TypeAlias = Sequence[str | int]
"""The way to a node: keys of mappings and positions in lists."""


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

    def find(self, path: Path_) -> tuple[Node, Mark]:
        """Return the node at ``path``, or the last one on the way to it, and the place of its key."""
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


def read_document(path: Path, *, name: str | None = None, aliases: bool = False) -> Document:
    """Read a YAML file.

    Args:
        name: Its name in messages. Default: its path.
        aliases: Allow anchors, aliases and merge keys (``<<``). Limits apply to their expansions.

    Raises:
        ConfigurationError: With file, line and column, if the file can't be read, isn't YAML, or contains what isn't
            allowed: several documents, tags, duplicate keys, or more than half a million values.
    """
    shown = name or str(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{shown} is larger than {_MAX_BYTES >> 20} MiB.", file=shown)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"There's no file {shown}.", hint="Check the path.", file=shown) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{shown} isn't UTF-8 text: {error.reason}.", file=shown) from None
    except OSError as error:
        raise ConfigurationError(f"Can't read {shown}: {error.strerror}.", file=shown) from None
    return parse_document(text, name=shown, aliases=aliases)


def parse_document(text: str, *, name: str, aliases: bool = False) -> Document:
    """Parse YAML text as :func:`read_document` does.

    Example:
        >>> parse_document("country: NO", name="x.yaml").root.plain()
        {'country': 'NO'}
    """
    try:
        _refuse(text, name, aliases=aliases)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(1, 1) if at is None else _mark(at)
        problem = f"invalid YAML: {error.problem or error.context}."
        raise located(name, mark, problem, hint="Check the indentation, colons and quotes.") from None
    except yaml.YAMLError as error:  # a character that YAML doesn't allow; the error has only its offset
        before = text[: getattr(error, "position", 0) or 0]
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise located(name, mark, f"invalid YAML: {getattr(error, 'reason', error)}.") from None
    return Document(name, Node(None, Mark(1, 1)) if node is None else _Reader(name, aliases=aliases).read(node))


def _refuse(text: str, name: str, *, aliases: bool) -> None:
    """Refuse what isn't allowed before anything is built: composing a deep file would overflow the stack."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        mark = _mark(event.start_mark)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise located(name, mark, "a second document begins here.", hint="Write one document per file.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            depth += isinstance(event, yaml.CollectionStartEvent)
            if depth > _MAX_DEPTH:
                raise located(name, mark, f"more than {_MAX_DEPTH} levels of nesting.")
            if event.anchor is not None and not aliases:
                sign = "alias '*" if isinstance(event, yaml.AliasEvent) else "anchor '&"
                hint = "Write the value out where it's needed."
                raise located(name, mark, f"{sign}{event.anchor}' isn't allowed here.", hint=hint)
            if getattr(event, "tag", None) is not None:
                hint = "Write plain values; text may be in quotes."
                raise located(name, mark, f"tag '{event.tag}' isn't allowed.", hint=hint)


class _Reader:
    """Turns PyYAML's nodes, which know their lines, into ours, which know their values."""

    def __init__(self, name: str, *, aliases: bool) -> None:
        self._name = name
        self._aliases = aliases
        self._count = self._depth = 0

    def read(self, node: Any, *, is_key: bool = False) -> Node:
        """Return a node with all that is below it."""
        mark = _mark(node.start_mark)
        self._count += 1
        if self._count > _MAX_NODES:
            raise located(self._name, mark, f"more than {_MAX_NODES:,} values.")
        if isinstance(node, yaml.ScalarNode):
            value = node.value if is_key or node.style else self._resolved(node.value, mark)
            return Node(value, mark, text=node.value)
        if is_key:
            raise located(self._name, mark, "a key must be text.")
        self._depth += 1
        if self._depth > _MAX_DEPTH:  # by aliases, perhaps one that holds itself
            raise located(self._name, mark, f"more than {_MAX_DEPTH} levels of nesting.")
        is_list = isinstance(node, yaml.SequenceNode)
        read = Node([self.read(item) for item in node.value], mark) if is_list else self._mapping(node, mark)
        self._depth -= 1
        return read

    def _mapping(self, node: Any, mark: Mark) -> Node:
        found, merged = Node({}, mark), Node({}, mark)
        written: dict[str, Mark] = {}
        for key_node, value_node in node.value:
            key = self.read(key_node, is_key=True)
            if (earlier := written.get(key.text)) is not None:
                problem = f"key '{key.text}' already appears on line {earlier.line}."
                raise located(self._name, key.mark, problem, hint="Write each key once.")
            written[key.text] = key.mark
            if key.text != "<<":
                found.value[key.text], found.keys[key.text] = self.read(value_node), key.mark
            elif not self._aliases:
                problem, hint = "merge key '<<' isn't allowed here.", "Write the values out."
                raise located(self._name, key.mark, problem, hint=hint)
            else:
                value = self.read(value_node)
                for source in value.items or [value]:
                    if not isinstance(source.value, dict):
                        raise located(self._name, value.mark, "'<<' merges mappings only.")
                    merged.value = {**source.value, **merged.value}
                    merged.keys = {**source.keys, **merged.keys}
        return Node({**merged.value, **found.value}, mark, {**merged.keys, **found.keys})

    def _resolved(self, text: str, mark: Mark) -> Any:
        if text in _PLAIN:
            return _PLAIN[text]
        if _LEADING_ZERO.fullmatch(text):
            hint = f"Write '{text}' in quotes, or without leading zeros."
            raise located(self._name, mark, f"{text} may be a number or a code.", hint=hint)
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            if (problem := rounded(text)) is not None:
                hint = f"For a decimal column, write '{text}' in quotes."
                raise located(self._name, mark, f"{problem}.", hint=hint)
            return float(text)
        return float(text.lower().replace(".", "")) if _SPECIAL_FLOAT.fullmatch(text) else text


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    for one in node.items or node.mapping.values():
        yield from walk(one)


def scalar(value: object) -> str:
    """Return a value as YAML that YAML 1.1 parsers also read as the same value.

    Example:
        >>> scalar("cash"), scalar("no"), scalar("1: x"), scalar(2.5), scalar(None)
        ('cash', '"no"', '"1: x"', '2.5', 'null')
    """
    if not isinstance(value, str):
        return json.dumps(value)
    return value if is_plain(value) else _quoted(value)


def is_plain(text: str) -> bool:
    """Return whether a text needs no quotes: every version of YAML reads it as this text."""
    return _PLAIN_TEXT.fullmatch(text) is not None and text.lower() not in _WORDS_OF_YAML


def _quoted(text: str) -> str:
    """Return text in double quotes. YAML has JSON's escapes, but no surrogate pairs."""
    written = "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text.replace("\\", "\\\\"))
    return '"' + written.replace('"', '\\"') + '"'


def comment(text: str) -> str:
    """Return text that can't break out of a comment."""
    return "".join(one if one.isprintable() else "�" for one in text)
