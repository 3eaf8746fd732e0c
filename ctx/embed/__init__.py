"""Embedders turn texts into unit vectors, either on this machine (onnxruntime, fastembed) or through a
service (Ollama, any OpenAI-compatible API).
"""

from collections.abc import Mapping

from ctx.config.settings import SHIPPED_MODEL, Embedding
from ctx.embed.base import Embedder
from ctx.embed.local import LocalEmbedder
from ctx.errors import ConfigError

__all__ = ["Embedder", "open_embedder"]


def open_embedder(settings: Embedding, environ: Mapping[str, str]) -> Embedder | None:
    """The embedder that the settings choose; None if embeddings are off.

    This call is cheap: the embedder loads its model or calls its service only at the first text. Raises
    `ConfigError`.
    """
    provider, model = settings.provider, settings.model
    if provider == "disabled":
        return None
    if provider == "local":
        return LocalEmbedder(model or SHIPPED_MODEL, dims=settings.dims, threads=settings.threads or None)
    from ctx.embed.remote import OllamaEmbedder, OpenAIEmbedder  # numpy: 70 ms

    services = {"ollama": OllamaEmbedder, "openai": OpenAIEmbedder}
    if provider not in services:
        choices = ", ".join(("local", *services, "disabled"))
        raise ConfigError(f"[embedding] provider: unknown '{provider}' (known: {choices})")
    if not model or not settings.dims:
        raise ConfigError(f"[embedding] provider '{provider}' needs model and dims")
    return services[provider](
        model,
        settings.dims,
        url=settings.url,
        api_key=environ.get(settings.key_variable) if settings.key_variable else None,
        batch_size=settings.batch_size,
        timeout_s=settings.timeout_secs,
        max_retries=settings.max_retries,
    )
