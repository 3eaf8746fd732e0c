"""Source code: the definitions of a file, its outline, and the references to a name.

May import `ctx.errors` and `ctx.models`.
"""
