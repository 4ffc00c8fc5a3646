"""An application of Ray Serve for tests: a model of one line, one replica a host."""

import asyncio
import socket

from ray import serve


@serve.deployment(num_replicas=2, max_ongoing_requests=8, ray_actor_options={"num_cpus": 0.5})
class Lines:
    async def __call__(self, request):
        text = (await request.body()).decode()
        await asyncio.sleep(0.01)
        return {"text": text[::-1], "host": socket.gethostname()}


app = Lines.bind()
