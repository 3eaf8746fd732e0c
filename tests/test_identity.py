"""Ids and hashes that stay the same across versions."""

import hashlib
import uuid

from hypothesis import given
from hypothesis import strategies as st

from ctx.identity import document_id, embedding_text, outline, text_hash


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_document_id_is_a_version_5_uuid_of_its_place(source: str, source_id: str) -> None:
    assert document_id(source, source_id) == str(uuid.uuid5(uuid.NAMESPACE_OID, f"{source}\0{source_id}"))


def test_the_embedded_text_leads_with_title_and_heading_once() -> None:
    assert embedding_text("Guide", "Setup > Linux", "apt install") == "Guide > Setup > Linux\napt install"
    assert embedding_text("Guide", "Guide", "text") == "Guide\ntext"
    assert embedding_text("", "", "text") == "text"
    assert len(text_hash("x")) == 16


def test_what_configurations_are_told_apart_by_is_the_same_in_every_version() -> None:
    value = ("docs", ("**/*.md",), True, "a name that is not UTF-8: \udc80")
    assert outline(value) == hashlib.sha256(repr(value).encode()).hexdigest()[:16]
    assert outline(value, 12) == outline(value)[:12]
