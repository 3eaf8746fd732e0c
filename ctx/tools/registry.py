"""Named things that come and go while a server runs: tools and agents."""

from collections.abc import Callable

from ctx.errors import BadRequest, ConfigError, CtxError, NotFound
from ctx.lean import Generic, Lock, Protocol, TypeVar
from ctx.types import JSON


class Named(Protocol):
    """`origin` names where the entry was defined, for messages about two of one name: a file, or "built
    in".
    """

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Generic[Entry]):
    """Entries by name, and the names of those that could not be loaded. Safe from several threads."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._entries: dict[str, Entry] = {}
        self._failed: dict[str, CtxError] = {}
        self._lock = Lock()
        self._listeners: list[Callable[[], None]] = []
        self._before: Callable[[str], None] | None = None
        self.version = 0  # grows with every change of the list

    def add(self, entry: Entry, *, replace: bool = False) -> None:
        """Registers an entry. Raises `ConfigError` where two share a name."""
        with self._lock:
            twin = self._entries.get(entry.name)
            if twin is not None and not replace:
                raise ConfigError(
                    f"two {self._noun}s are called '{entry.name}': {twin.origin} and {entry.origin}; rename "
                    "one"
                )
            self._entries[entry.name] = entry
            self._failed.pop(entry.name, None)
        self._changed()

    def add_failed(self, name: str, error: CtxError) -> None:
        """Keeps the name of what could not be loaded: whoever uses it is told `error`, the list leaves it
        out.
        """
        with self._lock:
            self._failed[name] = error

    def remove(self, name: str) -> None:
        with self._lock:
            removed = self._entries.pop(name, None)
            self._failed.pop(name, None)
        if removed is not None:
            self._changed()

    def failed(self) -> dict[str, CtxError]:
        """What could not be loaded, and why."""
        with self._lock:
            return dict(self._failed)

    def before_use(self, look: Callable[[str], None]) -> None:
        """`look` is told of every use before its entry is looked up, in the caller's thread: a changed script
        is loaded anew there.
        """
        self._before = look

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is told when the list has changed."""
        self._listeners.append(listener)

    def _used(self, name: str, arguments: JSON) -> Entry:
        """The entry of that name, to be called with these. Raises `NotFound`, why it could not be loaded, and
        `BadRequest` for what are no arguments.
        """
        if self._before is not None:
            self._before(name)
        entry = self._looked_up(name)
        if not isinstance(arguments, dict):
            raise BadRequest("the arguments must be a JSON object")
        return entry

    def _looked_up(self, name: str) -> Entry:
        """The entry of that name. Raises `NotFound`, or why it could not be loaded."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        failure = self._failed.get(name)
        if failure is None:
            raise NotFound(f"no {self._noun} registered with name: {name[:80]}")
        raise failure.with_traceback(None)  # or every use would lengthen it

    def _changed(self) -> None:
        self.version += 1
        for listen in self._listeners:
            listen()
