"""Check definitions: what ``@check`` turns a function into, to call from Python, write as text, audit and document."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Integral
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from lakegate.checks.columns import QuotedColumn
from lakegate.checks.questions import (
    AboutChange,
    AboutColumns,
    Aggregates,
    CheckProblem,
    Filter,
    QueryRows,
    Question,
    RowTotal,
    TotalBeside,
    as_question,
    is_about_rows,
    read_filter,
)
from lakegate.errors import CheckError, LakegateError
from lakegate.model.checks import Check, Scope, Severity, Tolerance, parse_tolerance
from lakegate.model.schema import Schema
from lakegate.model.words import did_you_mean

P = ParamSpec("P")

BUILT_IN = "lakegate.checks.builtin"
"""The package of lakegate's own checks."""
MOST_EXAMPLES = 100
"""Maximum number of failing rows that a check can show."""
_COMMON = ("severity", "scope", "name", "where", "tolerance", "examples", "description", "owner", "tags")
_TOO_LARGE = 10**400  # larger than any float; Python can't even print much longer numbers
_MOST_SHOWN = 10
_PARAMETER = re.compile(r"``(\w+)``")
_LOOKS_AT: dict[Scope, str] = {"batch": "the rows of the batch", "table": "the whole table"}
_NO_ROWS = (RowTotal, TotalBeside, Aggregates, AboutColumns, AboutChange)
_NOT_A_TEXT = {
    "name": "isn't text; it names the check",
    "where": "isn't a condition about one row, as text",
    "description": "isn't text; it describes the check",
    "owner": "isn't text; it names who looks after the check",
}
_COLUMN, _OTHER = "a column of the audited table", "columns of another table"
_EXTRA = "more columns of the audited table"

ColumnName: TypeAlias = Annotated[str, _COLUMN]
"""A parameter that names a column. The check's function is given the column's *quoted* name, ready for SQL."""
OtherColumns: TypeAlias = Annotated[str | Sequence[str], _OTHER]
"""A parameter that names columns of another table."""
ExtraColumns: TypeAlias = Annotated[str | Sequence[str], _EXTRA]
"""A parameter, after others, that names more columns of the audited table, such as those to group by.

The check's function is given a tuple of their *quoted* names.
"""
Limit: TypeAlias = int | float | Decimal | date | str
"""A number, a date or time (also as ISO 8601 text), or text. Functions are given dates as text."""

_TYPES: dict[Any, tuple[type, ...]] = {
    bool: (bool,), int: (int,), float: (int, float), Decimal: (int, float), str: (str,), date: (str,),
    list: (list,), Sequence: (list,),
}  # fmt: skip
"""Annotations, and the types that their values have as JSON."""
_WORDS: dict[Any, str] = {
    bool: "True or False", int: "a whole number", float: "a number", Decimal: "a number", str: "quoted text",
    date: "quoted text", list: "a list", Sequence: "a list",
}  # fmt: skip


class CheckOptions(TypedDict, total=False):
    """The options of every check. ``**options: Unpack[CheckOptions]`` shows them to type checkers."""

    severity: Severity
    name: str | None
    where: str | None
    tolerance: Tolerance | None
    examples: int | None
    description: str | None
    owner: str | None
    tags: Sequence[str]


@dataclass(frozen=True, slots=True)
class Default:
    """The default of an option, in its annotation: a :class:`TypedDict` has no place for it."""

    value: Any


class BareName(str):
    """Text without quotes: it can name a column, but isn't a value."""

    __slots__ = ()


def audited(column: str) -> QuotedColumn:
    """Return a column that was passed to a check's function as a :data:`ColumnName`, with its name and type.

    Raises:
        TypeError: If it isn't one: lakegate didn't call the function.
    """
    if isinstance(column, QuotedColumn):
        return column
    raise TypeError(f"{column!r} isn't one of the columns that the check was given")


