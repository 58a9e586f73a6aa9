// SPDX-License-Identifier: Apache-2.0
// A Session's spec, checked and in the form of the tables. Nothing here touches a table.
#pragma once

#include <rte_ether.h>

#include "ether/circuit.h"
#include "server/object.h"
#include "session.pb-c.h"

enum { SESSION_PREFIXES = 64, PDU_SESSION_MAX = 15 };

struct session_prefix {
	uint8_t address[16]; // network order; IPv4 in the first four
	uint8_t family;      // 4 or 6
	uint8_t length;      // in bits
};

// The key of a session's packets on the access side.
struct session_key {
	const struct session_access *access;
	struct circuit circuit;    // port NO_PORT: the access is on none
	struct rte_ether_addr mac; // all 0 if there is none
	bool has_mac;
	uint8_t pdu_session; // 0: the only one of its access
	uint64_t own[2];     // of the access
};

struct session_spec {
	struct session_key key; // without the port
	bool proxy_arp;
	bool any_source;
	const char *frames; // the field because of which it is of type Ethernet, or NULL
	uint16_t mss;
	uint16_t mtu; // 0: by the port
	unsigned prefix_count;
	struct session_prefix prefixes[SESSION_PREFIXES];
};

int session_spec_parse(const Sluice__V1__Session *spec, struct session_spec *parsed, struct fault *f);
// For an access on a circuit: VLANs and MAC.
int session_parse_circuit(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f);

// The largest IP packet for the subscriber where the link of its access takes this many bytes, or -EINVAL if the
// spec's MTU does not fit.
int session_mtu(const struct session_spec *spec, uint16_t link_mtu, struct fault *f);

// "192.0.2.0/24": family, bytes and length; or -EINVAL with a fault that names `field`.
int session_prefix_parse(const char *text, const char *field, struct session_prefix *prefix, struct fault *f);
// "192.0.2.1" or "2001:db8::1".
int session_address_parse(const char *text, const char *field, uint8_t *family, uint8_t address[16], struct fault *f);

bool session_prefix_has(const struct session_prefix *prefix, uint8_t family, const uint8_t *address);
