"""What Streamlit runs for each visitor and each click.

It isn't in ``ui/``: Streamlit takes a folder ``pages`` next to a script for pages of its own kind.
"""

from lakegate.dashboard.ui.shell import show

if __name__ == "__main__":
    show()
