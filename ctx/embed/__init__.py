"""Embedders turn texts into unit vectors, either on this machine (onnxruntime, fastembed) or through a
service (Ollama, any OpenAI-compatible API).
"""

from collections.abc import Mapping

from ctx.config.settings import SHIPPED_MODEL, Embedding
from ctx.embed.base import Embedder
from ctx.embed.local import LocalEmbedder

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
        return LocalEmbedder(model or SHIPPED_MODEL, threads=settings.threads or None)
    from ctx.embed.remote import OllamaEmbedder, OpenAIEmbedder  # numpy: 70 ms

    service = OllamaEmbedder if provider == "ollama" else OpenAIEmbedder
    return service(
        model or "",  # the configuration requires both for these providers
        settings.dims or 0,
        url=settings.url,
        api_key=environ.get(settings.key_variable) if settings.key_variable else None,
        batch_size=settings.batch_size,
        timeout_s=settings.timeout_secs,
        max_retries=settings.max_retries,
    )
