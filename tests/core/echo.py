# SPDX-License-Identifier: Apache-2.0
"""A peer of an SCTP association that returns each message on its stream. It reads and writes lines of JSON, as amf.py
does."""

import argparse
import json
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from core.sctp import Listener  # noqa: E402


class Echo:
    def __init__(self, options):
        self.options = options
        self.association, self.lock = None, threading.Lock()
        if not options.later:
            self.begin()

    def begin(self):
        options = self.options
        self.listener = Listener(options.address, options.port, self.serve, options.heartbeat, options.connect)

    def say(self, event, **more):
        # Threads of associations write, too: a line is one piece.
        with self.lock:
            print(json.dumps({"event": event, **more}), flush=True)

    def serve(self, association):
        self.association = association
        association.on_path = lambda address, reachable: self.say("path", address=address, reachable=reachable)
        self.say("association")
        while got := association.receive():
            stream, protocol, message = got
            self.say("message", stream=stream, protocol=protocol, size=len(message))
            association.send(stream, protocol, message)
        self.say("ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", action="append", required=True)
    parser.add_argument("--port", type=int, default=38412)
    parser.add_argument("--heartbeat", type=int, default=0, help="milliseconds")
    parser.add_argument("--connect", help="open an association to this address, from the same port")
    parser.add_argument("--later", type=int, default=0, help="1: begin with the command `begin`")
    echo = Echo(parser.parse_args())
    echo.say("listening")
    for line in sys.stdin:
        what = json.loads(line)["do"]
        getattr(echo if what == "begin" else echo.association, what)()


if __name__ == "__main__":
    main()
