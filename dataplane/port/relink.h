// SPDX-License-Identifier: Apache-2.0
// Linux interfaces under ports that are deleted and made again (rtnetlink(7)). A port of net_af_packet, net_af_xdp, net_tap or net_pcap
// is detached from its interface when that is deleted or moved to another network namespace, and attached to the next one of its name.
#pragma once

// Once, before there is a port. 0 or a negative errno.
int relink_start(void);
// Each second: retry failed attempts.
void relink_look(void);
