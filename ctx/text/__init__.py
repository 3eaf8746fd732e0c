"""Text analysis for search, chunking and memory. These modules import no other part of ctx except
`errors`.
"""
