"""The protocols a load run can speak, by name. Adding one: a small class here, and its name in NAMES."""

from inferlift.load.protocols.base import Checked, Protocol
from inferlift.load.protocols.openai import Chat, Completions, Embeddings
from inferlift.load.protocols.plain import Check, Generic, Image
from inferlift.load.protocols.tensors import KServe, KServeGrpc

NAMES = ("chat", "completions", "embeddings", "kserve", "kserve-grpc", "image", "http")

__all__ = [
    "NAMES",
    "Chat",
    "Check",
    "Checked",
    "Completions",
    "Embeddings",
    "Generic",
    "Image",
    "KServe",
    "KServeGrpc",
    "Protocol",
]
