"""What the indexer says of the work at hand: how far it is, how fast it goes, how long it takes yet."""

from pathlib import Path

from kit import project, workspace

from ctx.health import health
from ctx.indexing.status import PACE_OVER_S, Pace

SOURCE = '[connectors.filesystem.docs]\nroot = "./docs"\n'


def test_a_rate_is_told_once_there_is_something_to_tell_from() -> None:
    pace = Pace()
    assert pace.rate(100.0, 0) is None
    assert pace.rate(100.5, 10) is None
    assert pace.rate(102.0, 40) == 20.0
    assert pace.rate(104.0, 40) == 10.0


def test_a_rate_is_of_the_last_minute() -> None:
    pace = Pace()
    for second in range(300):
        rate = pace.rate(float(second), 100 * min(second, 200) + max(0, second - 200))
    assert rate == 1.0  # a hundred a second until 100 s ago
    assert len(pace._looks) <= PACE_OVER_S + 2


def test_work_that_begins_anew_has_a_rate_of_its_own() -> None:
    pace = Pace()
    assert pace.rate(0.0, 0) is None
    assert pace.rate(10.0, 1000) == 100.0
    assert pace.rate(11.0, 0) is None
    assert pace.rate(13.0, 10) == 5.0


def test_health_says_how_far_the_embedding_is_and_nothing_once_it_is_done(tmp_path: Path) -> None:
    files = {f"{number}.md": f"# Page {number}\n\nword{number}" for number in range(40)}
    with workspace(project(tmp_path, files, SOURCE)) as space:
        space.indexer.run()
        looks = []

        def look(source: str, done: int, total: int | None) -> None:
            state = health(space)
            looks.append((source, done, total, state["activity"], state.get("progress")))

        space.indexer.embed(progress=look)
        assert looks[0][:4] == ("embed", 32, 40, "embedding")
        progress = looks[0][4]
        assert progress is not None
        assert (progress["done"], progress["total"]) == (32, 40)
        assert progress.keys() == {"done", "total", "rate", "left_s"}
        assert looks[-1][:3] == ("embed", 40, 40)
        assert health(space)["activity"] == "idle"
        assert "progress" not in health(space)
