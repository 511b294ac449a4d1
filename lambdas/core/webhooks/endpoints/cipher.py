"""Encryption of endpoints' secrets with KMS.

A function with `kms:Encrypt` (the API) can give an endpoint its secrets. Only one with `kms:Decrypt` (the sender)
can read them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types_boto3_kms import KMSClient


class SecretCipher:
    """Encrypts texts with a KMS key. The encryption context binds each of them to its endpoint."""

    def __init__(self, client: KMSClient, key_arn: str) -> None:
        self._client, self._key_arn = client, key_arn
        self._decrypted: dict[tuple[str, str, bytes], str] = {}
        self._lock = threading.Lock()

    def encrypt(self, text: str, *, owner: str, endpoint_id: str) -> bytes:
        """At most 4,096 bytes: https://docs.aws.amazon.com/kms/latest/APIReference/API_Encrypt.html"""
        context = _context(owner, endpoint_id)
        return self._client.encrypt(KeyId=self._key_arn, Plaintext=text.encode(), EncryptionContext=context)[
            "CiphertextBlob"
        ]

    def decrypt(self, encrypted: bytes, *, owner: str, endpoint_id: str) -> str:
        """Asks KMS once for each ciphertext, and keeps the result in memory."""
        key = (owner, endpoint_id, encrypted)
        with self._lock:  # of concurrent threads, one asks KMS
            if key not in self._decrypted:
                answer = self._client.decrypt(
                    KeyId=self._key_arn, CiphertextBlob=encrypted, EncryptionContext=_context(owner, endpoint_id)
                )
                self._decrypted[key] = answer["Plaintext"].decode()
            return self._decrypted[key]


def _context(owner: str, endpoint_id: str) -> Mapping[str, str]:
    return {"owner": owner, "endpoint": endpoint_id}
