"""The public MCP conformance suite in both eras. Expected failures are in a file, with reasons."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance_fixtures import ConformanceServer
from mcp_doors import no_catalog
from real_clients import SCRIPTS, node_run, package_program
from serving import Serve

from ctx.server.app import McpEndpoint, Services, http_access
from ctx.server.work import Work

pytestmark = [pytest.mark.full, pytest.mark.clients, pytest.mark.timeout(600)]


def _door(services: Services) -> Callable[[Work], McpEndpoint]:
    def make(work: Work) -> McpEndpoint:
        return McpEndpoint(
            ConformanceServer(services.toolbox, services.agents, no_catalog, work, access=http_access)
        )

    return make


@pytest.mark.parametrize(("revision", "at_least"), [("2025-11-25", 55), ("2026-07-28", 100)])
def test_the_suite_passes_except_for_expected_failures(
    serve: Serve, services: Services, tmp_path: Path, revision: str, at_least: int
) -> None:
    served = serve(services._replace(mcp=_door(services)))
    process = node_run(
        package_program("@modelcontextprotocol/conformance", "conformance"),
        "server",
        *("--url", served.base + "/mcp/alice/", "--requirements", revision),
        *("--expected-failures", str(SCRIPTS / f"expected-failures-{revision}.yml")),
        *("--output-dir", str(tmp_path)),
        timeout_s=580,
    )
    assert process.returncode == 0, process.stdout[-6000:] + process.stderr[-2000:]
    checks = [check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())]
    passed = [check for check in checks if check["status"] == "SUCCESS"]
    assert len(passed) >= at_least, f"{len(passed)} of {len(checks)} checks: did the suite run?"
