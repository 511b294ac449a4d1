"""What other services do where the project relies on it."""

from __future__ import annotations

import json
import math

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.support import fakes, sample


def test_embeddings_are_unit_vectors_that_depend_on_the_text_alone(it: sample.Sample) -> None:
    """In the dimensions asked for."""

    def embed(text: str) -> list[float]:
        body = json.dumps({"inputText": text, "dimensions": 256})
        client = boto3.client("bedrock-runtime")
        answer = client.invoke_model(modelId=fakes.TITAN, body=body)
        vector: list[float] = json.load(answer["body"])["embedding"]
        return vector

    one, same, other = embed("one"), embed("one"), embed("other")
    assert one == same != other
    assert (len(one), math.hypot(*one)) == (256, pytest.approx(1))
    assert abs(sum(a * b for a, b in zip(one, other, strict=True))) < 0.3


def test_the_model_can_be_throttled(it: sample.Sample) -> None:
    """Like every other call."""
    it.fail("bedrock-runtime", "InvokeModel", "ThrottlingException")
    client = it.client("bedrock-runtime")
    with pytest.raises(client.exceptions.ThrottlingException):
        client.invoke_model(modelId=fakes.TITAN, body="{}")


def test_an_object_is_created_once(it: sample.Sample) -> None:
    """IfNoneMatch and IfMatch."""
    s3, bucket = it.client("s3"), it.bucket("Bucket")
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=etag)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="k", Body=b"4", IfMatch=etag)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)


def test_a_secret_opens_in_its_own_context_only(it: sample.Sample) -> None:
    """KMS binds the encryption context."""
    kms = it.client("kms")
    sealed = kms.encrypt(KeyId="alias/sample", Plaintext=b"s", EncryptionContext={"owner": "a"})
    blob = sealed["CiphertextBlob"]
    assert kms.decrypt(CiphertextBlob=blob, EncryptionContext={"owner": "a"})["Plaintext"] == b"s"
    with pytest.raises(ClientError, match="InvalidCiphertext"):
        kms.decrypt(CiphertextBlob=blob, EncryptionContext={"owner": "b"})


def test_a_presigned_upload_is_bound_to_its_headers(it: sample.Sample) -> None:
    """Type, length and if-none-match as signed, and in time; otherwise 403."""
    from botocore.config import Config

    s3 = boto3.client("s3", config=Config(signature_version="s3v4"))
    params = {
        "Bucket": it.bucket("Bucket"),
        "Key": "uploads/a b.txt",
        "ContentType": "text/plain",
        "ContentLength": 5,
        "IfNoneMatch": "*",
    }
    url = s3.generate_presigned_url("put_object", Params=params, ExpiresIn=60)
    headers = {"Content-Type": "text/plain", "If-None-Match": "*"}
    assert it.fetch("PUT", url, body=b"longer", headers=headers).status_code == 403
    assert it.fetch("PUT", url, body=b"hello", headers={"If-None-Match": "*"}).status_code == 403
    assert it.fetch("PUT", url, body=b"hello", headers=headers).status_code == 200
    assert it.fetch("PUT", url, body=b"hello", headers=headers).status_code == 412
    it.clock.advance(61)
    assert it.fetch("PUT", url, body=b"hello", headers=headers).status_code == 403
