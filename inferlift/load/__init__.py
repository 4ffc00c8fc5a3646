"""The load engine: the 1000-request test, quality gate, parity replay, readiness probes, the lab's users.

Heavy imports (aiohttp, dnspython) stay in the modules that need them: client, connection, users.
"""
