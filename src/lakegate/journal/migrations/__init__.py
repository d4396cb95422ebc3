"""The journal's schema, version by version (Alembic).

A migration describes its version by itself, and is never changed once it was released.
"""
