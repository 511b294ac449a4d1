"""Details of S3 and KMS that moto models and presigned URLs that this package checks."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.simulated_cloud.tests.sample import Sample


def test_conditional_writes_and_reads(sample: Sample) -> None:
    """IfNoneMatch and IfMatch fail with PreconditionFailed."""
    s3, bucket = sample.client("s3"), sample.bucket("Bucket")
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=etag)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="k", Body=b"4", IfMatch=etag)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)


def test_a_ciphertext_needs_its_encryption_context(sample: Sample) -> None:
    """Decrypt with another encryption context fails."""
    kms = sample.client("kms")
    sealed = kms.encrypt(
        KeyId=sample.name("AWS::KMS::Key", "Key"), Plaintext=b"s", EncryptionContext={"owner": "a"}
    )
    blob = sealed["CiphertextBlob"]
    assert kms.decrypt(CiphertextBlob=blob, EncryptionContext={"owner": "a"})["Plaintext"] == b"s"
    with pytest.raises(ClientError, match="InvalidCiphertext"):
        kms.decrypt(CiphertextBlob=blob, EncryptionContext={"owner": "b"})


def test_a_presigned_upload_is_bound_to_its_headers(sample: Sample) -> None:
    """A request with other headers than the signed ones, or after the expiry, gets a 403."""
    s3 = boto3.client("s3", config=Config(signature_version="s3v4"))
    params = {
        "Bucket": sample.bucket("Bucket"),
        "Key": "uploads/a b.txt",
        "ContentType": "text/plain",
        "ContentLength": 5,
        "IfNoneMatch": "*",
    }
    url = s3.generate_presigned_url("put_object", Params=params, ExpiresIn=60)
    headers = {"Content-Type": "text/plain", "If-None-Match": "*"}
    assert sample.fetch("PUT", url, body=b"longer", headers=headers).status_code == 403
    assert sample.fetch("PUT", url, body=b"hello", headers={"If-None-Match": "*"}).status_code == 403
    assert sample.fetch("PUT", url, body=b"hello", headers=headers).status_code == 200
    assert sample.fetch("PUT", url, body=b"hello", headers=headers).status_code == 412
    sample.clock.advance(61)
    assert sample.fetch("PUT", url, body=b"hello", headers=headers).status_code == 403
