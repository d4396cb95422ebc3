"""Alembic's door into the migrations: they run in the transaction that the journal opened."""

from __future__ import annotations

from alembic import context

# SQLite can take back changes of the schema too, which Alembic does not expect of it.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
