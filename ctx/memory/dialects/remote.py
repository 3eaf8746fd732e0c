"""A pack whose memories are on another machine: its tools are here, every call goes to the real product's own
HTTP route.
"""

import json
from typing import TYPE_CHECKING

from ctx.errors import BadRequest, NotFound, ToolError
from ctx.http import MAX_REPLY_BYTES, Boundless, read_reply
from ctx.models import JSON

if TYPE_CHECKING:
    import httpx

CONNECT_S = 5.0
TIMEOUT_S = 30.0  # for a reply


class RemotePack:
    """Calls `url` + `path` (with `{tool}` in it) with a bearer key.
    `names` are the variables of url and key, for messages.
    """

    def __init__(self, pack: str, url: str, path: str, key: str | None, names: tuple[str, str]) -> None:
        """Raises `BadRequest` for what is no address."""
        if not url.startswith(("http://", "https://")):
            raise BadRequest(
                f"{names[0]}: '{url[:80]}' is not an address; it must begin with http:// or https://"
            )
        self._pack = pack
        self._url = url.rstrip("/")
        self._path = path
        self._names = names
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client: httpx.Client | None = None

    def call(self, tool: str, arguments: dict[str, JSON], timeout_s: float = TIMEOUT_S) -> JSON:
        """The reply as it came. Raises `BadRequest`, `NotFound` or `ToolError`, worded for the user of a chat
        client.
        """
        import httpx  # takes 90 ms to import

        if self._client is None:
            self._client = httpx.Client(
                timeout=httpx.Timeout(timeout_s, connect=CONNECT_S), headers=self._headers
            )
        url_name, key_name = self._names
        address = self._url + self._path.replace("{tool}", tool)
        try:
            with self._client.stream("POST", address, json=arguments) as reply:
                body = read_reply(reply, MAX_REPLY_BYTES, timeout_s)
        except Boundless as error:
            raise ToolError(f"{self._pack}: {self._url} {error} ({url_name})") from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise ToolError(
                f"{self._pack}: {self._url} did not answer in time; is it reachable from here? ({url_name})"
            ) from error
        except httpx.HTTPError as error:
            raise ToolError(
                f"{self._pack}: {self._url} cannot be reached: start that server, or correct {url_name}"
            ) from error
        if reply.status_code == 401:
            raise ToolError(f"{self._pack}: {self._url} refused the key: check {key_name}")
        return self._answer(reply.status_code, body)

    def _answer(self, status: int, body: bytes) -> JSON:
        """The reply's JSON. Raises the error that belongs to its status."""
        try:
            answer: JSON = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if status >= 400:
            reason = answer.get("error") if isinstance(answer, dict) else None
            message = reason if isinstance(reason, str) else f"status {status}"
            kind = {400: BadRequest, 404: NotFound, 422: BadRequest}.get(status, ToolError)
            raise kind(f"{self._pack}: {message[:500]}")
        if not isinstance(answer, dict):
            mend = f"did not answer with JSON; is {self._names[0]} right?"
            raise ToolError(f"{self._pack}: {self._url} {mend}")
        return answer
