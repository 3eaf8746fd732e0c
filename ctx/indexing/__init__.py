"""From a source to the catalog: read, extract, chunk, embed, watch."""
