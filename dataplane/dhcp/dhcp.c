// SPDX-License-Identifier: Apache-2.0
// DHCP servers' ports (RFC 2131 section 4.1, RFC 8415 section 7.2): packets go to the service that watches the reason, or to a server or
// relay behind the port's twin.
#include "inet/header.h"
#include "ip/local.h"
#include "punt/protocol.h"

enum {
	SERVER4 = 67,
	SERVER6 = 547,

	// Two messages of each of 6,000 clients: more than set-ups a second that the agent is capable of, as after an outage.
	A_SECOND = 12000,
	// A client that restarts or renews sends a handful. Servers and relays, which speak for many clients, have no session.
	OF_SESSION = 20,
};

PUNT_SESSION(punt_dhcp4, "dhcp4", A_SECOND, 0, OF_SESSION, ip_local_watcher_or_twin)
PUNT_SESSION(punt_dhcp6, "dhcp6", A_SECOND, 0, OF_SESSION, ip_local_watcher_or_twin)

static struct ip_local_punt local4 = {
	.family = 4, .protocol = PROTOCOL_UDP, .port = SERVER4, .groups = true, .punt = &punt_dhcp4};
static struct ip_local_punt local6 = {
	.family = 6, .protocol = PROTOCOL_UDP, .port = SERVER6, .groups = true, .punt = &punt_dhcp6};
IP_LOCAL_PUNT_REGISTER(local4)
IP_LOCAL_PUNT_REGISTER(local6)

// Of circuits without an interface or a session.
static bool
is_for_server4(const uint8_t *udp)
{
	return (udp[2] << 8 | udp[3]) == SERVER4;
}

static bool
is_for_server6(const uint8_t *udp)
{
	return (udp[2] << 8 | udp[3]) == SERVER6;
}

static struct punt_protocol dhcp4 = {
	.name = "dhcp4", .ether_type = RTE_ETHER_TYPE_IPV4, .ip_protocol = PROTOCOL_UDP, .takes = is_for_server4};
static struct punt_protocol dhcp6 = {
	.name = "dhcp6", .ether_type = RTE_ETHER_TYPE_IPV6, .ip_protocol = PROTOCOL_UDP, .takes = is_for_server6};
PUNT_PROTOCOL_REGISTER(dhcp4)
PUNT_PROTOCOL_REGISTER(dhcp6)
