"""``python -m lakegate``: the command line."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line on ``sys.argv`` and exit."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:  # Ctrl-C during the imports would only print a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lakegate.cli import main as program

    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program.main()


if __name__ == "__main__":
    main()
