"""Tools, connectors, agents and packs that operators write in Lua."""
