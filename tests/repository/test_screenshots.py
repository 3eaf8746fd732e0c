"""Every view of the page has a light and a dark picture in the docs, and the terminal has one."""

import re

from kit import ROOT

IMAGES = ROOT / "docs" / "images"


def views() -> list[str]:
    text = (ROOT / ".ci" / "screenshots.py").read_text()
    return re.findall(r'^    "(\w+)": \("#/', text, re.MULTILINE)


def test_every_view_has_a_light_and_a_dark_picture_on_its_page_and_there_is_no_other() -> None:
    names = {f"{view}-{scheme}.webp" for view in views() for scheme in ("light", "dark")}
    page = (ROOT / "docs" / "page.md").read_text()
    assert len(names) == 16
    assert {path.name for path in IMAGES.iterdir()} == names | {"terminal.svg"}
    shown = re.findall(r"\(images/([\w.-]+-(light|dark)\.webp)#gh-(light|dark)-mode-only\)", page)
    assert {name for name, _, _ in shown} == names
    assert all(scheme == mode for _, scheme, mode in shown)  # the one that suits what is around it


def test_every_view_of_the_page_is_photographed() -> None:
    sections = re.findall(r'id="view-(\w+)"', (ROOT / "ctx" / "server" / "page" / "index.html").read_text())
    assert {"doc" if view == "document" else view for view in views()} == set(sections)
