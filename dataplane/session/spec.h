// What a Session's spec says, checked and in the form that tables want. Nothing here touches a table.
#pragma once

#include <rte_ether.h>

#include "core/object.h"
#include "ether/circuit.h"
#include "session.pb-c.h"

enum { SESSION_PREFIXES = 64, PPPOE_OVERHEAD = 8, PPPOE_SESSION_MAX = 65534, VLAN_MAX = 4094, PDU_SESSION_MAX = 15 };

struct session_prefix {
	uint8_t address[16]; // network order; IPv4 in the first four
	uint8_t family;      // 4 or 6
	uint8_t length;      // in bits
};

// By what frames of a session are found on the access side.
struct session_key {
	struct circuit circuit;
	struct rte_ether_addr mac; // all 0 if there is none
	bool has_mac;
	uint8_t pdu_session;    // 0: the only one of its access
	uint16_t pppoe_session; // 0: IPoE
};

struct session_spec {
	struct session_key key; // without the port
	bool proxy_arp;
	bool any_source;
	bool frames; // PDU session type Ethernet
	uint16_t mss;
	uint16_t mtu; // 0: by the port
	unsigned prefix_count;
	struct session_prefix prefixes[SESSION_PREFIXES];
};

int session_spec_parse(const Sluice__V1__Session *spec, struct session_spec *parsed, struct fault *f);

// The largest IP packet for the subscriber on a port with this MTU, or -EINVAL if the spec wants a larger one than fits.
int session_mtu(const struct session_spec *spec, uint16_t port_mtu, struct fault *f);

// "192.0.2.0/24": family, bytes and length; -EINVAL and what is wrong with `field`.
int session_prefix_parse(const char *text, const char *field, struct session_prefix *prefix, struct fault *f);
// "192.0.2.1" or "2001:db8::1".
int session_address_parse(const char *text, const char *field, uint8_t *family, uint8_t address[16], struct fault *f);

bool session_prefix_has(const struct session_prefix *prefix, uint8_t family, const uint8_t *address);
