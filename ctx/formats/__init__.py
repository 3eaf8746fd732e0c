"""Readers for file formats, one module each: they turn bytes into text with headings."""
