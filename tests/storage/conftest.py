"""Fixtures of the storage tests."""

from tests.s3 import s3_bucket, s3_server

__all__ = ["s3_bucket", "s3_server"]
