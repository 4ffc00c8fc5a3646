"""The user's images: an Alpine Dockerfile moved to a CUDA or Debian base, built and checked."""

from inferlift.images.rewrite import Rewritten, rewrite

__all__ = ["Rewritten", "rewrite"]
