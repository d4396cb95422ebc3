"""The command line: parse, call the lake, print. It has no write–audit–publish logic.

To add a command, add a module to ``commands/``. Modules of this package import only click, each other and the settings
at the top. Slow libraries (rich, pyarrow, the lake itself) are imported in functions, so that ``--help`` and completion
stay fast.
"""
