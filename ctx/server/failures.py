"""What requests fail by, in the log: a line for each thing that is broken, and how often it was met."""

import logging
import threading
import time
from collections.abc import Callable

from ctx.errors import CtxError, StoreError

logger = logging.getLogger(__name__)

REPEAT_S = 60.0  # what stays broken is told so often, however many requests fail by it
_MAX_KINDS = 200  # scripts may fail by any number of texts


class Failures:
    """The log of failed requests. Safe from several threads."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        # By word and reason: when it was told last, and how often it was met since.
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def note(self, error: CtxError, request_id: str) -> None:
        """Logs that a request failed by this, unless the same was told just now: then it is counted."""
        kind = word, reason = error.word, _reason(error)
        with self._lock:
            now_s = self._clock_s()
            told_s, count = self._kinds.pop(kind, (-REPEAT_S, 0))
            due = now_s - told_s >= REPEAT_S
            self._kinds[kind] = (now_s, 0) if due else (told_s, count + 1)
            if len(self._kinds) > _MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
        if due:
            again = f" repeated={count}" if count else ""
            logger.warning(
                "error id=%s code=%s%s%s",
                *(request_id, word, again, reason),
                exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            )


def _reason(error: CtxError) -> str:
    """What a line of the log says of an error. The cause is the operator's to see: its first line, for what
    follows may quote what was stored.
    """
    text = f" reason={error.message!r}" if isinstance(error, StoreError) else ""
    cause = error.__cause__
    if cause is not None:
        text += f" cause={type(cause).__name__}: {str(cause).strip().split(chr(10), 1)[0]}"
    return text
