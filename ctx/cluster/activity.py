"""The log of calls in PostgreSQL."""

from ctx.cluster.postgres import Database
from ctx.memory.activity import COMPONENT, TABLE, Activity

MIGRATIONS = (TABLE.format(key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),)


def shared_activity(database: Database) -> Activity:
    """The log in a database, which the caller closes. Raises `StoreError`."""
    database.migrate(COMPONENT, MIGRATIONS)
    return Activity(lambda: database.transaction(write=True))
