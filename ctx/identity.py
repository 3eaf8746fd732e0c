"""Names that outlive a rebuild: document ids and text hashes.

`hashlib` is imported where it is used: it loads OpenSSL, two milliseconds that a search does not need.
"""

import re
import sys

# The name of a memory bank: an e-mail address is one, a path step is not.
BANK = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.@:+-]{1,128}")
BANK_RULE = "1 to 128 of A-Z a-z 0-9 _ . @ : + -"
OWN_BANK = "pack:"  # how the banks of packs begin that have their own; no caller can name one
RESERVED_BANKS = frozenset({"tools", "sse", "messages"})  # steps of other systems' paths below /mcp

NAMESPACE = bytes.fromhex("6ba7b8129dad11d180b400c04fd430c8")  # RFC 9562 namespace for object identifiers
TEXT_HASH_BYTES = 16  # 2**64 texts before a collision is likely


def document_id(source: str, source_id: str) -> str:
    """The id of a document: the same for the same place, whatever the machine, the engine or the day."""
    import hashlib

    # RFC 9562, version 5, written out: importing `uuid` costs `ctx search` two milliseconds. A test holds the
    # two equal.
    digest = bytearray(
        hashlib.sha1(NAMESPACE + f"{source}\0{source_id}".encode(), usedforsecurity=False).digest()[:16]
    )
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def embedding_text(title: str, heading: str, text: str) -> str:
    """What the embedder reads of a chunk: title and heading path first, since the text alone often omits its
    subject.
    """
    head = title if not heading or heading == title else f"{title} > {heading}"
    return f"{head}\n{text}" if head else text


def outline(value: object, digits: int = 16) -> str:
    """The beginning of a hash of a small value, as Python writes it: what two configurations are told apart
    by.
    """
    return digest(repr(value).encode("utf-8", "surrogateescape"), digits)


def digest(content: bytes, digits: int) -> str:
    """The beginning of the SHA-256 of a few bytes, in hexadecimal."""
    # Python's own, slower on long texts: `hashlib` loads OpenSSL, 2.5 ms.
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256  # type: ignore[import-not-found]
        else:
            from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256
    hexadecimal: str = sha256(content).hexdigest()
    return hexadecimal[:digits]


def text_hash(text: str) -> bytes:
    """The identity of a text to embed, 16 bytes."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:TEXT_HASH_BYTES]
