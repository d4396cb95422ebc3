"""What a check's function says of it, and checks of users: defined here, in a module, or in an installed package."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any

import pytest

from lakegate import checks as public
from lakegate.checks import (
    ColumnName,
    DuplicateRows,
    FailingRows,
    OrphanRows,
    check,
    definition,
    describe,
    parse_check,
    parse_checks,
    registry,
    validate_checks,
)
from lakegate.checks.registry import built_in, find_check, known_checks
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema

SCHEMA = Schema(
    columns=(
        Column(name="Account", type="string"),
        Column(name="odd`name", type="string"),
        Column(name="amount", type="long"),
    )
)


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "USERS", {})


def predicate(text: str, schema: Schema = SCHEMA) -> Any:
    (valid,) = validate_checks(parse_checks(text), schema)
    question = find_check(valid.kind).ask(valid, schema)
    assert isinstance(question, FailingRows)
    return question.predicate


# Built in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", built_in())
def test_a_built_in_check_is_exported(name: str) -> None:
    found = find_check(name)
    assert found.name == name
    assert getattr(public, found.__name__, None) is found, "run: make reference"
    assert found.__name__ in public.__all__
    assert found.documentation
    for example in found.example.split("  or  "):
        assert parse_checks(example)[0].kind == name


def test_no_other_check_is_exported() -> None:
    exported = sorted(find_check(name).__name__ for name in built_in())
    assert sorted(public.builtin.__all__) == exported, "run: make reference"


def test_a_summary_is_one_sentence_that_reports_can_show() -> None:
    summaries = [find_check(name).summary for name in built_in()]
    assert [text for text in summaries if ". " in text or not text.endswith(".")] == []


# A user's own --------------------------------------------------------------------------------------------------


def test_a_function_is_a_check() -> None:
    @check
    def is_iban(column: ColumnName, country: str = "NL", *, strict: bool = False) -> str:
        """Every text has the form of an IBAN. NULL passes."""
        return f"NOT ({column} RLIKE '^{country}[0-9]{{2}}') AND {str(strict).lower()}"

    assert predicate("is_iban(account, 'DE')") == "(NOT (`Account` RLIKE '^DE[0-9]{2}') AND false)"
    assert predicate("is_iban('odd`name', strict=True)") == "(NOT (`odd``name` RLIKE '^NL[0-9]{2}') AND true)"
    assert is_iban("Account", country="DE") == parse_check("is_iban(Account, 'DE')")
    assert str(is_iban("Account", "NL", strict=True)) == "is_iban(Account, strict=True)"
    assert describe(is_iban("Account")) == "is_iban(Account): every text has the form of an IBAN. NULL passes"
    assert parse_check("is_iban(a, severity='warn', name='form')").label == "form"
    assert "is_iban" in known_checks()


def test_a_function_may_ask_about_keys_and_be_of_another_scope() -> None:
    @check(scopes=("table",), aliases=("primary_key",), parameter_aliases={"of": "to"})
    def key(column: ColumnName, *more: ColumnName, to: str = "") -> DuplicateRows:
        return DuplicateRows(tuple(definition.audited(name).name for name in (column, *more)), "table")

    assert parse_check("primary_key(a)") == parse_check("key(a)")
    (valid,) = validate_checks([parse_check("key(ACCOUNT, amount, of='x')")], SCHEMA)
    assert (valid.columns, valid.scope, valid.arguments) == (("Account", "amount"), "table", {"to": "x"})
    assert find_check("key").ask(valid, SCHEMA) == DuplicateRows(("Account", "amount"), "table")


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ("amount >", "its predicate 'amount >' isn't valid SQL"),
        ("sum(amount) > 1", "calls sum(), which takes many rows"),
        ("amount > (SELECT 1)", "subquery"),
        ("amount > 1 -- OR x", "comment"),
        ("amount IN (SELECT id FROM other)", "subquery"),
        ("nothing > 1", "refers to column 'nothing', which the table doesn't have"),
        ("amount = '${x}'", "settings"),
        (None, "returned None, which is neither SQL nor a question"),
        (5, "returned 5, which is neither"),
        (ValueError("amounts are in cents"), "amounts are in cents"),
        (KeyError("x"), "its function failed (KeyError): 'x'"),
    ],
)
def test_what_a_function_returns_is_looked_through_before_anything_runs(made: object, problem: str) -> None:
    @check
    def own(column: ColumnName) -> Any:
        if isinstance(made, Exception):
            raise made
        return made

    with pytest.raises(CheckError) as caught:
        validate_checks([own("amount")], SCHEMA)
    assert caught.value.message.startswith("own(amount): ")
    assert problem in caught.value.message


def unannotated(column, limit):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - that's its point
    return ""


def a_text(column: str) -> str:
    return column


def late(limit: int, column: ColumnName) -> str:
    return column


def odd(a: ColumnName, b: dict[str, int]) -> str:
    return a


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (unannotated, "parameter 'column' is annotated as None; use ColumnName"),
        (a_text, "use ColumnName for a column of the table, which quotes it"),
        (late, "must have no default and come before all other parameters"),
        (odd, "parameter 'b' is annotated as dict"),
    ],
)
def test_functions_that_cannot_be_checks(function: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        check(function)


def test_no_function_takes_the_place_of_a_built_in_check() -> None:
    def unique(column: ColumnName) -> str:
        return column

    with pytest.raises(TypeError, match="there is a built-in check 'unique'"):
        check(unique)


# Installed -----------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("bank_checks")
    exec(  # noqa: S102 - a package of somebody else's
        "from lakegate.checks import ColumnName, check\n"
        "@check(aliases=('iban',))\n"
        "def is_iban(column: ColumnName) -> str:\n"
        "    return f\"NOT ({column} RLIKE '^[A-Z]{{2}}')\"\n"
        "BROKEN = object()\n",
        module.__dict__,
    )
    monkeypatch.setitem(sys.modules, "bank_checks", module)
    registry.USERS.clear()
    names = {
        "is_iban": "is_iban",
        "iban": "is_iban",
        "other": "is_iban",
        "broken": "BROKEN",
        "absent": "nothing",
        "unique": "is_iban",
    }
    points = EntryPoints([EntryPoint(name, f"bank_checks:{value}", registry.GROUP) for name, value in names.items()])
    monkeypatch.setattr(registry, "_offered", lambda: points)


def test_other_packages_offer_checks(installed: None) -> None:
    assert parse_checks("is_iban(s)") == (Check(kind="is_iban", columns=("s",)),)
    assert parse_check("iban(s)") == parse_check("is_iban(s)")
    assert predicate("is_iban(account)") == "(NOT (`Account` RLIKE '^[A-Z]{2}'))"
    assert "is_iban" in known_checks()
    assert find_check("unique") is public.unique


@pytest.mark.parametrize(
    ("name", "problem"),
    [("broken", "isn't a check of that name"), ("other", "isn't a check of that name"), ("absent", "can't be loaded")],
)
def test_a_check_that_cannot_be_loaded_says_so(installed: None, name: str, problem: str) -> None:
    with pytest.raises(CheckError, match=problem):
        parse_checks(f"{name}(s)")


# What two checks would share ------------------------------------------------------------------------------------


def of_module(module: str, **options: Any) -> Any:
    def is_iban(column: ColumnName) -> str:
        return f"{column} = '{module}'"

    is_iban.__module__ = module
    return check(**options)(is_iban)


def test_a_check_is_defined_again_by_its_own_module_only() -> None:
    of_module("notebook")
    again = of_module("notebook", aliases=("iban",))
    assert find_check("is_iban") is again
    for options in ({}, {"aliases": ("iban",)}):
        with pytest.raises(TypeError, match="there is a check 'is_iban' of notebook; give the function another name"):
            of_module("other", **options)
    assert find_check("is_iban") is find_check("iban") is again


def test_no_function_takes_the_place_of_an_installed_check(installed: None) -> None:
    with pytest.raises(TypeError, match="there is a check 'is_iban' of bank_checks"):
        of_module("notebook")
    of_module("bank_checks.forms")  # which an entry point may name by the package
    with pytest.raises(CheckError, match=r"two checks called 'is_iban': one in bank_checks, one in bank_checks\.forms"):
        parse_check("is_iban(s)")


# Keys ----------------------------------------------------------------------------------------------------------


PLANES = TableIdentifier.parse("nyc.planes")


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (DuplicateRows(()), "its key has no columns"),
        (DuplicateRows(("nothing",)), "there is no column 'nothing'"),
        (DuplicateRows(("amount", "AMOUNT")), "it names one column twice"),
        (DuplicateRows(["amount"]), "isn't a tuple of column names"),  # type: ignore[arg-type]
        (OrphanRows((), PLANES, ()), "its key has no columns"),
        (OrphanRows(("amount",), PLANES, ("a", "b")), "its key and the other table's have 1 and 2 columns"),
        (OrphanRows(("nothing",), PLANES, ("a",)), "there is no column 'nothing'"),
    ],
)
def test_a_key_is_looked_through_before_anything_is_written(made: Any, problem: str) -> None:
    @check(scopes=("batch", "table"))
    def own(column: ColumnName) -> Any:
        return made

    with pytest.raises(CheckError) as caught:
        validate_checks([own("amount")], SCHEMA, lambda _: SCHEMA)
    assert caught.value.message.startswith("own(amount): ")
    assert problem in caught.value.message
