"""The configuration: finds, reads and checks `ctx.toml`, and decides which of its keys need the user's trust.

Only the workspace, the server start and the command line read the configuration.
"""

from ctx.config.load import Config, ConfigFile, default_config, is_database, load_config, read_config

__all__ = ("Config", "ConfigFile", "default_config", "is_database", "load_config", "read_config")
