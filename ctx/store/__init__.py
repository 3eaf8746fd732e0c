"""Where documents are kept and found: the catalog (the record) and the index (a projection of it)."""
