"""A bare aiohttp loop, as people write it: PORT stream|post USERS REQUESTS -> one JSON object."""

import asyncio
import json
import sys
import time

import aiohttp


async def main(port: int, kind: str, users: int, requests: int) -> None:
    body = {
        "messages": [{"role": "user", "content": "hello"}], "max_tokens": 16, "stream": kind == "stream",
        "temperature": 0.0,
    }  # fmt: skip
    if kind == "stream":
        body["stream_options"] = {"include_usage": True}
    data = json.dumps(body, separators=(",", ":")).encode()
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    ttfts, totals, left = [], [], requests

    async def user(http: aiohttp.ClientSession) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began, first = time.perf_counter(), None
            async with http.post(url, data=data, headers={"Content-Type": "application/json"}) as response:
                if kind == "stream":
                    async for line in response.content:
                        if first is None and b'"content":"w' in line:
                            first = time.perf_counter() - began
                else:
                    json.loads(await response.read())
            totals.append(time.perf_counter() - began)
            if first is not None:
                ttfts.append(first)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        began = time.perf_counter()
        await asyncio.gather(*(user(http) for _ in range(users)))
        seconds = time.perf_counter() - began
    p95 = lambda v: sorted(v)[max(0, -(-len(v) * 95 // 100) - 1)] * 1000 if v else None  # noqa: E731
    print(json.dumps({"rps": requests / seconds, "seconds": seconds, "ttft_p95_ms": p95(ttfts),
                      "total_p95_ms": p95(totals), "version": aiohttp.__version__}))  # fmt: skip


asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
