"""Multipart uploads: the sizes of their parts, and the content of an `upload_id`."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from core.errors import NotFound

# The limits of S3 are 5 MiB, except for the last part, and 10,000 parts:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
PART_BYTES = 8 * 1024 * 1024
MAX_PARTS = 1000
MISSING = "There is no such upload, or it was aborted or has expired. Start again with POST /uploads."
_PATTERN = re.compile(r"([\w.-]+)\n(\d{1,15})\n(uploads/([^/]+)/upl_[0-9A-Z]{26}/[\w.-]{1,100})", re.ASCII)


def part_sizes(size: int) -> list[int]:
    """The sizes of the parts in bytes. All but the last are equal."""
    most = max(PART_BYTES, -(-size // MAX_PARTS))
    full, rest = divmod(size, most)
    return [most] * full + [rest] * (rest > 0)


@dataclass(frozen=True, slots=True)
class MultipartId:
    """The content of an `upload_id`, so that nothing has to be stored: S3's id, the key, the size in bytes.

    It is not signed, since it grants nothing: the key must be the caller's own, S3 accepts `s3_id` for this key
    only, and the URLs of the parts are signed with their sizes. A false size affects its author only.
    """

    s3_id: str
    key: str
    size: int

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(f"{self.s3_id}\n{self.size}\n{self.key}".encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, *, owner: str) -> MultipartId:
        """Raises NotFound if it is malformed or has another owner."""
        try:
            found = _PATTERN.fullmatch(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
        except ValueError:
            found = None
        if found is None or found[4] != owner:
            raise NotFound(MISSING)
        return cls(found[1], found[3], int(found[2]))
