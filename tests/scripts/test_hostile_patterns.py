"""An ignore file written by a stranger does not stop the server."""

from pathlib import Path

import pytest
from faults import serving
from kit import project


@pytest.mark.slow
def test_a_served_folder_with_an_ignore_file_of_stars_answers_and_ends(tmp_path: Path) -> None:
    config = project(tmp_path, {"a" * 60 + ".md": "# Needle\n"})
    (tmp_path / "docs" / ".gitignore").write_text("*a" * 11 + "*b\n" + "*[ab]" * 11 + "c\n")
    with serving(config) as server:
        assert server.get("/health")["status"] == "ok"
        assert server.post("/tools/refresh", {})[0] == 200  # ends when the folder has been looked at
        assert server.search("needle")
        server.stop()
        assert server.process.returncode == 0
