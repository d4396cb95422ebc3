"""Parses a YAML file into nodes that know their lines, and writes YAML values. Nothing in a file is executed.

PyYAML (with libyaml, if available) only splits the text into events. This module interprets them by YAML 1.2's core
schema, where ``no`` and ``12:30`` are text rather than ``False`` and ``750``, and refuses tags and duplicate keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import yaml

from lakegate.errors import ConfigurationError
from lakegate.model.words import rounded

_MAX_BYTES = 16 << 20
_MAX_DEPTH = 60
_MAX_NODES = 500_000
"""Counted with all aliases expanded: a few lines of nested aliases can expand to billions of nodes."""
_STRING_TAG = "tag:yaml.org,2002:str"
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
    return Document(name, _Builder(name, aliases=aliases).build(text))


class _Builder:
    """Builds nodes from libyaml's events. Its stack is a list, so that deep nesting can't overflow Python's."""

    def __init__(self, name: str, *, aliases: bool) -> None:
        self._name = name
        self._aliases = aliases
        self._anchors: dict[str, Node] = {}
        self._open: list[_Open] = []
        self._count = 0
        self._sizes: dict[int, int] = {}
        self._root: Node | None = None

    def build(self, text: str) -> Node:
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._take(event)
        except yaml.MarkedYAMLError as error:
            at = error.problem_mark or error.context_mark
            mark = Mark(1, 1) if at is None else _mark(at)
            self._fail(
                mark, f"invalid YAML: {error.problem or error.context}.", "Check the indentation, colons and quotes."
            )
        except yaml.YAMLError as error:  # a character that YAML doesn't allow; the error has only its offset
            offset = getattr(error, "position", 0) or 0
            before = text[:offset]
            mark = Mark(before.count("\n") + 1, offset - before.rfind("\n"))
            self._fail(mark, f"invalid YAML: {getattr(error, 'reason', error)}.")
        return self._root or Node(None, Mark(1, 1))

    def _take(self, event: Any) -> None:
        mark = _mark(event.start_mark) if event.start_mark is not None else Mark(1, 1)
        if isinstance(event, yaml.DocumentStartEvent):
            if self._root is not None:
                self._fail(mark, "a second document begins here.", "Write one document per file.")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor, mark)
        elif isinstance(event, yaml.ScalarEvent):
            self._require_plain(event, mark)
            self._add(self._scalar(event, mark), event.anchor)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._require_plain(event, mark)
            if len(self._open) >= _MAX_DEPTH:
                self._fail(mark, f"more than {_MAX_DEPTH} levels of nesting.")
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            if self._open and self._open[-1].wants_key:
                self._fail(mark, "a key must be text.")
            self._open.append(_Open(Node({} if is_mapping else [], mark), event.anchor, self._count))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            done = self._open.pop()
            self._sizes[id(done.node)] = self._count - done.before
            self._add(done.node, done.anchor)

    def _require_plain(self, event: Any, mark: Mark) -> None:
        if event.anchor is not None and not self._aliases:
            self._fail(mark, f"anchor '&{event.anchor}' isn't allowed here.", "Write the value out where it's needed.")
        if event.tag not in (None, "!", _STRING_TAG):
            self._fail(mark, f"tag '{event.tag}' isn't allowed.", "Write plain values; text may be in quotes.")

    def _alias(self, anchor: str, mark: Mark) -> None:
        if not self._aliases:
            self._fail(mark, f"alias '*{anchor}' isn't allowed here.", "Write the value out.")
        if anchor not in self._anchors:
            self._fail(mark, f"alias '*{anchor}' has no anchor before it.")
        node = self._anchors[anchor]
        self._count += self._sizes.get(id(node), 0)
        self._add(node, None)

    def _scalar(self, event: Any, mark: Mark) -> Node:
        text: str = event.value
        is_plain = bool(event.implicit[0]) and event.tag is None
        wants_key = bool(self._open) and self._open[-1].wants_key
        return Node(text if wants_key or not is_plain else self._resolved(text, mark), mark, text=text)

    def _resolved(self, text: str, mark: Mark) -> Any:
        if text in _PLAIN:
            return _PLAIN[text]
        if _LEADING_ZERO.fullmatch(text):
            self._fail(
                mark, f"{text} may be a number or a code.", f"Write '{text}' in quotes, or without leading zeros."
            )
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            if (problem := rounded(text)) is not None:
                self._fail(mark, f"{problem}.", f"For a decimal column, write '{text}' in quotes.")
            return float(text)
        return float(text.lower().replace(".", "")) if _SPECIAL_FLOAT.fullmatch(text) else text

    def _add(self, node: Node, anchor: str | None) -> None:
        self._count += 1
        if self._count > _MAX_NODES:
            self._fail(node.mark, f"more than {_MAX_NODES:,} values.")
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif parent.key is None:
            self._begin(parent, node)
        else:
            key, parent.key = parent.key, None
            if key.text == "<<" and self._aliases:
                self._merge(parent.node, node)
            else:
                parent.node.value[key.text] = node
                parent.node.keys[key.text] = key.mark

    def _begin(self, parent: _Open, key: Node) -> None:
        text = key.text
        if key.value is not None and not isinstance(key.value, str):
            self._fail(key.mark, "a key must be text.")
        if (earlier := parent.written.get(text)) is not None:
            self._fail(key.mark, f"key '{text}' already appears on line {earlier.line}.", "Write each key once.")
        if text == "<<" and not self._aliases:
            self._fail(key.mark, "merge key '<<' isn't allowed here.", "Write the values out.")
        parent.written[text] = key.mark
        parent.key = key

    def _merge(self, into: Node, node: Node) -> None:
        for source in node.items or [node]:
            if not isinstance(source.value, dict):
                self._fail(node.mark, "'<<' merges mappings only.")
            for key, value in source.mapping.items():
                if key not in into.value:
                    into.value[key] = value
                    into.keys[key] = source.keys[key]

    def _fail(self, mark: Mark, problem: str, hint: str | None = None) -> NoReturn:
        raise located(self._name, mark, problem, hint=hint)


@dataclass(slots=True)
class _Open:
    """A list or mapping that isn't complete yet."""

    node: Node
    anchor: str | None
    before: int
    key: Node | None = None
    written: dict[str, Mark] = field(default_factory=dict)

    @property
    def wants_key(self) -> bool:
        return isinstance(self.node.value, dict) and self.key is None


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
