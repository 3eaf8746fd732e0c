"""One completion from a language model, if one is configured ([memory.llm]).

Memories are sent to another machine only if `allow_remote` says so.
"""

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from ctx.errors import ConfigError, StoreError
from ctx.http import Boundless, is_loopback, read_reply
from ctx.models import JSON

MAX_TOKENS = 1200  # of an answer: a page
MAX_REPLY_BYTES = 1 << 20
PROVIDERS = ("openai", "ollama")


class ChatCompletion:
    """A model at temperature 0, by the protocol of its provider: "openai", as most servers speak it (`POST
    {base_url}/chat/completions`), or "ollama" (`POST {base_url}/api/chat`).

    Raises `ConfigError` for a base_url that is not allowed.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        provider: str = "openai",
        api_key: str | None = None,
        timeout_s: float = 60.0,
        allow_remote: bool = False,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"[memory.llm] base_url: '{base_url[:100]}' is not an http address")
        if not allow_remote and not is_loopback(parts.hostname):
            raise ConfigError(
                f"[memory.llm] base_url: '{parts.hostname}' is another machine, and memories would be sent "
                "there; set allow_remote = true to allow it"
            )
        if provider not in PROVIDERS:
            raise ConfigError(f"[memory.llm] provider: one of {', '.join(PROVIDERS)}")
        self._is_ollama = provider == "ollama"
        self._url = base_url.rstrip("/") + ("/api/chat" if self._is_ollama else "/chat/completions")
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s

    def complete(self, messages: Sequence[dict[str, str]]) -> str:
        """The answer's text. Raises `StoreError` whatever went wrong."""
        import httpx  # 90 ms, only if a language model is configured

        request = self._request(messages)
        try:
            # No redirects and no proxies from the environment: they could send the memories elsewhere.
            with (
                httpx.Client(timeout=self._timeout_s, follow_redirects=False, trust_env=False) as client,
                client.stream("POST", self._url, json=request, headers=self._headers) as reply,
            ):
                if reply.status_code != 200:
                    raise StoreError(f"the language model answered {reply.status_code}")
                content = read_reply(reply, MAX_REPLY_BYTES, self._timeout_s)
            answer = self._text_of(json.loads(content))
        except Boundless as error:
            raise StoreError(f"the language model {error}") from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise StoreError(f"the language model timed out after {self._timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise StoreError("the language model could not be reached") from error
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise StoreError("the language model's answer is not a chat completion") from error
        if not isinstance(answer, str):
            raise StoreError("the language model's answer has no text")
        return answer

    def _request(self, messages: Sequence[dict[str, str]]) -> JSON:
        request: dict[str, JSON] = {"model": self._model, "messages": list(messages), "stream": False}
        if self._is_ollama:
            return {**request, "options": {"temperature": 0, "num_predict": MAX_TOKENS}}
        return {**request, "temperature": 0, "max_tokens": MAX_TOKENS}

    def _text_of(self, reply: JSON) -> JSON:
        message = reply["message"] if self._is_ollama else reply["choices"][0]["message"]
        return message["content"]
