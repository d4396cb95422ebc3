"""The command line: parse, call the lake, print. It has no write–audit–publish logic.

To add a command, add a module to ``commands/``: see "Add something" in CONTRIBUTING.md. A command's module is imported
when the command is used. ``main`` and ``app``, which every command starts with, import nothing slower than click at the
top, so that ``lakegate --help`` and completion stay fast.
"""
