"""The configuration: find, read and check `ctx.toml`, and decide what in it needs the user's trust.

Only the wiring and the CLI read it.
"""

from ctx.config.load import Config, default_config, is_database, load_config, parse_config, read_config

__all__ = ("Config", "default_config", "is_database", "load_config", "parse_config", "read_config")
