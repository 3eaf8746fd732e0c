"""What a server reads between searches, so that they need not."""

from pathlib import Path

from faults import eventually
from kit import project, workspace

from ctx import rules
from ctx.types import Filters


def test_a_server_learns_what_the_files_near_those_it_found_are_called(tmp_path: Path) -> None:
    texts = {"otter.md": "otter"} | {f"heron-{number}.md": "heron" for number in range(30)}
    space = workspace(project(tmp_path, texts))
    try:
        space.indexer.run()
        profiles = space.searcher._profiles
        space.start()
        assert [result.title for result in space.searcher.search("otter").results] == ["otter"]
        herons = [hit.document_no for hit in space.index.keyword("heron", Filters(), 30)]
        assert len(herons) == 30
        eventually(lambda: all(profiles.known(number) is not rules.UNKNOWN for number in herons))
        assert sorted(profiles.known(number).stem for number in herons)[0] == "heron-0"
    finally:
        space.close()
