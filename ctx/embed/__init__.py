"""Embedders: texts to unit vectors, on this machine (fastembed) or by a service (Ollama, any
OpenAI-compatible API).
"""

from ctx.embed.base import Embedder
from ctx.errors import ConfigError

__all__ = ["Embedder", "open_embedder"]


def open_embedder(
    provider: str,
    model: str | None = None,
    dims: int | None = None,
    url: str | None = None,
    api_key: str | None = None,
    *,
    batch_size: int = 32,
    timeout_s: float = 30.0,
    max_retries: int = 5,
    threads: int = 0,
) -> Embedder | None:
    """The embedder that the configuration asks for; None where the provider is "disabled".

    Cheap: no model is loaded and no service is called before the first text. `threads` 0 means one for each
    processor. `batch_size`, `timeout_s` and `max_retries` are for the services; the local one works text by
    text. Raises `ConfigError`.
    """
    if provider == "disabled":
        return None
    # Imported here: numpy costs 70 ms and httpx 90 ms, and only one of the two rooms is entered.
    if provider == "local":
        from ctx.embed.local import SHIPPED, LocalEmbedder

        return LocalEmbedder(model or SHIPPED, dims=dims, threads=threads or None)
    from ctx.embed.remote import OllamaEmbedder, OpenAIEmbedder

    services = {"ollama": OllamaEmbedder, "openai": OpenAIEmbedder}
    if provider not in services:
        known = ", ".join(("local", *services, "disabled"))
        raise ConfigError(f"[embedding] provider: unknown '{provider}' (known: {known})")
    if not model or not dims:
        raise ConfigError(f"[embedding] provider '{provider}' needs model and dims")
    return services[provider](
        model,
        dims,
        url=url,
        api_key=api_key,
        batch_size=batch_size,
        timeout_s=timeout_s,
        max_retries=max_retries,
    )
