"""Fixtures of the tests of the use cases."""

from tests.s3 import s3_bucket, s3_server

__all__ = ["s3_bucket", "s3_server"]
