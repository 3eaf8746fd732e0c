"""How quickly a server answers under forty hostile calls: `python benchmarks/hostile_calls.py [--seconds 5]
[--kind every]`.

Per kind of call (tests/hostile.py has them): `/health` and a search by one honest client, and how long the
process takes to end after SIGTERM in the middle of it. Attackers, client and server share the machine's
cores, as they do where somebody attacks from it.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from _common import check, finish, header, quantiles, timed

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from faults import eventually, serving
from hostile import CROWD, KINDS, NEEDLE, Assault, crowd, hostile_project

HEALTH_P99_MS = 1000.0  # on two cores that the attackers have too; alone it is a thousandth of that
SEARCH_P99_MS = 1500.0
STOP_S = 1.0


def under(kind: str, seconds: float) -> None:
    """Measures one kind of attack on a fresh server."""
    with tempfile.TemporaryDirectory() as name, serving(hostile_project(Path(name))) as server:
        eventually(lambda: server.search(NEEDLE) == ["guide.md"])
        health_s, search_s = [], []
        with Assault(server.address, crowd(kind)) as assault:
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                health_s.append(timed(lambda: server.get("/health")))
                search_s.append(timed(lambda: server.search(NEEDLE)))
            calls = sum(attacker.calls for attacker in assault.attackers)
            stop_s = server.stop()
        print(f"\n{kind}: {calls} hostile calls by {len(assault.attackers)} attackers in {seconds:g} s")
        for route, times_s, limit_ms in (
            ("/health", health_s, HEALTH_P99_MS),
            ("search", search_s, SEARCH_P99_MS),
        ):
            p50, p95, p99 = quantiles(times_s)
            print(f"      {route}: {len(times_s)} calls, p50 {p50:.1f} ms, p95 {p95:.1f} ms")
            check(f"{route}, p99", p99, limit_ms, unit=" ms")
        check("SIGTERM until the process has ended", stop_s, STOP_S, unit=" s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each kind")
    parser.add_argument("--kind", choices=[*KINDS, "every"], help="only this one")
    options = parser.parse_args()
    header(f"A server under {CROWD} hostile calls at once")
    for kind in [options.kind] if options.kind else [*KINDS, "every"]:
        under(kind, options.seconds)
    finish()


if __name__ == "__main__":
    main()
