"""One completion from an OpenAI-compatible server, for those who configured one ([memory.llm]).

Off unless configured. A server that is not on this machine must be allowed by name, so that no memory leaves
it silently.
"""

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from ctx.errors import ConfigError, StoreError
from ctx.hosts import is_loopback
from ctx.replies import Boundless, read_reply

MAX_TOKENS = 1200  # of an answer: a page
MAX_REPLY_BYTES = 1 << 20


class ChatCompletion:
    """`POST {base_url}/chat/completions` at temperature 0.
    Raises `ConfigError` for a base_url that is not allowed.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        allow_remote: bool = False,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"[memory.llm] base_url: '{base_url[:100]}' is not an http address")
        if not allow_remote and not is_loopback(parts.hostname):
            raise ConfigError(
                f"[memory.llm] base_url: '{parts.hostname}' is another machine, and the memories would go "
                "there; set allow_remote = true if so"
            )
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s

    def complete(self, messages: Sequence[dict[str, str]]) -> str:
        """The answer's text. Raises `StoreError` whatever went wrong."""
        import httpx  # 90 ms, and only who configured a language model pays them

        request = {
            "model": self._model,
            "messages": list(messages),
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
            "stream": False,
        }
        try:
            # No redirects: an answer may not send the memories elsewhere. No proxies of the environment for
            # the same reason.
            with (
                httpx.Client(timeout=self._timeout_s, follow_redirects=False, trust_env=False) as client,
                client.stream("POST", self._url, json=request, headers=self._headers) as reply,
            ):
                if reply.status_code != 200:
                    raise StoreError(f"the language model answered {reply.status_code}")
                content = read_reply(reply, MAX_REPLY_BYTES, self._timeout_s)
            answer = json.loads(content)["choices"][0]["message"]["content"]
        except Boundless as error:
            raise StoreError(f"the language model {error}") from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise StoreError(f"the language model timed out after {self._timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise StoreError("the language model could not be reached") from error
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise StoreError("the language model's answer is not a chat completion") from error
        if not isinstance(answer, str):
            raise StoreError("the language model answered without a text")
        return answer
