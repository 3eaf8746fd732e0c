"""Who may do what only one may do at a time, in a PostgreSQL database."""

from ctx.store.postgres import Database


class PostgresCoordination:
    """The `Coordination` of all that share a database, by the database's clock. `owner` is what others are
    told.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def lease(self, name: str, ttl_s: float) -> int | None:
        with self._database.transaction(write=True) as connection:
            row = connection.execute(
                "INSERT INTO lease AS l VALUES (?, 1, ?, clock_timestamp() + make_interval(secs => ?)) "
                "ON CONFLICT (name) DO UPDATE SET epoch = l.epoch + 1, owner = excluded.owner, until = "
                "excluded.until "
                "WHERE l.until <= clock_timestamp() RETURNING epoch",
                (name, self._owner, ttl_s),
            ).fetchone()
        return None if row is None else int(row[0])

    def renew(self, name: str, epoch: int, ttl_s: float) -> bool:
        with self._database.transaction(write=True) as connection:
            return bool(
                connection.execute(
                    "UPDATE lease SET until = clock_timestamp() + make_interval(secs => ?) "
                    "WHERE name = ? AND epoch = ? AND until > '-infinity'",
                    (ttl_s, name, epoch),
                ).rowcount
            )

    def release(self, name: str, epoch: int) -> None:
        with self._database.transaction(write=True) as connection:
            connection.execute(
                "UPDATE lease SET until = '-infinity' WHERE name = ? AND epoch = ?", (name, epoch)
            )

    def holder(self, name: str) -> str | None:
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT owner FROM lease WHERE name = ? AND until > clock_timestamp()", (name,)
            ).fetchone()
        return None if row is None else str(row[0])
