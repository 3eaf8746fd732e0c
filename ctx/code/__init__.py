"""Source code: find the definitions in a file and make outlines and excerpts.

May import `ctx.errors` and `ctx.models`.
"""
