"""What to paste into an engine so that it writes to an open branch (``lakegate gate connect``).

Each template says where the token comes from: the variable ``LAKEGATE_GATE_TOKEN``. None contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent
from types import MappingProxyType
from typing import Final

from lakegate.errors import InputError
from lakegate.model.words import did_you_mean

DBT_DUCKDB_TABLE: Final = """\
{% materialization table, adapter="duckdb" %}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% if load_cached_relation(this) is none %}
    {% call statement('main') %} create table {{ target }} as ({{ compiled_code }}) {% endcall %}
  {% else %}
    {% set made = make_temp_relation(target) %}
    {% call statement('made') %} {{ create_table_as(True, made, compiled_code) }} {% endcall %}
    {% do process_schema_changes('sync_all_columns', made, target) %}
    {% call statement('clear') %} delete from {{ target }} {% endcall %}
    {% call statement('main') %} insert into {{ target }} by name (select * from {{ made }}) {% endcall %}
  {% endif %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
{% macro duckdb__persist_docs(relation, model, for_relation, for_columns) %}{% endmacro %}
"""
"""dbt-duckdb makes a table under another name and renames it at once, which DuckDB refuses in Iceberg. This doesn't.

DuckDB can't comment on Iceberg's tables, either.
"""
WRITERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pyiceberg": """\
import os
from pyiceberg.catalog import load_catalog

gate = load_catalog("gate", type="rest", uri="{uri}", token=os.environ["LAKEGATE_GATE_TOKEN"])""",
        "spark": """\
# spark-defaults.conf, or --conf for each; replace the dots with the value of LAKEGATE_GATE_TOKEN.
spark.jars.packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0
spark.sql.extensions org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions
spark.sql.catalog.gate org.apache.iceberg.spark.SparkCatalog
spark.sql.catalog.gate.type rest
spark.sql.catalog.gate.uri {uri}
spark.sql.catalog.gate.token …
spark.sql.catalog.gate.cache-enabled false
spark.sql.defaultCatalog gate""",
        "duckdb": """\
-- Replace the dots with the value of LAKEGATE_GATE_TOKEN. Tables are gate.NAMESPACE.TABLE.
INSTALL iceberg; LOAD iceberg;
ATTACH '{branch}' AS gate (TYPE iceberg, ENDPOINT '{uri}', TOKEN '…');""",
        "trino": """\
# etc/catalog/gate.properties:
connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri={uri}
iceberg.rest-catalog.warehouse={branch}
iceberg.rest-catalog.nested-namespace-enabled=true
iceberg.rest-catalog.security=OAUTH2
iceberg.rest-catalog.oauth2.token=${{ENV:LAKEGATE_GATE_TOKEN}}
# Tables on S3: fs.native-s3.enabled=true and s3.region=…, and keys of your own, or those that the gate lends:
# iceberg.rest-catalog.vended-credentials-enabled=true""",
        "dbt-spark": """\
# profiles.yml; pip install 'dbt-spark[session]'. In dbt_project.yml: models: {{+file_format: iceberg}}
PROFILE:
  target: gate
  outputs:
    gate:
      type: spark
      method: session
      host: NA
      schema: NAMESPACE
      server_side_parameters:
        spark.sql.catalog.gate: org.apache.iceberg.spark.SparkCatalog
        spark.sql.catalog.gate.type: rest
        spark.sql.catalog.gate.uri: {uri}
        spark.sql.catalog.gate.token: "{{{{ env_var('LAKEGATE_GATE_TOKEN') }}}}"
        spark.sql.catalog.gate.cache-enabled: "false"
        spark.sql.defaultCatalog: gate""",
        "dbt-duckdb": """\
# profiles.yml; pip install dbt-duckdb
PROFILE:
  target: gate
  outputs:
    gate:
      type: duckdb
      path: ":memory:"
      database: gate
      schema: NAMESPACE
      threads: 1
      extensions: [httpfs, avro, iceberg]
      attach:
        - path: {branch}
          alias: gate
          type: iceberg
          options: {{endpoint: "{uri}", token: "{{{{ env_var('LAKEGATE_GATE_TOKEN') }}}}"}}
# macros/table.sql, because DuckDB can't rename a table that it has just made, or comment on one:
{macro}""",
        "flink": """\
-- Replace the dots with the value of LAKEGATE_GATE_TOKEN.
CREATE CATALOG gate WITH ('type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = '{uri}', 'token' = '…');
USE CATALOG gate;""",
        "kafka-connect": """\
{{
  "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
  "iceberg.catalog.type": "rest",
  "iceberg.catalog.uri": "{uri}",
  "iceberg.catalog.token": "${{env:LAKEGATE_GATE_TOKEN}}"
}}""",
    }
)
"""Templates by engine. Those of Flink and Kafka Connect follow their documentation, and weren't run."""


def writer_snippet(engine: str, uri: str, branch: str) -> str:
    """Return what to paste into an engine.

    Args:
        uri: The gate's URL.
        branch: The open branch.

    Raises:
        InputError: The engine is unknown.

    Example:
        >>> print(writer_snippet("flink", "http://127.0.0.1:8181", "wap/x").splitlines()[-1])
        USE CATALOG gate;
    """
    if engine not in WRITERS:
        raise InputError(
            f"Unknown engine '{engine}'.", hint=f"{did_you_mean(engine, list(WRITERS))}Known: {', '.join(WRITERS)}."
        )
    macro = indent(DBT_DUCKDB_TABLE, "#   ").rstrip()
    return WRITERS[engine].format(uri=uri, branch=branch, macro=macro)
