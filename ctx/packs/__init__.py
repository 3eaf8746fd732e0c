"""Memory dialects: a folder of Lua tools and a manifest, on one store of banks."""
