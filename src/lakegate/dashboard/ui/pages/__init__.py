"""The pages: a script each, which Streamlit runs for each visit. Its name is its address.

A page draws the read model's values. Its state is in the query parameters, so that its address can be shared.
``ui/app.py`` lists the pages.
"""
