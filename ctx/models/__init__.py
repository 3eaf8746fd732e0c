"""The embedding model that ships with ctx; scripts/build_model.py makes it."""
