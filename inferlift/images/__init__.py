"""The user's images: an Alpine Dockerfile moved to a CUDA or Debian base, built and checked."""

from inferlift.images.build import build, verify
from inferlift.images.rewrite import Rewritten, rewrite

__all__ = ["Rewritten", "build", "rewrite", "verify"]
