"""The sandbox: runs Lua scripts in locked-down processes (workers). A script reaches the machine only through
host calls, which are requests from the worker to the server.

May import `models`, `errors` and `text`. The workers, and the zygote (the process that they are forked from),
import only `frames`, `lockdown` and `worker`.
"""