class CheckDefinition(Generic[P]):
    """A check's function after ``@check``. Calling it with the function's arguments returns a :class:`Check`.

    Attributes:
        parameters: Its own parameters in order, including columns, with evaluated annotations.
        columns: Its parameters that name columns of the audited table.
        parameter_aliases: Other names for its parameters and for the options of every check.
    """

    __name__: str

    def __init__(
        self,
        function: Callable[P, Any],
        *,
        name: str | None = None,
        example: str | None = None,
        aliases: Sequence[str] = (),
        parameter_aliases: Mapping[str, str] | None = None,
        scopes: Sequence[Scope] = ("batch",),
        each_column: bool = False,
        finds_columns: bool = False,
        nulls: str = "passes",
        nans: str = "as Spark SQL",
        evidence: str = "scan",
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = name or function.__name__
        self.aliases = tuple(aliases)
        self.scopes = tuple(scopes)
        self.nulls, self.nans, self.evidence = nulls, nans, evidence
        self._function: Callable[..., Any] = function
        self.parameter_aliases: Mapping[str, str] = dict(parameter_aliases or {})
        self._each_column = each_column
        self._finds_columns = finds_columns
        self._prepare: Callable[[Check], Check] | None = None
        self._validate: Callable[[Check, Schema], None] | None = None
        self._claim: Callable[[Check], str] | None = None
        self.parameters: Mapping[str, inspect.Parameter] = _parameters(function)
        self.columns = tuple(one.name for one in self.parameters.values() if _has(_COLUMN, one.annotation))
        self._extra_columns = [one.name for one in self.parameters.values() if _has(_EXTRA, one.annotation)]
        # A check's own parameter takes precedence over an option of the same name, which may be newer.
        self._common = [name for name in _COMMON if name == "scope" or name not in self.parameters]
        self._is_about_rows = get_type_hints(function).get("return") not in _NO_ROWS
        self._takes_more = any(one.kind is one.VAR_POSITIONAL for one in self.parameters.values())
        # Those that can be given by position come first.
        arguments = [one for one in self.parameters.values() if one.name not in (*self.columns, "scope")]
        self._arguments = [one.name for one in sorted(arguments, key=lambda one: one.kind is one.KEYWORD_ONLY)]
        self.example = example or self._plain_example()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Check:
        """Return the check with these arguments.

        Raises:
            CheckError: If an argument is invalid.
        """
        first, *more = self.make(args, kwargs)
        if more:
            raise self.error(f"a call makes one check of one column: make {1 + len(more)} calls, one for each column.")
        return first

    def prepare(self, hook: Callable[[Check], Check]) -> Callable[[Check], Check]:
        """Decorate a function that completes a check before a schema is known, or raises :class:`ValueError`."""
        self._prepare = hook
        return hook

    def validate(self, hook: Callable[[Check, Schema], None]) -> Callable[[Check, Schema], None]:
        """Decorate a function that refuses a check for a schema with a :class:`ValueError`."""
        self._validate = hook
        return hook

    def claim(self, hook: Callable[[Check], str]) -> Callable[[Check], str]:
        """Decorate a function that describes a check in one sentence, if the docstring's first line can't."""
        self._claim = hook
        return hook

    @property
    def signature(self) -> str:
        """How to write the check: ``in_range(column, min, max, inclusive=True)``."""
        words = []
        for one in self.parameters.values():
            if one.kind is one.VAR_POSITIONAL:
                words.append("…")
            elif one.default not in (None, one.empty):
                words.append(f"{one.name}={one.default!r}")
            else:
                words.append(f"{one.name}=…" if one.kind is one.KEYWORD_ONLY else one.name)
                words += ["…"] * (self._each_column and one.name in self.columns)
        return f"{self.name}({', '.join(words)})"

    def _plain_example(self) -> str:
        """Return the check with made-up values for required arguments."""
        words = []
        for one in self.parameters.values():
            if one.kind is one.VAR_POSITIONAL or one.default is not one.empty:
                continue
            kinds = _kinds(one.annotation)
            made_up = one.name if one.name in self.columns else _sample_value(one.annotation, kinds)
            words.append(f"{one.name}={made_up}" if one.kind is one.KEYWORD_ONLY else made_up)
        return f"{self.name}({', '.join(words)})"

    def names_columns(self, written: str) -> bool:
        """Return whether an argument names columns of the audited table or of another one."""
        one = self.parameters.get(self.parameter_aliases.get(written, written))
        return one is not None and any(_has(mark, one.annotation) for mark in (_COLUMN, _OTHER, _EXTRA))

    def may_be_none(self, written: str) -> bool:
        """Return whether an argument accepts ``None``, which omits it."""
        name = self.parameter_aliases.get(written, written)
        one = self.parameters.get(name)
        return NoneType in _kinds(get_type_hints(CheckOptions).get(name) if one is None else one.annotation)

    def resolve(self, check: Check, spell: Callable[[str], str]) -> Check:
        """Return ``check`` with column names, also in its arguments, spelled by ``spell``."""
        arguments = dict(check.arguments)
        for name in self._extra_columns:
            if name in arguments:
                spelled = tuple(dict.fromkeys(map(spell, _names(arguments[name]))))
                arguments[name] = list(spelled) if len(spelled) > 1 else spelled[0]
        return check.model_copy(update={"columns": tuple(map(spell, check.columns)), "arguments": arguments})

    def options_of(self, check: Check) -> dict[str, Any]:
        """Return a check's options that differ from the defaults, by the names they are written with."""
        options: dict[str, Any] = {} if check.severity == "error" else {"severity": check.severity}
        if check.scope != self.scopes[0]:
            options["scope"] = check.scope
        if check.label:
            options["name"] = check.label
        for name in ("where", "tolerance", "examples", "description", "owner"):
            if (value := getattr(check, name)) is not None:
                options[name] = value
        return {**options, "tags": list(check.tags)} if check.tags else options

    @property
    def documentation(self) -> str:
        """The docstring without its example."""
        return inspect.cleandoc(self.__doc__ or "").partition("\nExample:")[0].strip()

    @property
    def summary(self) -> str:
        """The docstring's first line, with parameters in double backticks."""
        return self.documentation.partition("\n")[0]

    def error(self, problem: str, hint: str | None = None) -> CheckError:
        """Return the error for a badly written check. By default, the hint shows how to write it."""
        return CheckError(f"{self.name}: {problem}", hint=hint or self._usage, check=self.name)

    def describe(self, check: Check) -> str:
        """Return what ``check`` requires in one sentence, without a period."""
        if self._claim is not None:
            return self._claim(check)
        summary = self.summary[:1].lower() + self.summary[1:].removesuffix(".")
        shown, names = _PARAMETER.subn(lambda match: self._shown(match[1], check), summary)
        return shown if names or not summary or self.__module__.startswith(BUILT_IN) else f"{check}: {summary}"

    def ask(self, check: Check, schema: Schema) -> Question:
        """Return the question that answers a check whose columns are spelled as in ``schema``.

        Raises:
            CheckError: If the check can't be used on these columns, or its function fails.
        """
        columns = [_quoted(name, schema) for name in check.columns if self.columns]
        named: dict[str, Any] = {} if self._takes_more else dict(zip(self.columns, columns, strict=True))
        named |= {**check.arguments, **({"scope": check.scope} if "scope" in self.parameters else {})}
        extra = [name for name in self._extra_columns if name in check.arguments]
        named |= {name: tuple(_quoted(one, schema) for one in _names(check.arguments[name])) for name in extra}
        is_ours = self.__module__.startswith(BUILT_IN)
        try:
            if self._validate is not None:
                self._validate(check, schema)
            answer = self._function(*(columns if self._takes_more else ()), **named)
            question = as_question(answer, schema, is_ours=is_ours)
            _require_rows(check, is_about=is_about_rows(question), diverts=not isinstance(question, QueryRows))
            _require_filterable(check, question)
        except LakegateError:
            raise
        except ValueError as error:
            raise refuse(check, str(error), getattr(error, "hint", None) or self._usage) from None
        except Exception as error:
            raise refuse(
                check, f"its function failed ({type(error).__name__}): {error}", f"Correct {self.__module__}."
            ) from error
        return question

    def filter(self, check: Check, schema: Schema) -> Filter | None:
        """Return which rows ``check`` judges; ``None`` for all.

        Raises:
            CheckError: If its ``where`` doesn't fit ``schema``.
        """
        try:
            return None if check.where is None else read_filter(check.where, schema)
        except ValueError as error:
            hint = getattr(error, "hint", None) or "Write a condition about one row: where='vendor_id = 1'."
            raise refuse(check, str(error), hint) from None

    def make(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """Return the checks for ``name(*positional, **keywords)``.

        The options of :class:`CheckOptions` and ``scope`` work for every check. A name given to several checks at once
        (``not_null(a, b, name='keys')``) is extended with each check's columns.

        Raises:
            CheckError: If arguments are missing, unknown, repeated or of the wrong type.
        """
        keywords = {self._common_name(name): value for name, value in keywords.items()}
        columns, arguments = self._bind(positional, {k: v for k, v in keywords.items() if k not in self._common})
        common = {key: self._as_json(keywords[key]) for key in self._common if keywords.get(key) is not None}
        severity, scope, label = self._severity(common), self._scope(common), self._text(common, "name")
        groups = [(column,) for column in columns] if self._each_column else [columns]
        checks = [
            Check(
                kind=self.name,
                columns=group,
                arguments=arguments,
                severity=severity,
                scope=scope,
                label="_".join((label, *group)) if label and len(groups) > 1 else label,
                where=self._where(common),
                tolerance=self._tolerance(common),
                examples=self._examples(common),
                description=self._text(common, "description"),
                owner=self._text(common, "owner"),
                tags=self._tags(common),
            )
            for group in groups
        ]
        try:
            _require_rows(checks[0], is_about=self._is_about_rows)
            return tuple(checks if self._prepare is None else map(self._prepare, checks))
        except ValueError as error:
            raise self.error(str(error), getattr(error, "hint", None)) from None

    @property
    def _usage(self) -> str:
        return f"Write {self.signature}, for example: {self.example}"

    def _shown(self, name: str, check: Check) -> str:
        if name in self.columns:
            return " and ".join(check.columns) if self._takes_more else check.columns[self.columns.index(name)]
        value = check.arguments.get(name, self.parameters[name].default if name in self.parameters else None)
        if not isinstance(value, list):
            return str(value)
        more = f" and {len(value) - _MOST_SHOWN} more" if len(value) > _MOST_SHOWN else ""
        return ", ".join(map(repr, value[:_MOST_SHOWN])) + more

    def _bind(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Split the arguments into columns and named JSON values."""
        named = self._named(keywords)
        given = list(positional)
        if self._takes_more and len(given) == 1 and isinstance(given[0], (list, tuple)):
            given = list(given[0])  # relationships((a, b), …)
        for index, name in enumerate(self.columns):
            if name in named:
                given.insert(index, named.pop(name))
        any_number = self._takes_more or self._each_column
        if any_number or (self._finds_columns and set(self._arguments) <= named.keys()):
            count = len(given)
        else:
            count = len(self.columns)
        columns = self._distinct(given[:count])
        if len(given) - count > len(self._arguments):
            limit = count + len(self._arguments)
            raise self.error(f"it takes at most {limit} argument{'s' * (limit != 1)}, {len(given)} are given.")
        values = dict(zip(self._arguments, given[count:], strict=False))
        for name in values:
            if name in named:
                raise self.error(f"'{name}' is given twice.")
        values |= named
        arguments = {name: found for name, value in values.items() if (found := self._value(name, value)) is not None}
        for name in self._arguments:
            if self.parameters[name].default is inspect.Parameter.empty and name not in arguments:
                raise self.error(f"it needs {name}=…, {self._wanted(name)}.")
        return columns, arguments

    def _distinct(self, written: Sequence[Any]) -> tuple[str, ...]:
        columns = tuple(self._column(value) for value in written)
        if len(columns) < len(self.columns) - self._takes_more:
            raise self.error("it needs a column." if not columns else f"it needs {len(self.columns)} columns.")
        for name in columns:
            if columns.count(name) > 1:
                raise self.error(f"column '{name}' is given twice.")
        return columns

    def _common_name(self, written: str) -> str:
        """Return this check's alias for an option of every check."""
        name = self.parameter_aliases.get(written, written)
        return name if name in self._common else written

    def _named(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for written, value in keywords.items():
            name = self.parameter_aliases.get(written, written)
            if name not in self.parameters:
                guess = did_you_mean(name, (*self.parameters, *self._common))
                raise self.error(f"there is no argument '{name}'. {guess}".strip())
            if name in values:
                raise self.error(f"two of the arguments mean the same: '{written}' is another name for '{name}'.")
            if value is not None or self.parameters[name].default not in (None, inspect.Parameter.empty):
                values[name] = value
        return values

    def _value(self, name: str, value: Any) -> Any:
        """Return an argument as a JSON value; ``None`` if it's the default."""
        one = self.parameters[name]
        if value is not None and (_has(_OTHER, one.annotation) or _has(_EXTRA, one.annotation)):
            names = [self._column(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
            if not names:
                raise self.error(f"{name}=[] names no column.")
            return names if len(names) > 1 else names[0]
        value = self._as_json(value)
        kinds = _kinds(one.annotation)
        is_wanted = not kinds or any(_is_value_of(kind, value) for kind in kinds)
        if value is None:  # omits the argument; never allowed if there's another default
            is_wanted = one.default in (None, one.empty)
        if not is_wanted:
            raise self.error(f"{name}={value!r} isn't {self._wanted(name)}.")
        return None if type(value) is type(one.default) and value == one.default else value

    def _wanted(self, name: str) -> str:
        words = (_words(kind) for kind in _kinds(self.parameters[name].annotation))
        return " or ".join(dict.fromkeys(word for word in words if word)) or "a value"

    def _as_json(self, value: Any) -> Any:
        """Return ``value`` as a JSON value: dates as ISO 8601 text, decimals without losing digits."""
        if isinstance(value, BareName):
            raise self.error(f"text needs quotes: '{value}'.")
        if isinstance(value, (list, tuple)):
            return [self._as_json(item) for item in value]
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Decimal):
            return _decimal_as_json(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(f"{value} isn't a finite number.")
        if isinstance(value, int) and abs(value) >= _TOO_LARGE:
            raise self.error("a number has more than 400 digits.")
        if value is None or isinstance(value, bool):
            return value
        # NumPy's numbers and members of enums have another repr, which couldn't be parsed.
        if isinstance(value, str):
            return self._encodable(value)
        if isinstance(value, (float, Integral)):
            return float(value) if isinstance(value, float) else int(value)
        raise self.error(f"{value!r} isn't a number, text, a date, True, False or a list of these.")

    def _column(self, value: Any) -> str:
        # A column may be called None, True or False, which the parser reads as constants.
        if value is None or isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise self.error(f"{value!r} isn't a column name.")
        if not value:
            raise self.error("a column name is empty.")
        return self._encodable(value)

    def _encodable(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.error(f"{text!r} contains half of a surrogate pair, which no text column can hold.") from None
        return str.__str__(text)

    def _severity(self, common: Mapping[str, Any]) -> Severity:
        severity: Severity = common.get("severity", "error")
        if severity in get_args(Severity):
            return severity
        raise self.error(
            f"there is no severity {severity!r}.",
            did_you_mean(str(severity), get_args(Severity))
            + "Use severity='error' (a failure blocks the publish), severity='warn' (it is only reported) or "
            "severity='quarantine' (the failing rows are set aside).",
        )

    def _scope(self, common: Mapping[str, Any]) -> Scope:
        scope: Scope = common.get("scope", self.scopes[0])
        if scope in self.scopes:
            return scope
        looks_at = " or ".join(_LOOKS_AT[known] for known in self.scopes)
        scopes = " or ".join(f"scope='{known}'" for known in self.scopes)
        raise self.error(
            f"scope={scope!r} isn't supported; it looks at {looks_at}.", f"Leave scope out, or write {scopes}."
        )

    def _where(self, common: Mapping[str, Any]) -> str | None:
        """Return the filter, which must be a condition on one row. Its columns are resolved once a schema is known."""
        text = self._text(common, "where")
        if text is not None:
            try:
                read_filter(text)
            except ValueError as error:
                raise self.error(str(error)) from None
        return text

    def _tolerance(self, common: Mapping[str, Any]) -> Tolerance | None:
        given = common.get("tolerance")
        try:
            return None if given is None else parse_tolerance(given) or None
        except ValueError as error:
            raise self.error(f"{error}.") from None

    def _examples(self, common: Mapping[str, Any]) -> int | None:
        number = common.get("examples")
        if number is None or (type(number) is int and 0 <= number <= MOST_EXAMPLES):
            return number
        raise self.error(f"examples={number!r} isn't a whole number from 0 to {MOST_EXAMPLES}.")

    def _tags(self, common: Mapping[str, Any]) -> tuple[str, ...]:
        tags = common.get("tags", [])
        if isinstance(tags, str):
            raise self.error(f"tags={tags!r} isn't a list.", f"Put it into one: tags=[{tags!r}]")
        if not isinstance(tags, list) or not all(isinstance(tag, str) and tag.strip() for tag in tags):
            raise self.error(f"tags={tags!r} isn't a list of words.")
        return tuple(dict.fromkeys(tag.strip() for tag in tags))

    def _text(self, common: Mapping[str, Any], name: str) -> str | None:
        text = common.get(name)
        if text is None or (isinstance(text, str) and text.strip()):
            return text if text is None or name == "name" else text.strip()
        raise self.error(f"{name}={text!r} {_NOT_A_TEXT[name]}.")


def _require_filterable(check: Check, question: Question) -> None:
    if check.where is not None and isinstance(question, (AboutColumns, AboutChange, TotalBeside)):
        raise CheckProblem("it isn't about rows that where= could select.", "Leave where out.")


def _names(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _quoted(name: str, schema: Schema) -> QuotedColumn:
    found = schema.resolve(name)
    if found is None:
        raise KeyError(name)
    path, type_ = found
    return QuotedColumn(name, type_, path)


def _require_rows(check: Check, *, is_about: bool, diverts: bool = True) -> None:
    """Refuse options about failing rows on a check that doesn't find any."""
    if check.severity == "quarantine" and not (is_about and diverts):
        why = "compares rows by a query" if is_about else "isn't about single rows"
        raise CheckProblem(f"it {why}, so none can be set aside.", "Use severity='error' or 'warn'.")
    if check.tolerance is not None and not is_about:
        raise CheckProblem("it isn't about single rows, so none can be tolerated.", "Widen its limits instead.")


def refuse(check: Check, problem: str, hint: str, *, detail: str | None = None) -> CheckError:
    """Return the error for a check that can't be used here."""
    columns = list(check.columns) or None
    return CheckError(f"{check}: {problem}", hint=hint, detail=detail, check=str(check), columns=columns)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return a check function's own parameters with their annotations, without the options of every check."""
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, inspect.Parameter] = {}
    for one in inspect.signature(function).parameters.values():
        annotation = hints.get(one.name)
        is_options = one.kind is one.VAR_KEYWORD
        for parameter in _own_options(annotation) if is_options else [one.replace(annotation=annotation)]:
            if problem := _parameter_problem(parameter, [*found.values()]):
                raise TypeError(f"{function.__qualname__}() can't be a check: parameter '{parameter.name}' {problem}")
            found[parameter.name] = parameter
    return found


def _own_options(annotation: Any) -> Iterator[inspect.Parameter]:
    """Yield the options of ``**options: Unpack[…]`` that not every check has, as keyword parameters."""
    for options in filter(is_typeddict, get_args(annotation)):
        for name, kind in get_type_hints(options, include_extras=True).items():
            default = next((one.value for one in get_args(kind) if isinstance(one, Default)), None)
            if name not in CheckOptions.__annotations__:
                yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _parameter_problem(one: inspect.Parameter, before: Sequence[inspect.Parameter]) -> str | None:
    if _has(_COLUMN, one.annotation):
        if one.default is not one.empty or not all(_has(_COLUMN, other.annotation) for other in before):
            return "is a column: it must have no default and come before all other parameters"
        return None
    kinds = _kinds(one.annotation)
    is_known = one.annotation is not None and all(_words(kind) or kind is NoneType for kind in kinds)
    if one.name in ("column", "columns") or not is_known or (str not in kinds and {date, Decimal} & set(kinds)):
        return (
            f"is annotated as {one.annotation}; use ColumnName for a column of the table, which quotes it, and for "
            "other parameters str, int, float, bool, Literal or lists (dates and decimals arrive as text: Limit)"
        )
    if NoneType in kinds and one.default not in (None, one.empty):
        return "allows None, so its default must be None"
    if one.kind is one.VAR_POSITIONAL or one.name in ("severity", "name"):
        return "isn't allowed: only columns may be variadic, and every check has severity and name anyway"
    return None


def _has(mark: str, annotation: Any) -> bool:
    return mark in get_args(annotation) or any(_has(mark, one) for one in get_args(annotation))


def _sample_value(annotation: Any, kinds: Sequence[Any]) -> str:
    """Return the text of some value of a parameter's type."""
    if get_origin(annotation) is Literal:
        return repr(get_args(annotation)[0])
    if {int, float, Decimal} & set(kinds):
        return "1"
    if bool in kinds:
        return "True"
    return "'text'" if str in kinds else "['a', 'b']"


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """Return the types that an annotation allows; empty for ``Any``."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return tuple(kind for one in get_args(annotation) for kind in _kinds(one))
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    return () if annotation is Any else (annotation if origin is Literal else origin or annotation,)


def _is_value_of(kind: Any, value: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    return isinstance(value, _TYPES.get(kind, ())) and (isinstance(value, bool) <= (kind is bool))


def _words(kind: Any) -> str | None:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return _WORDS.get(kind)


def _decimal_as_json(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value) if abs(value) < 10**40 else str(value)
    nearby = float(value)
    return nearby if Decimal(repr(nearby)) == value else str(value)
