"""Requests for pictures, scripts and frames in foreign pages, which carry no Origin."""

import pytest
from serving import Serve, failure

from ctx.server.app import Services

FOREIGN_PICTURE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}


@pytest.mark.parametrize("path", ["/packs/diary/health", "/activity", "/banks", "/mcp"])
@pytest.mark.parametrize("dest", ["image", "script", "iframe", "empty"])
def test_a_picture_in_a_foreign_page_reaches_nothing_private(
    serve: Serve, with_mcp: Services, path: str, dest: str
) -> None:
    client = serve(with_mcp).client
    response = client.get(path, headers={**FOREIGN_PICTURE, "sec-fetch-dest": dest})
    assert failure(response) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in response.headers


def test_a_link_in_a_foreign_page_and_a_picture_in_ones_own_lead_where_they_say(
    serve: Serve, with_mcp: Services
) -> None:
    client = serve(with_mcp).client
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/packs/diary/health", headers=followed).status_code == 200
    for site in ("same-origin", "same-site", "none"):
        headers = {**FOREIGN_PICTURE, "sec-fetch-site": site}
        assert client.get("/packs/diary/health", headers=headers).status_code == 200
    for path in ("/", "/health", "/tools/list"):
        assert client.get(path, headers=FOREIGN_PICTURE).status_code == 200, path
