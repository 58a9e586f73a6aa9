# SPDX-License-Identifier: Apache-2.0
"""FreeRADIUS with files of its own, a proxy that forges its answers, and radclient."""

import contextlib
import hashlib
import hmac
import itertools
import re
import select
import socket
import struct
import threading
import time

from .laboratory import Process, wait_until

NUMBERS = itertools.count(1)
SECRET = "testing123"

CONFIGURATION = """
name = radiusd
prefix = /usr
libdir = /usr/lib/freeradius
raddbdir = DIR
logdir = DIR
run_dir = DIR
pidfile = DIR/pid
max_request_time = 5
cleanup_delay = 2
max_requests = 16384
log {
	destination = stdout
}
security {
	max_attributes = 200
	reject_delay = 0
	status_server = yes
}
client gateway {
	ipaddr = 0.0.0.0/0
	secret = SECRET
	require_message_authenticator = yes
}
thread pool {
	start_servers = 1
	max_servers = 2
	min_spare_servers = 1
	max_spare_servers = 1
}
modules {
	pap {
	}
	chap {
	}
	mschap {
	}
	eap {
		default_eap_type = mschapv2
		timer_expire = 60
		max_sessions = 1024
		mschapv2 {
		}
	}
	files {
		filename = DIR/users
	}
	detail {
		filename = DIR/detail
		permissions = 0600
	}
}
server default {
	listen {
		type = auth
		ipaddr = ADDRESS
		port = 1812
	}
	listen {
		type = acct
		ipaddr = ADDRESS
		port = 1813
	}
	authorize {
		eap {
			ok = return
		}
		chap
		mschap
		files
		pap
		update reply {
			Message-Authenticator := 0x00000000000000000000000000000000
		}
	}
	authenticate {
		Auth-Type PAP {
			pap
		}
		Auth-Type CHAP {
			chap
		}
		Auth-Type MS-CHAP {
			mschap
		}
		eap
	}
	accounting {
		detail
	}
}
"""


class FreeRadius:
    """`users`: the text of its users file. `quiet`: it does not write down each packet."""

    def __init__(self, lab, namespace, address, users, quiet=False):
        self.namespace, self.quiet = namespace, quiet
        self.name = f"freeradius-{next(NUMBERS)}"
        self.lab, self.directory = lab, lab.directory / self.name
        self.directory.mkdir()
        text = CONFIGURATION.replace("DIR", str(self.directory)).replace("ADDRESS", address).replace("SECRET", SECRET)
        (self.directory / "radiusd.conf").write_text(text)
        (self.directory / "dictionary").touch()
        (self.directory / "users").write_text(users)
        self.process = None
        lab.on_close(self.stop)
        self.start()

    def start(self):
        debug = () if self.quiet else ("-x",)
        command = ("freeradius", "-f", *debug, "-l", "stdout", "-d", self.directory, "-n", "radiusd")
        self.process = Process(self.namespace, command, self.lab.directory / f"{self.name}.log")
        log = self.process.log
        wait_until(lambda: "Ready to process requests" in log.read_text(), 60, f"FreeRADIUS: {log}")

    def stop(self):
        if self.process and self.process.alive():
            self.process.stop()

    def records(self, **wanted):
        """Accounting records, the oldest first, as attributes and values; Class and the like as they are written."""
        detail, found = self.directory / "detail", []
        for block in detail.read_text().split("\n\n") if detail.exists() else ():
            pairs = dict(re.findall(r'^\t(\S+) = "?([^"\n]*)"?$', block, re.M))
            # One that is being written has no end yet.
            if "Timestamp" in pairs and all(
                pairs.get(name.replace("_", "-")) == value for name, value in wanted.items()
            ):
                found.append(pairs)
        return found


def reply(code, request, attributes=b"", secret=SECRET, identifier=None, signed=True):
    """An answer to a request, by one that knows this secret. `signed`: with a Message-Authenticator."""
    secret, identifier = secret.encode(), request[1] if identifier is None else identifier
    length = 20 + len(attributes) + (18 if signed else 0)
    head = struct.pack("!BBH", code, identifier, length)
    if signed:
        empty = b"\x50\x12" + bytes(16)
        digest = hmac.new(secret, head + request[4:20] + empty + attributes, "md5").digest()
        attributes = b"\x50\x12" + digest + attributes
    return head + hashlib.md5(head + request[4:20] + attributes + secret).digest() + attributes


class Between:
    """A proxy on an address before a FreeRADIUS. `answers(request, reply)` gives what the client gets in the place of
    the reply to an Access-Request, in this order. While it `holds`, `release` gives it."""

    def __init__(self, lab, namespace, address, server, answers):
        self.answers, self.server, self.holds, self.held = answers, server, False, []
        self.front, self.back = (
            namespace.inside(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) for _ in ("front", "back")
        )
        self.front.bind((address, 1812))
        self.requests = {}
        self.done, self.thread = threading.Event(), threading.Thread(target=self.run, daemon=True)
        lab.on_close(self.close)
        self.thread.start()

    def run(self):
        while not self.done.is_set():
            ready, _, _ = select.select([self.front, self.back], [], [], 0.1)
            if self.front in ready:
                request, client = self.front.recvfrom(4096)
                self.requests[request[1]] = request, client
                self.back.sendto(request, (self.server, 1812))
            if self.back in ready:
                # A server that is not open refuses.
                with contextlib.suppress(ConnectionError):
                    answer = self.back.recv(4096)
                    request, client = self.requests[answer[1]]
                    if request[0] != 1:
                        self.front.sendto(answer, client)
                    elif self.holds:
                        self.held.append((answer, client))
                    else:
                        for packet in self.answers(request, answer):
                            self.front.sendto(packet, client)

    def release(self):
        for packet, client in self.held:
            self.front.sendto(packet, client)
        self.held.clear()

    def close(self):
        self.done.set()
        self.thread.join()
        self.front.close()
        self.back.close()


def radclient(namespace, server, command, *attributes, seconds=10):
    """The reply, as radclient prints it. The request, with an Event-Timestamp, is sent twice, with this timeout."""
    arguments = ("radclient", "-x", "-r", "2", "-t", str(seconds), f"{server}:3799", command, SECRET)
    if not any(each.startswith("Event-Timestamp") for each in attributes):
        attributes = (*attributes, f"Event-Timestamp = {int(time.time())}")
    done = namespace.run(*arguments, check=False, input="\n".join(attributes) + "\n")
    return done.stdout + done.stderr
