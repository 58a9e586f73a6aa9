# SPDX-License-Identifier: Apache-2.0
"""IKE in transport mode between two gateways: the twin of one gateway's port talks with the other gateway.

strongSwan's ESP in user space has tunnel mode alone."""

from lab import Gateway, thing
from lab.laboratory import wait_until

WEST, EAST = "192.0.2.1", "192.0.2.2"


def side(gateway, device, local, remote, start, **port):
    gateway.apply(
        thing("Port", "wan", device=f"net_af_packet0,iface={device}", **port),
        thing("Interface", "wan", port="wan", addresses=[f"{local}/24"]),
        thing(
            "SecurityPolicy",
            "peer",
            interface="wan",
            priority=10,
            selectors=[{"local": f"{local}/32", "remote": f"{remote}/32"}],
        ),
        thing("IkeCredential", "peer", sharedKey="a secret"),
        thing(
            "IkeConnection",
            "peer",
            localAddress=local,
            remoteAddress=remote,
            credential="peer",
            children=[{"name": "host", "policy": "peer", "mode": "transport_mode", "start": start}],
        ),
        wait=start == "AT_ONCE",
    )


def test_traffic_of_a_port_s_twin_passes_in_transport_mode(lab):
    inside, outside, routing = (lab.namespace(name) for name in ("west", "east", "routing"))
    inside.link("wan0", outside, "wan1")
    inside.silent("wan0")
    outside.silent("wan1")
    west, east = Gateway(lab, inside, "west"), Gateway(lab, outside, "east")
    side(east, "wan1", EAST, WEST, "NOTHING")
    side(west, "wan0", WEST, EAST, "ON_TRAFFIC", twin={"name": "wan", "namespace": routing.name})
    wait_until(
        lambda: WEST in routing.ip("-br", "address", "show", "dev", "wan").stdout, what="the twin has the address"
    )

    def ping(count):
        return routing.run("ping", "-c", str(count), "-i", "0.1", "-W", "1", EAST, check=False).stdout

    # The first packet opens the child.
    wait_until(lambda: "1 received" in ping(1), what="a packet passes")
    assert " 0% packet loss" in ping(10)
    for gateway in (west, east):
        associations = gateway.json("get", "securityassociations")
        assert len(associations) == 2
        for each in associations:
            assert (each["spec"]["mode"], each["spec"]["policy"]) == ("transport_mode", "peer")
    before = {each["metadata"]["name"] for each in west.json("get", "securityassociations")}
    assert east.sluice("ike", "rekey", "peer", "--child", "host").stdout == "Rekeying 1 child SA.\n"
    assert " 0% packet loss" in ping(10)
    wait_until(
        lambda: not before & {each["metadata"]["name"] for each in west.json("get", "securityassociations")},
        what="the old child is gone",
    )
    assert " 0% packet loss" in ping(5)
    # The policy of the eastern gateway drops clear text.
    assert east.drops().get("ipsec-unprotected", 0) == 0
