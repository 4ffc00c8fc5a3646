"""Moves a data folder over SSH: resumable, compared by checksums on both sides, checked again quickly later."""

from inferlift.transfer.copy import copy, copy_s3, remove, verify

__all__ = ["copy", "copy_s3", "remove", "verify"]
