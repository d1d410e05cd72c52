"""Creates a stream, waits for an encoder to go live and to stop, and lists the assets of the account.

    KEY=… python3 examples/python/main.py

It needs nothing but the standard library.
"""

import json
import os
import urllib.error
import urllib.request

WEIR = os.environ.get("WEIR", "http://localhost:8080")
KEY = os.environ["KEY"]


def request(method, path, body=None):
    """Sends a request and returns the answer, which can be read."""
    r = urllib.request.Request(
        WEIR + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    try:
        return urllib.request.urlopen(r)
    except urllib.error.HTTPError as error:
        errors = json.load(error).get("errors", [])  # the last one is a sentence
        raise SystemExit(f"{method} {path}: {error.code}: {'; '.join(errors)}")


def main():
    # Listen before anything can happen, so that no event is missed.
    events = request("GET", "/api/events")
    stream = json.load(request("POST", "/api/stream", {"name": "from Python", "profiles": []}))
    print("send to  ", f"rtmp://HOST/live/{stream['streamKey']}")
    print("watch at ", f"{WEIR}/play/{stream['playbackId']}", flush=True)

    for line in events:
        if not line.startswith(b"data: "):
            continue  # the id and the name of the event, or a comment that keeps the connection open
        event = json.loads(line[len(b"data: ") :])
        if event.get("stream", {}).get("id") != stream["id"]:
            continue  # of something else in the account
        print("event    ", event["event"], flush=True)
        if event["event"] == "stream.idle":
            break

    for asset in json.load(request("GET", "/api/asset?limit=10")):
        print("asset    ", asset["id"], asset["status"]["phase"], asset["name"])
    request("DELETE", f"/api/stream/{stream['id']}")


main()
