# SPDX-License-Identifier: Apache-2.0
"""The traffic that other tests count (lab/load.py): its counting is exact."""

import pytest
from lab.load import DOWN, UP
from pop import IPOE, PPPOE, Pop, session


@pytest.fixture(scope="module")
def pop(lab):
    return Pop(lab, session(IPOE), session(PPPOE))


@pytest.fixture
def load(pop):
    made = pop.load([IPOE, PPPOE], 1000)
    assert made.warm_up() == []
    yield made
    made.close()


def test_a_packet_from_before_counting_began_anew_is_not_counted_when_it_comes(pop, load):
    for _ in range(5):
        late_up, late_down = load.uplink[0, 4], load.downlink[0]
        load.forget()
        for _ in range(100):
            load.wire.send(late_up)
            load.core.send(IPOE, 4, late_down)
        assert load.has_sent(100)
        load.pause()
        # Frames do not overtake one another: the late ones have come, too.
        assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
        load.start()
    sessions = pop.gateway.json("top", "--once")["sessions"]
    assert sum(each["upPackets"] for each in sessions) >= 500


def test_nothing_is_sent_during_a_pause(pop, load):
    for _ in range(20):
        assert load.has_sent(10)
        load.pause()
        sent = load.total(load.sent, UP), load.total(load.sent, DOWN)
        pop.gateway.drops()
        assert sent == (load.total(load.sent, UP), load.total(load.sent, DOWN))
        load.forget()
        load.start()
    load.pause()
    assert (load.lost(UP), load.lost(DOWN)) == (0, 0)
