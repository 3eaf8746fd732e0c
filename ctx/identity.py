"""Names that outlive a rebuild: document ids and text hashes."""

import hashlib
import re
import uuid

# The name of a memory bank: an e-mail address is one, a path step is not.
BANK = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.@:+-]{1,128}")
BANK_RULE = "1 to 128 of A-Z a-z 0-9 _ . @ : + -"
OWN_BANK = "pack:"  # how the banks of packs begin that have their own; no caller can name one
RESERVED_BANKS = frozenset({"tools", "sse", "messages"})  # steps of other systems' paths below /mcp

TEXT_HASH_BYTES = 16  # 2**64 texts before a collision is likely


def document_id(source: str, source_id: str) -> str:
    """The id of a document: the same for the same place, whatever the machine, the engine or the day."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{source}\0{source_id}"))


def embedding_text(title: str, heading: str, text: str) -> str:
    """The text to embed of a chunk: its title and headings first, since the text often omits its subject."""
    head = title if not heading or heading == title else f"{title} > {heading}"
    return f"{head}\n{text}" if head else text


def outline(value: object, digits: int = 16) -> str:
    """A short fingerprint of a value, to detect a changed configuration."""
    return digest(repr(value).encode("utf-8", "surrogateescape"), digits)


def digest(content: bytes, digits: int) -> str:
    """The first hexadecimal digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:digits]


def text_hash(text: str) -> bytes:
    """The identity of a text to embed, 16 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:TEXT_HASH_BYTES]
