"""Processes beside a server that answer searches when several come at once: in one, Python runs one thread at
a time.
"""
