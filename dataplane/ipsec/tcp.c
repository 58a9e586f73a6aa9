// SPDX-License-Identifier: Apache-2.0
// TCP out of a tunnel for an address of the gateway: NAS of phones on Wi-Fi (TS 24.502 section 7.3), for example. It has a reason of its
// own: a service that takes it does not take the errors about all other packets away.
#include "ether/interface.h"
#include "inet/header.h"
#include "ip/local.h"

enum { A_SECOND = 2000 };

PUNT(punt_tunnel_tcp, "tunnel-tcp", A_SECOND, ip_local_offer)

static struct ip_local_punt tcp = {
	.protocol = PROTOCOL_TCP, .takes = ip_local_is_from_tunnel, .punt = &punt_tunnel_tcp};
IP_LOCAL_PUNT_REGISTER(tcp)
