"""The script that Streamlit runs for each visitor and each click.

It isn't in ``ui/`` because Streamlit would treat the folder ``pages`` next to it as pages of its own kind.
"""

from lakegate.dashboard.ui.app import show

if __name__ == "__main__":
    show()
