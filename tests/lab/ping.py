# SPDX-License-Identifier: Apache-2.0
"""The report of ping."""

import re


def lost(said):
    """Numbers of packets without a reply. ping waits for the reply to the last packet only an interval or two round
    trips, too short on a busy machine: that packet does not count, unless it is the only one."""
    sent = int(re.search(r"(\d+) packets transmitted", said)[1])
    came = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl=", said)}
    return sorted(set(range(1, max(sent, 2))) - came)
