"""Whether rows, words, vectors, counts and journals agree."""

from ctx.memory.passages import segments
from ctx.memory.reader import UNDELETED, Reader
from ctx.memory.rows import MemoryRows
from ctx.memory.writer import journal_hash

# What must count nothing, and what is said of it.
_STRAYS = (
    (
        "SELECT count(*) FROM memory_vectors v LEFT JOIN memories m ON m.no = v.memory_no AND m.bank_no = "
        "v.bank_no"
        " WHERE m.no IS NULL",
        "{} vectors belong to no memory",
    ),
    (
        "SELECT count(*) FROM memories m LEFT JOIN memory_history h ON h.memory_no = m.no AND h.version = "
        "m.version"
        " WHERE h.memory_no IS NULL",
        "{} memories have no history of their version",
    ),
)
_LIVE = "SELECT {} FROM memories WHERE bank_no = ? AND deleted_ms IS NULL"


def problems(rows: MemoryRows, *, deep: bool = False) -> list[str]:
    """What does not agree, a sentence each; `deep` also reads every memory's text and compares its terms with
    those stored."""
    with rows.reading() as reader:
        sentences = reader.engine.damage()
        for sql, sentence in (*reader.engine.strays, *_STRAYS):
            if count := reader.scalar(sql):
                sentences.append(sentence.format(count))
        banks = reader.banks()
    for bank in banks:
        with rows.reading(bank) as reader:
            sentences += _of_bank(reader, deep=deep)
    return sentences


def _of_bank(reader: Reader, *, deep: bool) -> list[str]:
    bank, sentences = reader.bank, []
    live = reader.scalar(_LIVE.format("count(*)"), bank.bank_no)
    live_terms = reader.scalar(_LIVE.format("CAST(coalesce(sum(term_count), 0) AS BIGINT)"), bank.bank_no)
    if (live, live_terms) != (bank.live, bank.live_terms):
        sentences.append(f"bank '{bank.bank}' counts {bank.live} memories and holds {live}")
    if (line := _broken_line(reader)) is not None:
        sentences.append(f"the journal of bank '{bank.bank}' is broken at line {line}")
    if deep:
        differing = sum(
            reader.words([memory.no]).get(memory.no) != segments(memory)
            for memory in reader.select([UNDELETED])
        )
        if differing:
            sentences.append(
                f"bank '{bank.bank}': the words of {differing} memories are not those of their text"
            )
    return sentences


def _broken_line(reader: Reader) -> int | None:
    """The number of the first line of the bank's journals that does not follow from the one before."""
    for last_hash, lines in reader.chains():
        head, last = "", 0
        for line in lines:
            if line.hash != journal_hash(head, line.op_id, line.op, line.at_ms, line.actor, line.detail):
                return line.no
            head, last = line.hash, line.no
        if head != last_hash:
            return last
    return None
