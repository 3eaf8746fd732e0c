"""Text analysis that search, chunking and memory share. May import nothing of ctx but `errors`."""
