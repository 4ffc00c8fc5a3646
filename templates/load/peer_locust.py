"""Locust's FastHttpUser, plain JSON POST: PORT post USERS REQUESTS -> one JSON object."""

import gevent.monkey

gevent.monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

import gevent  # noqa: E402
import locust  # noqa: E402
from locust import FastHttpUser, constant, task  # noqa: E402
from locust.env import Environment  # noqa: E402
from locust.exception import StopUser  # noqa: E402

PORT, USERS, REQUESTS = int(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 16, "stream": False, "temperature": 0.0}


class Caller(FastHttpUser):
    host = f"http://127.0.0.1:{PORT}"
    wait_time = constant(0)
    left = REQUESTS

    @task
    def post(self) -> None:
        if Caller.left <= 0:
            raise StopUser
        Caller.left -= 1
        self.client.post("/v1/chat/completions", json=BODY)


environment = Environment(user_classes=[Caller])
runner = environment.create_local_runner()
runner.start(USERS, spawn_rate=USERS * 10)
began = time.perf_counter()
while runner.user_count or environment.stats.total.num_requests < REQUESTS:
    gevent.sleep(0.02)
    if time.perf_counter() - began > 100:
        raise SystemExit("locust did not end")
stats = environment.stats.total
seconds = stats.last_request_timestamp - stats.start_time
told = {
    "rps": stats.num_requests / seconds,
    "requests": stats.num_requests,
    "errors": stats.num_failures,
    "total_p95_ms": stats.get_response_time_percentile(0.95),
    "version": locust.__version__,
}
print(json.dumps(told))
