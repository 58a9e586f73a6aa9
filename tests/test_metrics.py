import pytest
from lab import Lab, Line, thing
from pop import IPOE, PPPOE, Pop, session, udp_up

@pytest.fixture(scope="module")
def pop(lab):
    made = Pop(lab, northbounds=[{"type": "metrics", "listen": "127.0.0.1:9464"}])
    made.apply(session(IPOE), session(PPPOE))
    made.learn(IPOE, PPPOE)
    return made

def test_dump(pop):
    assert pop.passes(IPOE)
    text = pop.inside.run("curl", "-s", "http://127.0.0.1:9464/metrics").stdout
    open("/tmp/w/h/metrics-scrape.txt", "w").write(text)
    print(pop.inside.run("curl", "-s", "http://127.0.0.1:9464/readyz").stdout)
