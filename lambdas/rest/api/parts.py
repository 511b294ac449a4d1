"""An upload in parts: how a file is cut, and what its `upload_id` says."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from core.errors import NotFound

# S3's own limits are 5 MiB, but for the last part, and 10,000 parts:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
PART_BYTES = 8 * 1024 * 1024
MAX_PARTS = 1000
MISSING = "There is no such upload, or it was aborted or has expired. Begin again with POST /uploads."
_FORM = re.compile(r"([\w.-]+)\n(\d{1,15})\n(uploads/([^/]+)/upl_[0-9A-Z]{26}/[\w.-]{1,100})", re.ASCII)


def part_sizes(size: int) -> list[int]:
    """The bytes of part 1, 2, …, which together are `size`; all but the last are equal."""
    most = max(PART_BYTES, -(-size // MAX_PARTS))
    full, rest = divmod(size, most)
    return [most] * full + [rest] * (rest > 0)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What an `upload_id` holds, so that nothing has to be kept: S3's own id, the key, the size in bytes.

    It gives no right. The key must be the caller's own, S3 knows `s3_id` for this key alone, and the URLs of the
    parts bind what can be sent; a false size misleads nobody but the one who made it up.
    """

    s3_id: str
    key: str
    size: int

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(f"{self.s3_id}\n{self.size}\n{self.key}".encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, *, owner: str) -> Ticket:
        """Raises NotFound for what is none, or somebody else's."""
        try:
            found = _FORM.fullmatch(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
        except ValueError:
            found = None
        if found is None or found[4] != owner:
            raise NotFound(MISSING)
        return cls(found[1], found[3], int(found[2]))
