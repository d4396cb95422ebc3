"""What is read in the text of a plan, as Spark 4.1 writes it; tests/integration/test_sql_guard.py asks Spark itself."""

from __future__ import annotations

from typing import Any

import pytest

from lakegate.errors import QueryError
from lakegate.model.refs import Ref
from lakegate.spark import guard
from lakegate.spark.engine import SparkEngine
from lakegate.spark.guard import review_plan
from lakegate.spark.transaction import SparkTransaction

TABLE = "lakegate.n.t"


def problem(*lines: str, is_query: bool = False) -> str | None:
    plan = "\n".join(lines)
    return review_plan(
        f"== Parsed ==\nx\n\n== Analyzed Logical Plan ==\n{plan}\n\n== Optimized\n", is_query=is_query
    ).problem


@pytest.mark.parametrize(
    "lines",
    [
        ("id: bigint", "Project [id#1L]", "+- SubqueryAlias lakegate.n.t", f"   +- RelationV2[id#1L] {TABLE}"),
        (f"RelationV2[id#1L] {TABLE} VERSION AS OF '17'",),
        (f":  +- RelationV2[id#1L] {TABLE}.files TIMESTAMP AS OF 1700000000000000",),
        ("RelationV2[a]b#1L, x] lakegate.n.`t@main`#2L, two", f"lines#4L] {TABLE}"),
        (f"AppendData RelationV2[id#1L] {TABLE}, [a=b], true", f"+- RelationV2[id#2L] {TABLE}"),
        (
            f"OverwriteByExpression RelationV2[id#1L] {TABLE}, (id#1L = cast(7 as bigint)), false",
            "+- LocalRelation [id#2]",
        ),
        (f"WriteDelta RelationV2[id#1L] {TABLE}",),
        ("DropTable true, false", "+- ResolvedIdentifier org.apache.iceberg.spark.SparkCatalog@4f3c56ff, n.t"),
        ("NoopCommand DROP TABLE, [n, t]",),
    ],
)
def test_what_a_transaction_may_do(lines: tuple[str, ...]) -> None:
    assert problem(*lines) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("+- RelationV2[id#1L] lakegate.n.`t@main`", "use lakegate.n.`t@main`"),
        ("OverwriteByExpression RelationV2[id#1L] lakegate.n.`t@main`, (id#1L = 7), false", "use lakegate.n.`t@main`"),
        ("RelationV2[x] lakegate.n.t, y#1L] lakegate.n.`t#abc`", "use lakegate.n.`t#abc`"),
        ("RelationV2[id#1L] prod.n.t", "use prod.n.t"),
        ("RelationV2[id#1L]", "use tables whose names can't be read"),
        ("+- Relation [value#1] text", "use what isn't a table (Relation)"),
        ("+- ResolvedIdentifier V2SessionCatalog(spark_catalog), default.n", "use default.n of another catalog"),
        ("CreateTempViewUsing [tableIdentifier:`v` provider:text]", "run CreateTempViewUsing"),
        ("ScriptTransformation touch /tmp/x, [key#1], ScriptInputOutputSchema()", "run a program"),
        ("Project [reflect(java.lang.System, getenv, HOME, true) AS x#1]", "run code"),
        ("Project [xpath_int(x#1, a) AS y#2]", "open files which XML names"),
    ],
)
def test_what_it_may_not(line: str, said: str) -> None:
    assert said in str(problem(line))


def test_a_query_may_read_what_others_have() -> None:
    assert problem("RelationV2[id#1L] prod.n.`t@x`", "+- Relation [value#1] text", is_query=True) is None
    assert problem("RelationV2[id#1L] lakegate.n.`t@x`", is_query=True) == "use lakegate.n.`t@x`"


def test_what_is_read_is_what_is_not_only_written() -> None:
    plan = "== Analyzed Logical Plan ==\nAppendData RelationV2[id#1L] lakegate.n.t, true\n+- Project [x#2]\n"
    below = (
        "   +- RelationV2[id#3L] lakegate.n.`s-1`.branch_main\n   +- RelationV2[id#3L] lakegate.n.u VERSION AS OF '1'\n"
    )
    assert review_plan(plan, is_query=False).read == set()
    assert review_plan(plan + below, is_query=False).read == {"n.s-1.branch_main", "n.u"}
    assert review_plan(below, is_query=False).problem == "run SQL whose plan Spark doesn't show"


@pytest.mark.parametrize(
    "line",
    [
        "+- RelationV2[x#1] lakegate.n.t\n#2L, id#3L] lakegate.n.`t@main`",
        "+- RelationV2[x] lakegate.n.t, \nProject [a#1] lakegate.n.t\n#2L] lakegate.n.`t@main`",
        "Project [\n== Optimized]\n+- RelationV2[x#1] lakegate.n.`t@main`",
        "Project [== Analyzed Logical Plan ==\nx\n== Optimized]\n+- RelationV2[x#1] lakegate.n.`t@main`",
    ],
)
def test_no_column_and_no_text_hides_a_relation(line: str) -> None:
    assert problem(line, is_query=True) == "use lakegate.n.`t@main`"


class Unasked:
    """A session of Spark Connect that must not be asked to analyse anything."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def sql(self, text: str) -> Any:
        self.asked.append(text)
        return None


@pytest.mark.parametrize(
    "sql",
    [
        "EXECUTE IMMEDIATE 'DELETE FROM n.t'",
        "EXPLAIN EXECUTE IMMEDIATE 'DELETE FROM n.t'",
        "CALL lakegate.system.rollback_to_snapshot('n.t', 1)",
        "EXPLAIN CALL lakegate.system.rollback_to_snapshot('n.t', 1)",
        "BEGIN DELETE FROM n.t; END",
        "BEGIN SELECT 1 END",
        "a: BEGIN SELECT 1; END",
        "DECLARE x INT",
    ],
)
def test_what_runs_while_it_is_analysed_is_not_analysed(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr(guard, "_explained", lambda _, text: asked.append(text))
    monkeypatch.setattr(guard, "is_connect", lambda _: True)
    session = Unasked()
    engine = SparkEngine(lambda _: session, lambda _: {}, shares_files=True)
    with pytest.raises(QueryError):
        engine.query(sql, Ref(name="main", hash="0", kind="branch"))
    monkeypatch.setattr("lakegate.spark.transaction.catalogs_of", lambda _: frozenset())
    monkeypatch.setattr("lakegate.spark.transaction.require_harmless", lambda *_, **__: asked.append(sql))
    tx = SparkTransaction(session, "b", create=lambda *_: None, ended=lambda: None)
    for run in (tx.used_by, tx.sql):
        with pytest.raises(QueryError):
            run(sql)
    assert (asked, session.asked) == ([], ["SET CATALOG lakegate"])
