"""Asks questions over one WebSocket and prints what comes. Needs `pip install websockets`.

RECADO_URL=… RECADO_API_KEY=… python ask.py "Where does the cellar key hang?" "And the spare one?"
"""

import json
import os
import sys
import urllib.request

from websockets.sync.client import connect

headers = {"Authorization": f"Bearer {os.environ['RECADO_API_KEY']}", "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["RECADO_URL"] + "/live/tickets", b'{"ask": true}', headers)
with urllib.request.urlopen(request) as response, connect(json.load(response)["url"]) as socket:
    for question in sys.argv[1:]:
        socket.send(json.dumps({"query": question}))
        for message in map(json.loads, socket):
            match message["type"]:
                case "thinking" | "token":
                    print(message["content"], end="\n" if message["type"] == "thinking" else "", flush=True)
                case "tool_use":
                    print(message["tool"], message["input"])
                case "error":
                    sys.exit(message["message"])
                case "done":
                    print(f"\n({message['status']})")
                    break
