"""What Streamlit runs for each visitor and each click."""

from lakegate.dashboard.ui.shell import show

if __name__ == "__main__":
    show()
