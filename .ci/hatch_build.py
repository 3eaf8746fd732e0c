"""What the wheel holds beside the package: the documentation, its site and the manual page, where built."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface):  # type: ignore[misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":
            return  # a checkout has them beside the package
        for page in (root / "docs").rglob("*.md"):  # the pictures are the site's
            build_data["force_include"][str(page)] = f"ctx/_bundled/{page.relative_to(root)}"
        if (root / "site" / "index.html").is_file():
            build_data["force_include"][str(root / "site")] = "ctx/_bundled/site"
        manual = root / "build" / "man" / "ctx.1"
        if manual.is_file():
            build_data["shared_data"][str(manual)] = "share/man/man1/ctx.1"
