"""The configuration: `ctx.toml` found, read, checked and trusted. Only the wiring and the CLI read it; from
the rest of ctx it imports `project`, `toml`, `text`, `files` and the types.
"""

from ctx.config.load import Config, default_config, is_database, load_config, parse_config, read_config

__all__ = ("Config", "default_config", "is_database", "load_config", "parse_config", "read_config")
