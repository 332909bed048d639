"""What the tests of the workbench share: requests to a studio, and what may come back."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse

TOKEN = "a-token"
OWN = """
from torch import nn


def net(num_classes=5):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, num_classes)
    )
"""


def ask(port, path, body=None, *, raw=None, token=TOKEN, headers=None):
    """Status and the answer, read as JSON where it is some."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = raw if raw is not None else None if body is None else json.dumps(body)
    kind = {} if raw is not None else {"Content-Type": "application/json"}
    line.request("GET" if sent is None else "POST", path, sent, {"X-Token": token, **kind, **(headers or {})})
    answer = line.getresponse()
    content = answer.read()
    line.close()
    return answer.status, json.loads(content) if answer.getheader("content-type") == "application/json" else content


def refused(answer, words=""):
    status, told = answer
    assert 400 <= status < 500, answer
    assert isinstance(told["detail"], str) and "\n" not in told["detail"] and words in told["detail"], told


def finished(port, answer):
    status, job = answer
    assert status == 200, answer
    while job["state"] == "running":
        time.sleep(0.05)
        job = ask(port, f"/api/jobs/{job['job']}")[1]
    return job


def part(model, classes, images, **more):
    return {"model": model, "classes": classes, "data": images, "budget": 0.5, **more}


def query(**given):
    return "/api/import?" + urllib.parse.urlencode(
        {"name": "n", "arch": "lenet", "mean": "0.5", "std": "0.25", **given}
    )
