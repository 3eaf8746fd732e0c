"""The sandbox: runs Lua scripts in locked-down processes that reach the machine only through host calls.

May import `models`, `errors` and `text`. The zygote and its workers import only `frames`, `lockdown` and
`worker`.
"""
