"""What a service answers over HTTP, read whole and within bounds: it may be odd, endless, or a bomb."""

import time
from typing import Any

# Of one reply: twice the longest that a ctx gives, ten times a batch of the longest vectors, as decimals.
MAX_REPLY_BYTES = 64 << 20


class Boundless(Exception):
    """A reply that is not read to its end; its text is the end of a sentence that begins with who answers."""


def read_reply(response: Any, most_bytes: int, within_s: float) -> bytes:
    """The body of an open reply of httpx's, unpacked. Raises `Boundless`, `TimeoutError` where it does not
    end `within_s` from now, and httpx's errors.
    """
    ends_s = time.monotonic() + within_s
    if "," in response.headers.get("content-encoding", ""):  # packed twice, a kilobyte is gigabytes
        raise Boundless("gave a reply that is packed twice")
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > most_bytes:
            raise Boundless(f"gave a reply of more than {most_bytes >> 20} MiB")
        if time.monotonic() > ends_s:
            raise TimeoutError("the reply did not end in time")
    return bytes(body)
