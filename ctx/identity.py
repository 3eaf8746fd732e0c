"""Stable identifiers, which stay the same after a rebuild: document ids and text hashes."""

import hashlib
import re
import uuid

# A valid name of a memory bank. An e-mail address is valid; `.` and `..` are not.
BANK = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.@:+-]{1,128}")
BANK_RULE = "1 to 128 of A-Z a-z 0-9 _ . @ : + -"
OWN_BANK = "pack:"  # the prefix of the banks that belong to packs; no caller can name such a bank
RESERVED_BANKS = frozenset({"tools", "sse", "messages"})  # other systems use these path segments below /mcp

TEXT_HASH_BYTES = 16  # 2**64 texts before a collision is likely


def document_id(source: str, source_id: str) -> str:
    """The id of a document, a UUID that depends only on the source's name and the document's `source_id`."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{source}\0{source_id}"))


def embedding_text(title: str, heading: str, text: str) -> str:
    """The text to embed for a chunk: the title and headings, then the chunk's text. The headings come first,
    because the text often does not name its subject.
    """
    head = title if not heading or heading == title else f"{title} > {heading}"
    return f"{head}\n{text}" if head else text


def outline(value: object, digits: int = 16) -> str:
    """A short hash of a value's `repr`, used to detect a changed configuration."""
    return digest(repr(value).encode("utf-8", "surrogateescape"), digits)


def digest(content: bytes, digits: int) -> str:
    """The first `digits` hexadecimal digits of the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()[:digits]


def text_hash(text: str) -> bytes:
    """A hash of 16 bytes that identifies a text to embed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:TEXT_HASH_BYTES]
