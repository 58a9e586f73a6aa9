# SPDX-License-Identifier: Apache-2.0
"""Full tables: an object without room is refused by name, the others stay, and room returns."""

import errno
from typing import NamedTuple

import pytest
from contract import Connection, api, packed
from lab import Line, thing
from lab.laboratory import wait_until
from lab.load import DOWN, UP
from pop import CORE4, IPOE, PPPOE, Pop, session, tunnel

AGF = Line("agf", "02:00:00:00:09:01", "100.64.9.1", "2001:db8:9:1::1", (900, 1), teid_up=91, teid_down=92)
AT_ONCE = 4096


class Table(NamedTuple):
    kind: str
    limit: int
    there: int  # of them from the start
    spec: object  # of a number
    says: str


def peer(number):
    """A session whose tunnel leads to an address of its own."""
    far = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    ends = {"localAddress": CORE4, "localTeid": 1000 + number, "remoteAddress": far, "remoteTeid": 1}
    access = {"port": "access", "outerVlan": 1000 + number // 4000, "innerVlan": 1 + number % 4000}
    return packed(thing("Session", "", access=access, gtpu=ends)).spec


def meter(number):
    return packed(thing("Meter", "", committedRate=8000, committedBurst=1000)).spec


TABLES = {
    "meters": Table("Meter", 65536, 0, meter, "65536 meters"),
    "VRFs": Table("Vrf", 4096, 1, lambda number: b"", "4096 VRFs"),
    "peers of tunnels": Table("Session", 65536, 1, peer, "gtpu.remoteAddress: 65536 addresses"),
}


@pytest.fixture(scope="module")
def load(lab):
    made = Pop(lab, session(IPOE), session(PPPOE), session(AGF, gtpu=tunnel(AGF)))
    # An object that the agent does not know would be deleted soon.
    made.gateway.agent.kill()
    load = made.load([IPOE, PPPOE, AGF], 500)
    load.gateway = made.gateway
    yield load
    load.close()


@pytest.mark.parametrize("name", TABLES)
def test_a_full_table_refuses_by_name_and_affects_no_other_and_has_room_again(load, name):
    table = TABLES[name]
    room = table.limit - table.there
    objects = [api.Object(kind=table.kind, name=f"x{i}", spec=table.spec(i)) for i in range(room + 1)]
    names = [api.ObjectName(kind=table.kind, name=each.name) for each in objects]
    load.forget()
    assert load.warm_up() == []
    with load.gateway.without_agent(), Connection(load.gateway.dataplane_socket) as connection:
        connection.socket.settimeout(30)

        def put(some):
            return connection.ask(put=api.Put(objects=some)).results.results

        def fill(some):
            for at in range(0, len(some), AT_ONCE):
                assert all(each.code == 0 for each in put(some[at : at + AT_ONCE]))

        def empty(some):
            for at in range(0, len(some), AT_ONCE):
                results = connection.ask(delete=api.Delete(names=some[at : at + AT_ONCE])).results.results
                assert all(each.code == 0 for each in results)

        fill(objects[:room])
        (refused,) = put(objects[room:])
        assert refused.code == errno.ENOSPC
        assert table.says in refused.message
        assert put(objects[:1])[0].code == 0, "what is there can be put again"
        empty(names[:1])
        wait_until(lambda: put(objects[room:])[0].code == 0, what="there is room for one again")
        empty(names[1:])
        wait_until(lambda: put(objects[:1])[0].code == 0, what="there is room again")
        empty(names[:1])
    assert load.has_sent(100)
    load.pause()
    assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
