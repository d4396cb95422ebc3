"""Reads dbt's properties files (``schema.yml``) into contracts: dbt's own tests, dbt_utils' and dbt-expectations'."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lakegate.contracts.dbt_tests import Arguments, CheckParts, severities, translate
from lakegate.contracts.document import Document, Mark, Node
from lakegate.contracts.draft import Draft, DraftColumn, NoCheckError, sql_type, text_of, words_of

_RESOURCES = ("models", "seeds", "snapshots")
_TESTS = ("tests", "data_tests")
_OPTIONS = (
    "name", "config", "severity", "where", "tags", "description", "error_if", "warn_if", "enabled", "meta", "fail_calc",
    "limit", "store_failures", "store_failures_as",
)  # fmt: skip
_REF = re.compile(r"\s*(?:\{\{)?\s*ref\(\s*(?:['\"][^'\"]+['\"]\s*,\s*)?['\"]([^'\"]+)['\"][^)]*\)\s*(?:\}\})?\s*")
_SOURCE = re.compile(r"\s*(?:\{\{)?\s*source\(\s*['\"]([^'\"]+)['\"]\s*,\s*['\"]([^'\"]+)['\"]\s*\)\s*(?:\}\})?\s*")
_TABLE_KEYS = frozenset(
    {"name", "description", "columns", "config", "meta", "tags", "identifier", "constraints", *_TESTS}
)  # fmt: skip
_COLUMN_KEYS = frozenset(
    {"name", "description", "data_type", "constraints", "tags", "config", "meta", "quote", *_TESTS}
)
_SOURCE_KEYS = ("name", "schema", "tables", "description", "config")
_CONFIG_KEYS = ("schema", "alias", "tags", "meta")


def is_dbt(document: Document) -> bool:
    """Return whether a file is a dbt properties file."""
    return any(key in document.root.mapping for key in (*_RESOURCES, "sources"))


def read_dbt(document: Document, *, namespace: str | None = None) -> list[Draft]:
    """Return a contract for each model, seed, snapshot and source table.

    Args:
        namespace: The models' namespace. Default: the ``schema`` in their ``config``, else ``default``. For source
            tables, it's the source's schema, else its name.
    """
    root = document.root
    models = [
        _DbtTable(one, namespace or _config(one, "schema") or "default", namespace)
        for key in _RESOURCES
        for one in root.items_of(key)
        if text_of(one.get("name"))
    ]
    sources: list[tuple[Node, list[_DbtTable]]] = []
    for source in root.items_of("sources"):
        schema = _name_of(source, "schema") or text_of(source.get("name")) or "default"
        named = [one for one in source.items_of("tables") if text_of(one.get("name"))]
        sources.append((source, [_DbtTable(one, schema, namespace, source) for one in named]))
    every = [*models, *(table for _, tables in sources for table in tables)]
    names = {table.reference: table.name for table in every}
    drafts = [table.read(names) for table in models]
    for source, tables in sources:
        config = source.get("config") or Node({}, source.mark)
        for draft in [table.read(names) for table in tables]:
            for node in (source, config):
                draft.note_unknown_keys(node, _SOURCE_KEYS, prefix="source ")
            _lose_jinja(draft, source, "schema")
            drafts.append(draft)
    if drafts:
        drafts[0].note_unknown_keys(root, (*_RESOURCES, "sources", "version"))
    return drafts


def _config(node: Node, key: str) -> str | None:
    config = node.get("config")
    return None if config is None else _name_of(config, key)


def _name_of(node: Node, key: str) -> str | None:
    """Return the name at ``key``; ``None`` if there's none, or only dbt can render it."""
    name = text_of(node.get(key))
    return None if _has_jinja(name) else name


def _lose_jinja(draft: Draft, node: Node, *keys: str) -> None:
    for key in keys:
        if _has_jinja(node.value_of(key)):
            draft.note(node.keys[key], key, f"it contains Jinja, which only dbt can render; the table is {draft.table}")


