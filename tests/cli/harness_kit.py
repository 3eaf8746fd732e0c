"""Configurations such as Context Harness 0.8 documents them, in words of our own."""

import sqlite3
from pathlib import Path

# A repository that indexes itself: a source called like a key, a registry, and keys that nothing reads any
# more.
OWN = """
[db]
path = "./data/ctx.sqlite"

[chunking]
max_tokens = 700
overlap_tokens = 80

[retrieval]
final_limit = 12
hybrid_alpha = 0.6
candidate_k_keyword = 80
candidate_k_vector = 80
group_by = "document"
doc_agg = "max"
max_chunks_per_doc = 3

[embedding]
provider = "disabled"
model = "all-minilm-l6-v2"
dims = 384
batch_size = 64
max_retries = 5
timeout_secs = 30

[server]
bind = "127.0.0.1:7331"

[connectors.filesystem.root]
root = "."
include_globs = ["docs/**/*.md"]
exclude_globs = ["**/target/**"]
follow_symlinks = false
max_extract_bytes = 50000000

[connectors.git.branch]
url = "./upstream"
branch = "main"
root = "."
shallow = true

[registries.community]
url = "https://example.org/registry.git"
path = "~/.ctx/registries/community"
readonly = true
auto_update = true
"""

# What its README tells everybody to copy: with the index of vectors that it may build in.
EXAMPLE = """
[db]
path = "./data/ctx.sqlite"

[chunking]
max_tokens = 700

[retrieval]
group_by = "document"
doc_agg = "avg"
final_limit = 12

[embedding]
provider = "disabled"

[vector_index]
backend = "auto"
path = "./data/vectors"
metric = "cosine"
fallback = "sqlite"

[server]
bind = "127.0.0.1:7331"

[connectors.filesystem.docs]
root = "./docs"
include_globs = ["**/*.md", "**/*.txt"]
"""

# Started from the folder above: its paths begin there, not beside the file.
DEMO = """
[db]
path = "./demo/data/ctx.sqlite"

[chunking]
max_tokens = 700

[retrieval]
final_limit = 10

[embedding]
provider = "disabled"

[server]
bind = "127.0.0.1:7331"

[connectors.filesystem.acme]
root = "./demo/knowledge-base"
include_globs = ["**/*.md"]

[tools.script.echo]
path = "./demo/tools/echo.lua"
greeting = "Hello"
api_token = "${DEMO_API_TOKEN}"
"""


def database(path: Path) -> None:
    """A database such as Context Harness leaves one, where a moved configuration says the catalog is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    for table in ("documents", "chunks", "checkpoints", "embeddings"):
        connection.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, body TEXT)")
    connection.execute("INSERT INTO documents VALUES ('1', 'theirs')")
    connection.commit()
    connection.close()
