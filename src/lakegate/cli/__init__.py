"""The command line: parse, call the lake, print. No logic of write–audit–publish here.

A new command is one module in ``commands/``. Modules of this package import click, each other and the settings at
their top, and slow libraries (rich, pyarrow, the lake itself) inside functions, so that ``--help`` and completion stay
fast.
"""
