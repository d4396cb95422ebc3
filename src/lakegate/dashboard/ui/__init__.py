"""The dashboard's server and pages. Only this package imports Streamlit."""
