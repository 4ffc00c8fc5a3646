"""One DNS question over UDP, without a library."""

import os
import socket
import struct

SOA, A = 6, 1


def ask(name, kind, server="127.0.0.1", seconds=3):
    """(response code, authoritative, recursion available, number of answers)"""
    number = os.urandom(2)
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.rstrip(".").split("."))
    question = number + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(seconds)
        channel.connect((server, 53))
        channel.send(question)
        answer = channel.recv(4096)
    flags, _, answers = struct.unpack(">HHH", answer[2:8])
    if answer[:2] != number:
        raise OSError("an answer to another question")
    return flags & 15, bool(flags & 0x0400), bool(flags & 0x0080), answers
