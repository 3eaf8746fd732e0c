"""`ctx eval`: questions with their answers, figures, and what stood above a miss."""

import json
from pathlib import Path

import pytest
from kit import project, workspace

from ctx.cli import command_parser
from ctx.cli.eval import Question, rank_of, read_questions, run_eval, summary
from ctx.errors import BadRequest

FILES = {"otter.md": "# Otters\n\nOtters swim.\n", "heron.md": "# Herons\n\nHerons stand; otters do not.\n"}


def test_questions_are_json_or_a_tab_and_a_path() -> None:
    text = '# mine\n{"query": "a b", "expect": ["x.md", "y.md"], "source": "git"}\n\nc d\tdocs/z.md\n'
    assert read_questions(text, "q") == [
        Question("a b", ("x.md", "y.md"), "git"),
        Question("c d", ("docs/z.md",)),
    ]


@pytest.mark.parametrize(
    "line",
    ["no tab", '{"query": "x"}', "{", '{"query": "", "expect": "a"}', '{"query":' + "[" * 100_000, ""],
    ids=lambda line: line[:12],
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(BadRequest, match=r"q:2|no questions"):
        read_questions(f"\n{line}", "q")


def test_an_answer_is_met_by_its_path_or_the_end_of_it() -> None:
    results = [{"source_id": path} for path in ("a/xb.md", "docs/b.md")]
    assert rank_of(Question("q", ("b.md",)), results) == 2
    assert rank_of(Question("q", ("c.md",)), results) is None
    decomposed = [{"source_id": "docs/U\u0308bersicht.md"}]
    assert rank_of(Question("q", ("Übersicht.md",)), decomposed) == 1, "however the accents are stored"
    ranks = [rank_of(Question("q", (path,)), results) for path in ("a/xb.md", "b.md", "none")]
    assert list(summary(ranks).values()) == pytest.approx([1 / 3, 2 / 3, 2 / 3, 0.5])


def evaluate(arguments: list[str]) -> int:
    """`ctx eval` with these arguments."""
    return run_eval(command_parser("eval").parse_args(arguments))


def test_hits_and_misses_are_told_with_what_stood_above(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = project(tmp_path, FILES)
    with workspace(config) as space:
        space.indexer.run()
    questions = tmp_path / "questions.tsv"
    questions.write_text("swimming otters\totter.md\notters\tzebra.md\n")
    assert evaluate([str(questions), "--config", str(config)]) == 0
    printed = capsys.readouterr()
    output = printed.out
    assert printed.err == "Note: zebra.md is not indexed, so it cannot be found\n"
    assert "keyword       0.50" in output
    assert "wanted zebra.md: not among 100" in output
    assert "1. otter.md" in output
    assert "keyword rank 1" in output
    assert evaluate([str(questions), "--config", str(config), "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    (figures,) = reply["modes"]
    assert reply["not_indexed"] == ["zebra.md"]
    assert (figures["mode"], figures["mrr"], figures["misses"][0]["rank"]) == ("keyword", 0.5, None)


def test_a_file_of_questions_may_be_as_other_systems_write_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = project(tmp_path, FILES)
    with workspace(config) as space:
        space.indexer.run()
    questions = tmp_path / "questions.jsonl"
    line = '{"query": "swimming\u2028otters", "expect": "otter.md"}\r\n'
    questions.write_bytes(b"\xef\xbb\xbf" + line.encode())
    assert evaluate([str(questions), "--config", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["modes"][0]["first"] == 1.0


def test_what_would_pass_for_a_miss_is_refused(tmp_path: Path) -> None:
    config = project(tmp_path, FILES)
    with workspace(config) as space:
        space.indexer.run()
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"query": "otters", "expect": "otter.md", "source": "filesystem:nope"}\n')
    with pytest.raises(BadRequest, match=r"no source is called 'filesystem:nope' \(known: filesystem"):
        evaluate([str(questions), "--config", str(config)])
