"""Lua in a process of its own."""
