"""The sandbox: runs Lua scripts in locked-down processes that reach the machine only through host calls."""
