"""Indexing: read sources, extract text, chunk, embed, store in the catalog, and watch for changes."""
