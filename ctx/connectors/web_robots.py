"""A site's rules for robots: robots.txt (RFC 9309, parsed by Protego) and the directives of a page."""

import re

from protego import Protego

MAX_ROBOTS_BYTES = 512_000  # RFC 9309, 2.5
MAX_DELAY_S = 30.0  # a longer `Crawl-delay` is cut to this
_VERSION = re.compile(r"^([ \t]*user-agent[ \t]*:[^/#\n]{0,200})/[^#\n]*", re.IGNORECASE | re.MULTILINE)


class Robots:
    """The rules of a robots.txt for one robot, or those for all (`*`). Raises no errors."""

    def __init__(self, data: bytes, agent: str) -> None:
        text = data[:MAX_ROBOTS_BYTES].decode("utf-8-sig", "replace")
        self._rules = Protego.parse(_VERSION.sub(r"\1", text))  # Protego expects names without a version
        self._agent = agent
        self.delay_s = min(self._rules.crawl_delay(agent) or 0.0, MAX_DELAY_S)

    def allows(self, address: str) -> bool:
        """Whether a page may be requested."""
        return self._rules.can_fetch(address, self._agent)


def forbids(directives: str, wish: str) -> bool:
    """Whether a `robots` meta tag or `X-Robots-Tag` contains `noindex` or `nofollow` (`wish`)."""
    words = {word.strip() for word in directives.lower().replace(":", ",").split(",")}
    return wish in words or "none" in words
