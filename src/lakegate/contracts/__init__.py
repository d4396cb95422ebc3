"""Contracts: what a table must look like, in one YAML file per table.

Where to look: :mod:`~lakegate.contracts.model` (a contract's fields), :mod:`~lakegate.contracts.store` (where contracts
are found and how they are read), :mod:`~lakegate.contracts.document` (YAML with line numbers).
"""
