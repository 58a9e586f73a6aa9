#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A module of Sluice: a DNS responder for subscribers. It knows the domains that objects of its kind DnsHost name.

Questions are UDP packets to an address of the gateway (reason "local"); answers go into the subscriber's session."""

import argparse
import collections
import pathlib
import queue
import sys
import time

import dns
import grpc
import packet

NAME, VERSION = "dns", "1"
# The agent is back soon, or was configured anew.
AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
)


class Responder:
    """One life: from a ModuleHello until the call ends."""

    def __init__(self, generated):
        sys.path.insert(0, str(generated))
        import agent_pb2
        import dataplane_pb2
        import dns_pb2
        import module_pb2

        self.agent, self.dataplane, self.kinds, self.api = agent_pb2, dataplane_pb2, dns_pb2, module_pb2
        self.descriptors = (generated / "dns.binpb").read_bytes()
        self.hosts = {}  # names of objects: DnsHost
        self.domains = {}  # names of objects
        self.answers = collections.Counter()  # by name of the object
        self.outgoing = queue.SimpleQueue()

    def find(self, domain):
        name = self.domains.get(domain)
        if name is None:
            return None
        self.answers[name] += 1
        return self.hosts[name].addresses, self.hosts[name].time_to_live or 300

    def run(self, channel, token):
        """Serves until the call ends, with grpc.RpcError."""
        attach = channel.stream_stream(
            "/sluice.v1.Modules/Attach",
            request_serializer=self.api.FromModule.SerializeToString,
            response_deserializer=self.api.ToModule.FromString,
        )
        self.hosts.clear()
        self.domains.clear()
        self.outgoing = queue.SimpleQueue()
        hello = self.api.ModuleHello(
            name=NAME, version=VERSION, kinds=self.descriptors, follow=["DnsHost"], punts=["local"]
        )
        self.outgoing.put(self.api.FromModule(hello=hello))
        call = attach(iter(self.outgoing.get, None), metadata=[("authorization", f"Bearer {token}")])
        try:
            for message in call:
                self.receive(message)
        finally:
            self.outgoing.put(None)  # ends the sender

    def receive(self, message):
        which = message.WhichOneof("message")
        if which == "welcome":
            print(f"attached to the agent {message.welcome.release}", flush=True)
        elif which == "followed":
            self.follow(message.followed)
        elif which == "packets":
            self.answer(message.packets)
        elif which == "question":
            self.report(message.question)

    def follow(self, followed):
        """Objects of the kind DnsHost came, changed or went."""
        conditions = []
        for each in followed.objects:
            name = each.intent.name
            if each.deleted:
                self.hosts.pop(name, None)
                continue
            host = self.kinds.DnsHost.FromString(each.intent.spec)
            self.hosts[name] = host
            state = {}
            if not dns.valid_domain(host.domain):
                state = {
                    "reason": "InvalidDomain",
                    "message": f"{host.domain}: labels have 1 to 63 characters of ASCII",
                }
            conditions.append(self.api.ObjectCondition(kind="DnsHost", name=name, **state))
        self.domains = {host.domain.lower(): name for name, host in self.hosts.items()}
        if conditions:
            self.outgoing.put(self.api.FromModule(conditions=self.api.ObjectConditions(conditions=conditions)))
        if followed.synced:
            print(f"serving {len(self.domains)} domains", flush=True)
            # This module produces no objects. A module that does sends Complete after it has produced all of them.
            self.outgoing.put(self.api.FromModule(complete=self.api.Complete()))

    def report(self, question):
        """A client asks for operational state: a message of dns.proto. This module has one such message."""
        query = self.kinds.DnsAnswersQuery.FromString(question.query)
        names = [name for name in sorted(self.hosts) if query.host in ("", name)]
        rows = [self.kinds.DnsHostAnswers(host=name, answers=self.answers[name]) for name in names[:1000]]
        reply = self.kinds.DnsAnswers(hosts=rows).SerializeToString()
        self.outgoing.put(self.api.FromModule(answer=self.api.StateAnswer(id=question.id, reply=reply)))

    def answer(self, incoming):
        """Packets for the gateway's own addresses: questions of subscribers are among them."""
        answers = []
        for each in incoming.packets:
            question = packet.read(each.frame)
            if not each.session or question is None or question.destination_port != dns.PORT:
                continue
            message = dns.answer(question.payload, self.find)
            if message:
                whole = packet.write(packet.reply(question, message))
                answers.append(self.dataplane.PacketOut(session=each.session, packet=whole))
        if answers:
            out = self.api.ModulePacketsOut(dataplane=incoming.dataplane, packets=answers)
            self.outgoing.put(self.api.FromModule(packets=out))


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agent", default="unix:/run/sluice/modules.sock", help="unix:PATH or HOST:PORT")
    options.add_argument("--token-file", type=pathlib.Path, required=True, help="file with the module's token")
    options.add_argument("--ca", type=pathlib.Path, help="with HOST:PORT: the CA (PEM) of the agent's certificate")
    options.add_argument("--generated", type=pathlib.Path, required=True, help="folder that `generate` wrote to")
    said = options.parse_args()
    token = said.token_file.read_text().strip()
    responder = Responder(said.generated)
    longest = [("grpc.max_receive_message_length", -1)]
    wait = 1
    while True:
        if said.ca:
            channel = grpc.secure_channel(said.agent, grpc.ssl_channel_credentials(said.ca.read_bytes()), longest)
        else:
            channel = grpc.insecure_channel(said.agent, longest)
        began = time.monotonic()
        try:
            with channel:
                responder.run(channel, token)
        except grpc.RpcError as error:
            print(f"the call ended: {error.code().name}: {error.details()}", file=sys.stderr, flush=True)
            if error.code() not in AGAIN:
                return 1
        if time.monotonic() - began > 60:
            wait = 1
        time.sleep(wait)
        wait = min(2 * wait, 30)


if __name__ == "__main__":
    sys.exit(main())