class _DbtTable:
    """A model or table while it's being read.

    Attributes:
        reference: Its name in a ``ref`` or ``source``: ``model``, or ``source.table``.
        name: The table's name.
    """

    def __init__(self, node: Node, schema: str, namespace: str | None, source: Node | None = None) -> None:
        self._node = node
        self._namespace = namespace or "default"
        name = _name_of(node, "identifier") or _config(node, "alias") or text_of(node.get("name")) or ""
        self.name = f"{schema}.{name}"
        self.reference = ".".join(text_of(one.get("name")) or "" for one in (source, node) if one is not None)
        self._names: Mapping[str, str] = {}
        self._draft = Draft(self.name, node.mark.line)

    def read(self, names: Mapping[str, str]) -> Draft:
        """Return the contract.

        Args:
            names: The file's tables by their references.
        """
        draft, node, self._names = self._draft, self._node, names
        config = node.get("config") or Node({}, node.mark)
        draft.description = text_of(node.get("description"))
        draft.tags = (*words_of(node.get("tags")), *words_of(config.get("tags")))
        meta = node.get("meta") or config.get("meta")
        draft.owner = None if meta is None else text_of(meta.get("owner"))
        listed: list[tuple[Node, DraftColumn]] = []
        for one in draft.listed(node, "columns"):
            name, kind = text_of(one.get("name")), text_of(one.get("data_type"))
            if name is None:
                draft.lose(one.mark, "a column", "its name is missing, or isn't text")
                continue
            column = draft.column(one.mark, name)
            listed.append((one, column))
            column.description = column.description or text_of(one.get("description"))
            column.tags = column.tags or words_of(one.get("tags"))
            column.type = column.type or (None if kind is None else sql_type(kind))
            if kind is not None and column.type is None:
                draft.lose(one.keys["data_type"], f"data_type {kind}", "not an Iceberg type; the column may have any")
        for one, column in listed:
            self._rules(one, column)
            draft.note_unknown_keys(one, _COLUMN_KEYS)
        self._rules(node, None)
        draft.note_unknown_keys(node, _TABLE_KEYS)
        _lose_jinja(draft, node, "identifier")
        _lose_jinja(draft, config, "schema", "alias")
        draft.note_unknown_keys(config, _CONFIG_KEYS, prefix="config ")
        return draft

    def _rules(self, node: Node, column: DraftColumn | None) -> None:
        for one in self._draft.listed(node, "constraints"):
            self._constraint(one, column)
        for key in _TESTS:
            for one in self._draft.listed(node, key):
                self._test(one, column)

    def _constraint(self, node: Node, column: DraftColumn | None) -> None:
        kind, draft = text_of(node.get("type")), self._draft
        if column is None or kind not in ("not_null", "unique", "primary_key"):
            draft.lose(
                node.mark, f"constraint {kind}", "lakegate translates not_null, unique and primary_key of a column"
            )
            return
        column.required = column.required or kind != "unique"
        if kind != "not_null":
            draft.add(node.mark, f"constraint {kind}", "unique", [column.name], {})

    def _test(self, node: Node, column: DraftColumn | None) -> None:
        name, arguments, mark = _named(node)
        if name is None:
            self._draft.lose(node.mark, "a test", "it's neither a name nor a name with arguments")
            return
        # Since dbt 1.10, a test's arguments may be under a key of their own, also beside others.
        if isinstance(inner := arguments.get("arguments"), dict):
            arguments = {key: value for key, value in arguments.items() if key != "arguments"} | inner
        own = {key: value for key, value in arguments.items() if key not in _OPTIONS}
        config = arguments.get("config") if isinstance(arguments.get("config"), dict) else {}
        options = {key: value for key, value in {**arguments, **(config or {})}.items() if key in _OPTIONS}
        try:
            kind, columns, translated = self._check(name, own, column, options)
            for severity in severities(kind, options):
                self._draft.add(mark, name, kind, columns, {**translated, **severity})
        except NoCheckError as error:
            self._draft.lose(mark, name, str(error))

    def _check(self, name: str, arguments: Arguments, column: DraftColumn | None, options: Arguments) -> CheckParts:
        if _has_jinja(arguments):
            raise NoCheckError("it contains Jinja, which only dbt can render")
        package, _, short = name.rpartition(".")
        given = dict(arguments)
        own = given.pop("column_name", None if column is None else column.name)
        row_condition = given.pop("row_condition", None)
        kind, columns, translated = translate(short, own, given, package=package, table=self._table)
        if row_condition is not None:
            translated["where"] = row_condition
        if options.get("where") and translated.get("where"):
            raise NoCheckError("it has two filters")
        return kind, columns, {**_translated_options(options), **translated}

    def _table(self, text: Any) -> str:
        if isinstance(text, str) and (source := _SOURCE.fullmatch(text)):
            name = f"{source[1]}.{source[2]}"
            return self._names.get(name, name)
        if isinstance(text, str) and (ref := _REF.fullmatch(text)):
            return self._names.get(ref[1], f"{self._namespace}.{ref[1]}")
        raise NoCheckError(f"{text!r} is neither a ref nor a source")


def _named(node: Node) -> tuple[str | None, Arguments, Mark]:
    """Return a test's name, its arguments, and where they are in the file."""
    if isinstance(node.value, str):
        return node.value, {}, node.mark
    if "test_name" in node.mapping:  # the long form
        plain = node.plain()
        return str(plain.pop("test_name")), plain, node.mark
    if len(node.mapping) == 1:
        ((name, inner),) = node.mapping.items()
        if inner.value is None or isinstance(inner.value, dict):
            return name, inner.plain() or {}, node.keys[name]
    return None, {}, node.mark


def _has_jinja(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_jinja(one) for key, one in value.items() if key not in ("to", "compare_model"))
    if isinstance(value, list):
        return any(map(_has_jinja, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _translated_options(options: Arguments) -> Arguments:
    if _has_jinja(options):
        raise NoCheckError("it contains Jinja, which only dbt can render")
    if options.get("enabled") is False:
        raise NoCheckError("it is disabled")
    if options.get("fail_calc") is not None:
        raise NoCheckError("it has fail_calc; lakegate's checks count rows")
    translated: Arguments = {
        name: options[name] for name in ("name", "where", "tags", "description") if options.get(name)
    }
    if isinstance(tags := translated.get("tags"), str):
        translated["tags"] = [tags]  # dbt takes one tag without a list
    return translated
