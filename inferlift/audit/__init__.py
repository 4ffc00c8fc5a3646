"""The audit: the old system's access logs -> Evidence."""

from inferlift.audit.evidence import audit

__all__ = ["audit"]
