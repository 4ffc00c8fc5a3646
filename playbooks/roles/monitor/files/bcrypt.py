# The bcrypt hash of the password on stdin. The salt comes from the password, which is random: runs agree on the hash.
import base64
import ctypes
import hashlib
import sys

password = sys.stdin.read().strip().encode()
salt = base64.b64encode(hashlib.sha256(b"inferlift:" + password).digest()[:16], b"./")[:21].decode() + "u"
libcrypt = ctypes.CDLL("libcrypt.so.1")
libcrypt.crypt.restype = ctypes.c_char_p
hashed = libcrypt.crypt(password, b"$2b$08$" + salt.encode()).decode()
sys.exit("libcrypt cannot do bcrypt") if len(hashed) != 60 else print(hashed)
