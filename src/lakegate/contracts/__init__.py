"""Contracts: what a table must be like, in one YAML file of the project, read wherever ``lakegate.toml`` is.

Where to look: :mod:`~lakegate.contracts.model` (what a contract holds), :mod:`~lakegate.contracts.store` (where they
are), :mod:`~lakegate.contracts.reader` (a file to a contract), :mod:`~lakegate.contracts.document` (YAML, by line).
"""
