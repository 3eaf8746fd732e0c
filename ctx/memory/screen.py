"""Flags texts that look like secrets or like instructions to a model.

Both are guesses from patterns. By default the memory is stored anyway, and the flags warn its readers.
"""

import re

from ctx.errors import BadRequest
from ctx.models import JSON

POLICIES = ("flag", "redact", "refuse", "off")
INSTRUCTION = "instruction_like"
SCREENED = ("text", "metadata", "label", "context", "contexts", "tags")
"""The columns of a memory that are screened."""

_SECRETS = {
    "private_key": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\S]{0,8000}?-----END [A-Z ]*PRIVATE KEY-----)?"
    ),
    "aws_access_key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "github_token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})\b"),
    "gitlab_token": re.compile(r"\bglpat-[A-Za-z0-9_-]{20,64}\b"),
    "slack_token": re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    "google_api_key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "stripe_key": re.compile(r"\b[rs]k_live_[0-9A-Za-z]{16,128}\b"),
    "api_key": re.compile(r"\bsk-(?:proj-|ant-|or-)?[A-Za-z0-9_-]{20,200}\b"),
    "jwt": re.compile(r"\beyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,1000}\b"),
    "url_password": re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/@]{3,200}@"),
    "password": re.compile(
        r"(?i)\b(?:password|passwd|passphrase|secret[_ -]?key|api[_ -]?key|access[_ -]?token"
        r"|auth[_ -]?token)\s{0,3}(?:is|:=?|=)\s{0,3}"
        r"[\"']?(?=[^\s\"']{0,200}\d)[^\s\"']{8,200}"
    ),
}
_REDACTED = rf"\[redacted:({'|'.join(_SECRETS)})\]"
_COMMANDS = (
    r"(?i)\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+|of\s+){0,3}(?:previous"
    r"|prior|above|earlier|preceding|other|system)\b"
    r"|\byou\s+(?:are\s+now|must\s+now|will\s+now)\b"
    r"|\b(?:reveal|print|repeat|output)\s+(?:your|the)\s+(?:system\s+)?(?:prompt|instructions)\b"
    r"|\b(?:do\s+not|don't|never)\s+(?:tell|inform|mention\s+(?:this|it)\s+to)\s+the\s+user\b"
    r"|\bnew\s+(?:system\s+)?instructions?\s*:"
    r"|<\s*/?\s*(?:system|instructions?|im_start|im_end)\s*>|<\|im_(?:start|end)\|>|\[/?INST\]"
)


def screen(text: str, policy: str) -> tuple[str, set[str]]:
    """Returns the text to store and its flags (`secret:<kind>`, `instruction_like`).

    `redact` replaces a secret by `[redacted:<kind>]`. `refuse` raises `BadRequest`, which names the kind but
    not the secret.
    """
    flags: set[str] = set()
    if policy != "off":
        for kind, pattern in _SECRETS.items():
            if pattern.search(text):
                if policy == "refuse":
                    raise BadRequest(
                        f"the text seems to contain a secret ({kind}); remove it and store the rest"
                    )
                flags.add(f"secret:{kind}")
                if policy == "redact":
                    text = pattern.sub(f"[redacted:{kind}]", text)
        flags |= {f"secret:{match[1]}" for match in re.finditer(_REDACTED, text)}
    if re.search(_COMMANDS, text):
        flags.add(INSTRUCTION)
    return text, flags


def redacted(text: str) -> str:
    """The text with each secret replaced by `[redacted:<kind>]`."""
    for kind, pattern in _SECRETS.items():
        text = pattern.sub(f"[redacted:{kind}]", text)
    return text


def screen_json(value: JSON, policy: str) -> tuple[JSON, set[str]]:
    """As `screen`, for all texts inside a JSON value."""
    if isinstance(value, str):
        return screen(value, policy)
    if isinstance(value, list):
        pairs = [screen_json(entry, policy) for entry in value]
        return [entry for entry, _ in pairs], set().union(*(flags for _, flags in pairs))
    if isinstance(value, dict):
        names, flags_of_names = screen_json(list(value), policy)
        entries, flags = screen_json(list(value.values()), policy)
        return dict(zip(names, entries, strict=True)), flags_of_names | flags
    return value, set()
