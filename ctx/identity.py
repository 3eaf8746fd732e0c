"""Names that outlive a rebuild: document ids and text hashes."""

import hashlib
import uuid

NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562 namespace for object identifiers
TEXT_HASH_BYTES = 16  # 2**64 texts before a collision is likely


def document_id(source: str, source_id: str) -> str:
    """The id of a document: the same for the same place, whatever the machine, the engine or the day."""
    return str(uuid.uuid5(NAMESPACE, f"{source}\0{source_id}"))


def embedding_text(title: str, heading: str, text: str) -> str:
    """What the embedder reads of a chunk: title and heading path first, since the text alone often omits its subject."""
    head = title if not heading or heading == title else f"{title} > {heading}"
    return f"{head}\n{text}" if head else text


def text_hash(text: str) -> bytes:
    """The identity of a text to embed, 16 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:TEXT_HASH_BYTES]
