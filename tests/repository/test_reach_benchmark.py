"""The benchmark of reach: what it names is enough, and its phrases are of the place that it says."""

from collections import Counter
from types import ModuleType

import pytest
from kit import ROOT
from test_quality_benchmark import load


@pytest.fixture(scope="module")
def reach() -> ModuleType:
    return load(ROOT / "benchmarks" / "reach.py")


def test_twenty_documents_of_every_format_are_named_each_once(reach: ModuleType) -> None:
    table = reach.rows()
    counts = Counter(row.format for row in table)
    assert set(counts) == set(reach.FORMATS)
    assert min(counts.values()) >= reach.AT_LEAST
    assert len({row.sha256 for row in table}) == len(table)
    packages = {kind: {row.package for row in table if row.format == kind} for kind in counts}
    assert {kind: names for kind, names in packages.items() if len(names) < 3} == {}


def test_a_phrase_is_of_the_second_part_and_of_no_other_text(reach: ModuleType) -> None:
    shared = "the heron stands quietly beside water"
    reading = reach.Reading(
        (("Slide 1", ("a cover",)), ("Slide 2", (shared, "grey geese graze inside polders today"))), ""
    )
    sought = reach.phrase("pptx", reading, [reach.joined([shared])])
    assert sought == ("grey geese graze inside polders today", "Slide 2")
    assert reach.phrase("pptx", reading, [reach.joined(line) for _, line in reading.parts]) is None


def test_a_phrase_of_a_text_that_flows_is_of_its_second_half(reach: ModuleType) -> None:
    lines = tuple(f"number{n} words stand here" for n in "abcd")
    assert reach.phrase("docx", reach.Reading((("", lines),), ""), []).words == "numberc words stand here"


def test_the_share_of_words_counts_each_as_often_as_it_is_there(reach: ModuleType) -> None:
    reading = reach.Reading((("", ("one two two",)),), "")
    assert reach.share(reading, "Two, ONE") == pytest.approx(2 / 3)
