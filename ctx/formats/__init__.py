"""One module for each file format: bytes to text with headings."""
