"""Stands in for the instrumented engine's process: it loads, and then answers every request with nonsense."""

from __future__ import annotations

import json
import sys
from multiprocessing.connection import Listener

order = json.load(sys.stdin)
with Listener(("127.0.0.1", order["port"]), authkey=bytes.fromhex(order["key"])) as listener:
    client = listener.accept()
client.send_bytes(json.dumps({"ready": {}}).encode())
while True:
    client.recv_bytes()
    client.send_bytes(b"<html>" if sys.argv[1] == "html" else json.dumps({"answer": {"text": 7}}).encode())
