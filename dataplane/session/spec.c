// SPDX-License-Identifier: Apache-2.0
// Checks of a Session's spec, field by field (api/session.proto).
#include "contract_limits.h"
#include "session/spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fib/scope.h"
#include "session/record.h"

static unsigned
bits_of(uint8_t family)
{
	return family == 4 ? 32 : 128;
}

int
session_address_parse(const char *text, const char *field, uint8_t *family, uint8_t address[16], struct fault *f)
{
	memset(address, 0, 16);
	if (inet_pton(AF_INET, text, address) == 1) {
		*family = 4;
		return 0;
	}
	if (inet_pton(AF_INET6, text, address) == 1) {
		*family = 6;
		return 0;
	}
	return fault(f, EINVAL, "%s: \"%.64s\" is not an IP address; \"192.0.2.1\" or \"2001:db8::1\" would be", field,
		text);
}

// Clear the bits behind the prefix; whether there were any.
static bool
clear_host(struct session_prefix *prefix)
{
	bool any = false;

	for (unsigned at = prefix->length / 8; at < bits_of(prefix->family) / 8; at++) {
		uint8_t mask = at == prefix->length / 8u ? (uint8_t)(0xff >> prefix->length % 8) : 0xff;

		any |= (prefix->address[at] & mask) != 0;
		prefix->address[at] &= (uint8_t)~mask;
	}
	return any;
}

int
session_prefix_parse(const char *text, const char *field, struct session_prefix *prefix, struct fault *f)
{
	char address[INET6_ADDRSTRLEN];
	const char *slash = strchr(text, '/'), *scope;
	char *end;
	unsigned long length;
	int error;

	if (!slash || (size_t)(slash - text) >= sizeof(address))
		return fault(f, EINVAL,
			"%s: \"%.64s\" is not a prefix; an address and a length, \"100.64.0.7/32\", would be", field,
			text);
	memcpy(address, text, (size_t)(slash - text));
	address[slash - text] = '\0';
	error = session_address_parse(address, field, &prefix->family, prefix->address, f);
	if (error)
		return error;
	length = strtoul(slash + 1, &end, 10);
	if (slash[1] < '0' || slash[1] > '9' || *end != '\0' || length > bits_of(prefix->family))
		return fault(f, EINVAL, "%s: \"%.64s\": the length must be a number from 0 to %u", field, text,
			bits_of(prefix->family));
	prefix->length = (uint8_t)length;
	if (clear_host(prefix)) {
		inet_ntop(prefix->family == 4 ? AF_INET : AF_INET6, prefix->address, address, sizeof(address));
		return fault(f, EINVAL, "%s: \"%.64s\" has bits set behind its length; \"%s/%u\" has none", field, text,
			address, prefix->length);
	}
	scope = scope_not_forwarded(prefix->family, prefix->address, prefix->length);
	if (scope)
		return fault(f, EINVAL,
			"%s: \"%.64s\" is %s, to which nothing is forwarded; choose global or private unicast "
			"addresses",
			field, text, scope);
	return 0;
}

bool
session_prefix_has(const struct session_prefix *prefix, uint8_t family, const uint8_t *address)
{
	unsigned bytes = prefix->length / 8, rest = prefix->length % 8;

	if (prefix->family != family || memcmp(prefix->address, address, bytes) != 0)
		return false;
	return rest == 0 || ((prefix->address[bytes] ^ address[bytes]) & (uint8_t)(0xff00 >> rest)) == 0;
}

static_assert(CONTRACT_SESSION_ADDRESSES_MAX <= SESSION_PREFIXES, "a session has room for all addresses");

