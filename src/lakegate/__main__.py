"""``python -m lakegate``: the command line."""

from __future__ import annotations

from lakegate.cli.preload import main

if __name__ == "__main__":
    main()
