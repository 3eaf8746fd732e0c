"""Stores documents in the catalog and finds them with the search index, which is built from the catalog."""