static int
parse_addresses(const Sluice__V1__Session *spec, struct session_spec *parsed, struct fault *f)
{
	for (size_t i = 0; i < spec->n_addresses; i++) {
		struct session_prefix *prefix = &parsed->prefixes[i];
		char field[32];

		// The name of the field is made only for an error: it takes longer than the rest.
		if (session_prefix_parse(spec->addresses[i], "", prefix, f)) {
			snprintf(field, sizeof(field), "addresses[%zu]", i);
			return session_prefix_parse(spec->addresses[i], field, prefix, f);
		}
		for (size_t j = 0; j < i; j++)
			if (memcmp(prefix, &parsed->prefixes[j], sizeof(*prefix)) == 0)
				return fault(f, EINVAL,
					"addresses[%zu]: \"%.64s\" is already in addresses[%zu]; leave one out", i,
					spec->addresses[i], j);
	}
	parsed->prefix_count = (unsigned)spec->n_addresses;
	return 0;
}

int
session_parse_circuit(const Sluice__V1__Access *access, struct session_key *key, struct fault *f)
{
	if (access->inner_vlan != 0 && access->outer_vlan == 0)
		return fault(f, EINVAL, "access.innerVlan: %u needs access.outerVlan; a single tag is an outer VLAN",
			access->inner_vlan);
	key->circuit.outer_vlan = (uint16_t)access->outer_vlan;
	key->circuit.inner_vlan = (uint16_t)access->inner_vlan;
	key->has_mac = access->mac[0] != '\0';
	if (key->has_mac &&
		(rte_ether_unformat_addr(access->mac, &key->mac) != 0 || !rte_is_valid_assigned_ether_addr(&key->mac)))
		return fault(f, EINVAL,
			"access.mac: \"%.64s\" is not a unicast Ethernet address; \"02:00:00:00:00:01\" would be",
			access->mac);
	return 0;
}

static int
parse_access(const Sluice__V1__Access *access, struct session_spec *parsed, struct fault *f)
{
	int error;

	error = session_find_access(access, &parsed->key.access, f);
	if (error)
		return error;
	parsed->key.circuit.port = NO_PORT;
	parsed->key.pdu_session = (uint8_t)access->pdu_session_id;
	parsed->proxy_arp = access->proxy_arp;
	return parsed->key.access->parse(access, &parsed->key, f);
}

static int
parse_policy(const Sluice__V1__Policy *policy, struct session_spec *parsed, struct fault *f)
{
	if (!policy)
		return 0;
	parsed->mss = (uint16_t)policy->mss;
	parsed->mtu = (uint16_t)policy->mtu;
	parsed->any_source = policy->any_source;
	if (parsed->any_source && parsed->key.pdu_session)
		return fault(f, EINVAL,
			"policy.anySource: the source of a packet selects the session of an access.pduSessionId; leave "
			"one of "
			"the two out");
	return 0;
}

// The fields of a session of frames.
static int
parse_frames(const Sluice__V1__Session *spec, struct session_spec *parsed, struct fault *f)
{
	const struct session_core *core = session_core_of(spec);
	const char *field = NULL;

	parsed->frames = core && core->frames ? core->frames(spec) : NULL;
	if (!parsed->frames)
		return 0;
	if (spec->n_addresses > 0)
		field = "addresses";
	else if (parsed->key.access->frame.frame_type && !parsed->key.has_mac)
		return fault(f, EINVAL,
			"access.mac: the session is of type Ethernet (%s), and no frame shows it; give the "
			"subscriber's",
			parsed->frames);
	else if (parsed->key.access->no_frames)
		field = parsed->key.access->no_frames;
	else if (parsed->key.pdu_session)
		field = "access.pduSessionId";
	else if (parsed->proxy_arp)
		field = "access.proxyArp";
	else if (parsed->any_source)
		field = "policy.anySource";
	return field ? fault(f, EINVAL, "%s: a session of type Ethernet (%s) has none; leave one of the two out", field,
			       parsed->frames)
		     : 0;
}

int
session_spec_parse(const Sluice__V1__Session *spec, struct session_spec *parsed, struct fault *f)
{
	int error;

	memset(parsed, 0, sizeof(*parsed));
	error = parse_access(spec->access, parsed, f);
	if (error == 0)
		error = parse_addresses(spec, parsed, f);
	if (error == 0)
		error = parse_policy(spec->policy, parsed, f);
	if (error == 0)
		error = parse_frames(spec, parsed, f);
	return error;
}
