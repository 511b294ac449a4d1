"""The secrets `whsec_…` and public keys `whpk_…` of receivers, and signatures by them."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recado.errors import BadSecret, MissingDependency

_SECRET, _PUBLIC, _PRIVATE = "whsec_", "whpk_", "whsk_"


@dataclass(frozen=True, slots=True)
class Key:
    """`version`: of Standard Webhooks' signatures, `v1` for secrets and `v1a` for public keys."""

    text: str
    raw: bytes
    version: Literal["v1", "v1a"]

    def matches(self, content: bytes, signature: bytes) -> bool:
        """Whether this key, or its private key, signed the content."""
        if self.version == "v1":
            return hmac.compare_digest(b64encode(hmac.digest(self.raw, content, "sha256")), signature)
        return _ed25519_matches(self.raw, content, signature)


def parse_keys(secret: object) -> list[Key]:
    """One or several keys. Raises BadSecret. Secrets come first: they need no `cryptography`."""
    texts = [secret] if isinstance(secret, str) else secret
    if isinstance(texts, (bytes, bytearray)) or not isinstance(texts, Sequence):
        raise BadSecret("The secret must be text (whsec_… or whpk_…), or a list of such texts.")
    if not texts:
        raise BadSecret("At least one secret is required.")
    return sorted((_parse_key(text) for text in texts), key=lambda key: key.version)


def _parse_key(text: object) -> Key:
    if not isinstance(text, str):
        raise BadSecret("A secret must be text: whsec_… or whpk_….")
    if text.startswith(_PRIVATE):
        raise BadSecret("whsk_… is the sender's private key. Receivers verify with the public key, whpk_….")
    if text.startswith(_PUBLIC):
        raw = _from_base64(text.removeprefix(_PUBLIC))
        if len(raw) != 32:
            raise BadSecret(f"A public key has 32 bytes, this one has {len(raw)}.")
        return Key(text, raw, "v1a")
    if not text.startswith(_SECRET):
        raise BadSecret(
            "A secret starts with whsec_, a public key with whpk_. Check for an empty value and spaces."
        )
    raw = _from_base64(text.removeprefix(_SECRET))
    if not 24 <= len(raw) <= 64:
        raise BadSecret(f"A secret has 24 to 64 bytes, this one has {len(raw)}.")
    return Key(text, raw, "v1")


def _from_base64(text: str) -> bytes:
    bare = text.rstrip("=")
    padded = bare + "=" * (-len(bare) % 4)
    if text != text.strip():
        raise BadSecret("The secret ends with white space. Remove it.")
    if not re.fullmatch(r"[A-Za-z0-9+/]*", bare) or len(bare) % 4 == 1 or text not in (bare, padded):
        raise BadSecret("After its prefix a secret is standard base64 (A-Z a-z 0-9 + /), padded or not.")
    return b64decode(padded)


def _ed25519_matches(public: bytes, content: bytes, signature: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise MissingDependency("A whpk_ key needs cryptography. Run: pip install 'recado[ed25519]'") from None
    try:
        raw = b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(raw, content)
    except (InvalidSignature, ValueError):
        return False
    return b64encode(raw) == signature  # base64 has several spellings of the same bytes
