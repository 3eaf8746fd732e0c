"""One file a format: bytes to text with its headings."""
