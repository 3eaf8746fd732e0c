"""Reading a bank: records, pages of records, counts, history and journal."""

import base64
import json
import re
from collections.abc import Iterator, Sequence

from ctx.errors import BadRequest
from ctx.memory.bank.base import MAX_LIMIT, BankView
from ctx.memory.columns import ORDERS, Memory, canonical, order_key, order_value, whole
from ctx.memory.filters import Condition, compile_filter
from ctx.memory.reader import FORGOTTEN, SCALAR, TAG, visible
from ctx.memory.records import public_name
from ctx.models import JSON

_GROUPS = ("kind", "type", "context", "folder", "label", "status", "session", "role", "document_id")
_TAG = re.compile(r'metadata\.([^"\\.\x00-\x1f]{1,128})')
_FOLLOWING = ("content_hash", "updated_ms", "gist")  # columns that follow from other changes


class Reading(BankView):
    """The operations that read a bank."""

    def exists(self) -> bool:
        """Whether anything was ever written to the bank."""
        with self._view() as view:
            return view.exists

    def neighbours(self) -> list[str]:
        """The ids of all banks of the store, including this one."""
        with self._view() as view:
            return view.banks()

    def config(self) -> JSON:
        """The bank's configuration, such as `mission`, `skepticism`, `literalism` and `empathy` (1 to 5) for
        `synthesize`.
        """
        with self._view() as view:
            return view.bank.config

    def get(self, id: str, *, include_deleted: bool = False) -> JSON | None:
        """The record with this id or alias, even if it was superseded; None if there is none."""
        return self.get_many([id], include_deleted=include_deleted)[0]

    def get_many(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[JSON | None]:
        """The records in the order of the ids; None for each id that does not exist."""
        _check_few(ids)
        with self._view() as view:
            memories = [self._find(view, id, deleted=include_deleted) for id in ids]
            records = iter(self._records(view, [memory for memory in memories if memory]))
            return [next(records) if memory else None for memory in memories]

    def children(self, id: str, *, limit: int = 1000, cursor: str | None = None) -> JSON:
        """The contents of a container, in order: `{"items", "cursor"}`. Raises `NotFound`."""
        with self._view() as view:
            parent = self._must_find(view, id)
        return self.browse(
            {"parent": parent.id}, order="ordinal", limit=limit, cursor=cursor, include_superseded=True
        )

    def browse(
        self,
        filter: JSON = None,
        *,
        order: str = "-created",
        limit: int = 100,
        cursor: str | None = None,
        include_superseded: bool = False,
        as_of: JSON = None,
        forgotten: bool = False,
    ) -> JSON:
        """A page of records: `{"items", "cursor"}`; `cursor` is None on the last page.

        `order` is one of `ctx.memory.columns.ORDERS`, with `-` in front for descending. Pages neither repeat
        nor skip records while others write. `forgotten` lists only forgotten memories.
        """
        descending, name = order.startswith("-"), order.removeprefix("-")
        if name not in ORDERS:
            raise BadRequest(f"order: one of {', '.join(ORDERS)}, with '-' in front for descending")
        limit = whole("limit", limit, 1, MAX_LIMIT)
        condition = FORGOTTEN if forgotten else self._shown(as_of, include_superseded)
        conditions = [condition, compile_filter(filter)]
        key, sign, direction = order_key(name), "<" if descending else ">", "DESC" if descending else "ASC"
        if cursor is not None:
            conditions.append(Condition(f"({key}, m.no) {sign} (?, ?)", _open_cursor(cursor, order)))
        with self._view() as view:
            memories = list(view.select(conditions, f"{key} {direction}, m.no {direction}", limit + 1))
            page = memories[:limit]
            records = self._records(view, page)
        return {"items": records, "cursor": _make_cursor(order, page[-1]) if len(memories) > limit else None}

    def every(self, filter: JSON = None, **options: JSON) -> Iterator[JSON]:
        """Yields all records that `browse` finds, and reads them page by page."""
        cursor = None
        while True:
            page = self.browse(filter, limit=MAX_LIMIT, cursor=cursor, **options)
            yield from page["items"]
            cursor = page["cursor"]
            if cursor is None:
                return

    def ids_of(self, filter: JSON) -> list[str]:
        """The ids of all memories that match a filter, including replaced, forgotten and expired ones."""
        with self._view() as view:
            return [memory.id for memory in view.select([compile_filter(filter)])]

    def erased_ids(self) -> set[str]:
        """The ids of erased memories, from the journal."""
        with self._view() as view:
            return view.erased_ids()

    def count(
        self,
        filter: JSON = None,
        *,
        include_superseded: bool = False,
        as_of: JSON = None,
        forgotten: bool = False,
    ) -> int:
        """The number of records that `browse` finds."""
        condition = FORGOTTEN if forgotten else self._shown(as_of, include_superseded)
        with self._view() as view:
            return view.count([condition, compile_filter(filter)])

    def stats(self, filter: JSON = None, *, group_by: str | None = None) -> JSON:
        """Statistics of visible memories: `{"count", "average_importance", "first_created", "last_created",
        "characters", "groups"}`. A group has the same keys and `value`.

        `group_by`: kind, type, context, folder, label, status, session, role, document_id, metadata.KEY, or
        tags. The value of a group may be null. With tags, a memory counts once for each of its tags.
        """
        column, values = _group_column(group_by)
        conditions = [visible(self._now()), compile_filter(filter)]
        with self._view() as view:
            total = view.summary(conditions, None)
            groups = view.summary(conditions, column, values) if column else []
        whole_bank = _summary(total[0]) if total else _summary((None, 0, None, None, None, None))
        return {**whole_bank, "groups": [{"value": row[0], **_summary(row)} for row in groups]}

    def contents(self, ids: Sequence[str]) -> JSON:
        """For each container, by id: `{"count", "characters", "first"}`; empty ones are left out."""
        _check_few(ids)
        with self._view() as view:
            return {
                id: {"count": count, "characters": characters, "first": first}
                for id, (count, characters, first) in view.contents(ids).items()
            }

    def sessions(self, id: str) -> list[str]:
        """The sessions that wrote or read a memory or its contents, sorted. Raises `NotFound`."""
        with self._view() as view:
            members = view.with_contents([self._must_find(view, id)])
            return sorted({session for member in members for session in view.sessions(member.no)})

    def history(self, id: str) -> list[JSON]:
        """All changes of a memory, which may be deleted, oldest first: `{"version", "op", "op_id", "at",
        "by", "changed": {field: {"from", "to"}}}`. Raises `NotFound`.
        """
        with self._view() as view:
            memory = self._must_find(view, id, deleted=True)
            changes = view.history(memory.no)
        later: dict[str, JSON] = memory._asdict()
        entries = []
        for change in reversed(changes):
            before = change.before or {}
            changed = {
                public_name(name): {"from": value, "to": later[name]}
                for name, value in before.items()
                if name not in _FOLLOWING
            }
            later = {**later, **before}
            entries.append(
                {
                    "version": change.version,
                    "op": change.op,
                    "op_id": change.op_id,
                    "at": change.at_ms,
                    "by": change.actor,
                    "changed": changed,
                }
            )
        return entries[::-1]

    def journal(self, *, after: int = 0, limit: int = 100) -> list[JSON]:
        """The bank's operations in order: `{"no", "op", "op_id", "at", "by", "detail", "hash"}`."""
        with self._view() as view:
            lines = list(view.journal(whole("after", after, 0, 2**53), whole("limit", limit, 1, MAX_LIMIT)))
        return [
            {
                "no": line.no,
                "op": line.op,
                "op_id": line.op_id,
                "at": line.at_ms,
                "by": json.loads(line.actor),
                "detail": json.loads(line.detail),
                "hash": line.hash,
            }
            for line in lines
        ]


def _group_column(group_by: str | None) -> tuple[str | None, tuple[JSON, ...]]:
    if group_by is None:
        return None, ()
    if group_by in _GROUPS:
        return f"m.{group_by}", ()
    if group_by == "tags":
        return TAG, ()
    match = _TAG.fullmatch(group_by) if isinstance(group_by, str) else None
    if match is None:
        raise BadRequest(f"group_by: one of {', '.join(_GROUPS)}, tags or metadata.KEY")
    path = f'$."{match[1]}"'
    return SCALAR, (path,) * SCALAR.count("?")


def _summary(row: Sequence[JSON]) -> dict[str, JSON]:
    _, count, mean, first_ms, last_ms, characters = row
    return {
        "count": count,
        "average_importance": None if mean is None else round(mean, 4),
        "first_created": first_ms,
        "last_created": last_ms,
        "characters": characters or 0,
    }


def _make_cursor(order: str, memory: Memory) -> str:
    entry = canonical([order, order_value(order.removeprefix("-"), memory), memory.no])
    return base64.urlsafe_b64encode(entry.encode()).decode()


_NOT_OURS = "cursor: not from an earlier reply of this list (leave it out for the first page)"


def _open_cursor(cursor: str, order: str) -> tuple[JSON, int]:
    try:
        order_of_cursor, value, no = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, AttributeError):
        raise BadRequest(_NOT_OURS) from None
    if order_of_cursor != order or isinstance(value, list | dict):
        raise BadRequest("cursor: it belongs to a list in another order (leave it out for the first page)")
    whole("cursor", no, -(2**63) + 1, 2**63 - 1)
    if isinstance(value, int | float) and not abs(value) < 2**63:
        raise BadRequest(_NOT_OURS)
    return value, no


def _check_few(ids: JSON) -> None:
    """Raises `BadRequest` unless `ids` is a list of at most `MAX_LIMIT` entries."""
    if not isinstance(ids, list | tuple) or len(ids) > MAX_LIMIT:
        raise BadRequest(f"ids: must be a list of at most {MAX_LIMIT}")
