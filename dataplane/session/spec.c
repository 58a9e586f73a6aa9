// Checks of a Session's spec, field by field (api/session.proto).
#include "session/spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MTU_MIN = 1280, MTU_MAX = 9600, MSS_MIN = 536, MSS_MAX = 9216 };

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
	const char *slash = strchr(text, '/');
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
	if ((prefix->family == 4 && prefix->length > 0 && prefix->address[0] >= 224) ||
		(prefix->family == 6 && prefix->length > 0 &&
			(prefix->address[0] == 0xff || (prefix->address[0] == 0xfe && prefix->address[1] >= 0x80))))
		return fault(f, EINVAL,
			"%s: \"%.64s\" cannot be a subscriber's; global or private unicast addresses can", field, text);
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

static int
parse_addresses(const Sluice__V1__Session *spec, struct session_spec *parsed, struct fault *f)
{
	if (spec->n_addresses > SESSION_PREFIXES)
		return fault(
			f, EINVAL, "addresses: %zu are too many; %d are accepted", spec->n_addresses, SESSION_PREFIXES);
	for (size_t i = 0; i < spec->n_addresses; i++) {
		struct session_prefix *prefix = &parsed->prefixes[i];
		char field[32];

		// Its name is made for those that are wrong only: it takes longer than all the rest.
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

static int
parse_mac(const char *text, struct session_spec *parsed, struct fault *f)
{
	parsed->key.has_mac = text[0] != '\0';
	if (!parsed->key.has_mac)
		return 0;
	if (rte_ether_unformat_addr(text, &parsed->key.mac) != 0 || !rte_is_valid_assigned_ether_addr(&parsed->key.mac))
		return fault(f, EINVAL,
			"access.mac: \"%.64s\" is not a unicast Ethernet address; \"02:00:00:00:00:01\" would be",
			text);
	return 0;
}

static int
parse_access(const Sluice__V1__Access *access, struct session_spec *parsed, struct fault *f)
{
	if (!access)
		return fault(f, EINVAL, "access: must be there and name a port");
	if (access->port[0] == '\0')
		return fault(f, EINVAL, "access.port: must name a Port");
	if (access->outer_vlan > VLAN_MAX)
		return fault(f, EINVAL, "access.outerVlan: %u is not from 1 to %d (or 0, untagged)", access->outer_vlan,
			VLAN_MAX);
	if (access->inner_vlan > VLAN_MAX)
		return fault(f, EINVAL, "access.innerVlan: %u is not from 1 to %d (or 0, a single tag)",
			access->inner_vlan, VLAN_MAX);
	if (access->inner_vlan != 0 && access->outer_vlan == 0)
		return fault(f, EINVAL, "access.innerVlan: %u needs access.outerVlan; a single tag is an outer VLAN",
			access->inner_vlan);
	if (access->pppoe_session_id > PPPOE_SESSION_MAX)
		return fault(f, EINVAL, "access.pppoeSessionId: %u is not from 1 to %d (or 0, IPoE)",
			access->pppoe_session_id, PPPOE_SESSION_MAX);
	if (access->pdu_session_id > PDU_SESSION_MAX)
		return fault(f, EINVAL, "access.pduSessionId: %u is not from 1 to %d (or 0, the only session)",
			access->pdu_session_id, PDU_SESSION_MAX);
	parsed->key.pdu_session = (uint8_t)access->pdu_session_id;
	parsed->key.circuit.outer_vlan = (uint16_t)access->outer_vlan;
	parsed->key.circuit.inner_vlan = (uint16_t)access->inner_vlan;
	parsed->key.pppoe_session = (uint16_t)access->pppoe_session_id;
	parsed->proxy_arp = access->proxy_arp;
	return parse_mac(access->mac, parsed, f);
}

static int
parse_policy(const Sluice__V1__Policy *policy, struct session_spec *parsed, struct fault *f)
{
	if (!policy)
		return 0;
	if (policy->mss != 0 && (policy->mss < MSS_MIN || policy->mss > MSS_MAX))
		return fault(f, EINVAL, "policy.mss: %u is not from %d to %d (or 0, unchanged)", policy->mss, MSS_MIN,
			MSS_MAX);
	if (policy->mtu != 0 && (policy->mtu < MTU_MIN || policy->mtu > MTU_MAX))
		return fault(f, EINVAL, "policy.mtu: %u is not from %d to %d (or 0, by the port)", policy->mtu, MTU_MIN,
			MTU_MAX);
	parsed->mss = (uint16_t)policy->mss;
	parsed->mtu = (uint16_t)policy->mtu;
	parsed->any_source = policy->any_source;
	if (parsed->any_source && parsed->key.pdu_session)
		return fault(f, EINVAL,
			"policy.anySource: sessions with an access.pduSessionId are told apart by their source; leave "
			"one "
			"of the two out");
	return 0;
}

// What there is of a session of frames.
static int
parse_frames(const Sluice__V1__Session *spec, struct session_spec *parsed, struct fault *f)
{
	const Sluice__V1__Policy *policy = spec->policy;
	const char *field = NULL;

	parsed->frames = spec->core_case == SLUICE__V1__SESSION__CORE_GTPU && spec->gtpu->ethernet;
	if (!parsed->frames)
		return 0;
	if (spec->n_addresses > 0)
		field = "addresses";
	else if (parsed->key.pppoe_session)
		field = "access.pppoeSessionId";
	else if (parsed->key.pdu_session)
		field = "access.pduSessionId";
	else if (parsed->proxy_arp)
		field = "access.proxyArp";
	else if (policy && policy->acl_up[0])
		field = "policy.aclUp";
	else if (policy && policy->acl_down[0])
		field = "policy.aclDown";
	else if (parsed->mss)
		field = "policy.mss";
	else if (parsed->any_source)
		field = "policy.anySource";
	return field ? fault(f, EINVAL,
			       "%s: a session of type Ethernet (gtpu.ethernet) has none; leave one of the two out",
			       field)
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

int
session_mtu(const struct session_spec *spec, uint16_t port_mtu, struct fault *f)
{
	// PPPoE and PPP headers are part of what the port counts as the packet (RFC 4638).
	uint16_t most = (uint16_t)(port_mtu - (spec->key.pppoe_session ? PPPOE_OVERHEAD : 0));

	if (spec->mtu > most)
		return fault(f, EINVAL, "policy.mtu: %u does not fit into the port's %u%s; at most %u would", spec->mtu,
			port_mtu, spec->key.pppoe_session ? " with PPPoE" : "", most);
	return spec->mtu ? spec->mtu : most;
}
