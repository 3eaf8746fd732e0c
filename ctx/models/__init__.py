"""The embedding model that ships with ctx, and the script that makes it (`python -m ctx.models.build`)."""
