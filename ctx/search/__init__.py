"""Run a query: keyword and vector search, fusion, passages and snippets.

May import `store`, `embed`, `text`.
"""
