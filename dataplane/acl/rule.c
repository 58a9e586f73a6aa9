// SPDX-License-Identifier: Apache-2.0
// Parses the fields of a rule: prefixes, protocols, port ranges, code points, TCP flags, ICMP types.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "acl/rule.h"
#include "core/number.h"
#include "ip/dscp.h"

static int
wrong(const struct acl_place *at, const char *field, const char *text, const char *right)
{
	if (at->filter != 0)
		return fault(at->f, EINVAL, "%s %.63s, rule %zu, filter %zu, %s: \"%.40s\" is not %s", at->kind,
			at->name, at->rule, at->filter, field, text, right);
	return fault(at->f, EINVAL, "%s %.63s, rule %zu, %s: \"%.40s\" is not %s", at->kind, at->name, at->rule, field,
		text, right);
}

static bool
bits_behind(const uint8_t *address, unsigned length, unsigned bytes)
{
	for (unsigned bit = length; bit < bytes * 8; bit++) {
		if (address[bit / 8] & 0x80 >> bit % 8)
			return true;
	}
	return false;
}

static int
parse_prefix(const struct acl_place *at, const char *field, const char *text, struct acl_rule *rule,
	uint8_t address[16], uint8_t *length)
{
	const char *slash = strchr(text, '/'), *end = "";
	char host[INET6_ADDRSTRLEN];
	uint8_t family;
	long bits;

	if (text[0] == '\0')
		return 0;
	if (!slash || (size_t)(slash - text) >= sizeof(host))
		return wrong(at, field, text, "a prefix such as 198.51.100.0/24");
	memcpy(host, text, (size_t)(slash - text));
	host[slash - text] = '\0';
	if (inet_pton(AF_INET, host, address) == 1)
		family = 4;
	else if (inet_pton(AF_INET6, host, address) == 1)
		family = 6;
	else
		return wrong(at, field, text, "a prefix such as 198.51.100.0/24 or 2001:db8::/32");
	bits = number_parse(slash + 1, family == 4 ? 32 : 128, &end);
	if (bits < 0 || *end != '\0')
		return wrong(at, field, text,
			family == 4 ? "a prefix with a length from 0 to 32" : "a prefix with a length from 0 to 128");
	if (bits_behind(address, (unsigned)bits, family == 4 ? 4 : 16))
		return wrong(at, field, text, "a network: there are bits set behind the prefix");
	if (rule->family != 0 && rule->family != family)
		return wrong(at, field, text, "of the family of the rule's source");
	rule->family = family;
	*length = (uint8_t)bits;
	return 0;
}

static int
parse_protocol(const struct acl_place *at, const char *text, struct acl_rule *rule)
{
	static const struct {
		const char *name;
		uint8_t protocol;
	} names[] = {{"tcp", IPPROTO_TCP}, {"udp", IPPROTO_UDP}, {"icmp", IPPROTO_ICMP}, {"icmp6", IPPROTO_ICMPV6}};
	const char *end = "";
	long value;

	rule->protocol = -1;
	if (text[0] == '\0')
		return 0;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(text, names[i].name) == 0) {
			rule->protocol = names[i].protocol;
			return 0;
		}
	}
	value = number_parse(text, 255, &end);
	if (value < 0 || *end != '\0')
		return wrong(at, "protocol", text, "tcp, udp, icmp, icmp6 or a number below 256");
	rule->protocol = (int16_t)value;
	return 0;
}

static int
parse_ports(const struct acl_place *at, const char *field, const char *text, struct acl_rule *rule, uint16_t *low,
	uint16_t *high)
{
	long first, last;

	*low = 0;
	*high = UINT16_MAX;
	if (text[0] == '\0')
		return 0;
	if (!range_parse(text, UINT16_MAX, &first, &last))
		return wrong(at, field, text, "a port or a range of ports such as 1024-65535");
	if (rule->protocol >= 0 && !protocol_has_ports((uint8_t)rule->protocol))
		return wrong(at, field, text, "of any use: the rule's protocol has no ports");
	*low = (uint16_t)first;
	*high = (uint16_t)last;
	rule->reads |= RULE_READS_PORTS;
	return 0;
}

static int
parse_flags(const struct acl_place *at, const char *text, struct acl_rule *rule)
{
	static const char *const names[] = {"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"};
	const char *rest = text;

	if (text[0] == '\0')
		return 0;
	if (rule->protocol >= 0 && rule->protocol != IPPROTO_TCP)
		return wrong(at, "tcpFlags", text, "of any use: the rule's protocol is not tcp");
	for (;;) {
		bool set = *rest != '!';
		size_t length;
		unsigned bit = 0;

		rest += !set;
		length = strcspn(rest, ",");
		while (bit < 8 && (length != 3 || strncasecmp(rest, names[bit], 3) != 0))
			bit++;
		if (bit == 8 || rule->flags_mask & 1 << bit)
			return wrong(at, "tcpFlags", text,
				"a list of fin, syn, rst, psh, ack, urg, ece and cwr, each once, with ! before those "
				"not "
				"set");
		rule->flags_mask |= (uint8_t)(1 << bit);
		rule->flags |= (uint8_t)(set << bit);
		rest += length;
		if (*rest == '\0')
			break;
		rest++;
	}
	rule->protocol = IPPROTO_TCP;
	rule->reads |= RULE_READS_FLAGS;
	return 0;
}

static int
parse_icmp(const struct acl_place *at, const char *text, struct acl_rule *rule)
{
	const char *end = "";
	long type, code = -1;

	if (text[0] == '\0')
		return 0;
	type = number_parse(text, 255, &end);
	if (type >= 0 && *end == '/') {
		code = number_parse(end + 1, 255, &end);
		if (code < 0)
			type = -1;
	}
	if (type < 0 || *end != '\0')
		return wrong(at, "icmpType", text, "an ICMP type such as 8 or a type and a code such as 3/4");
	if (rule->reads != 0)
		return wrong(at, "icmpType", text, "possible together with ports or tcpFlags");
	if (rule->protocol >= 0 && rule->protocol != IPPROTO_ICMP && rule->protocol != IPPROTO_ICMPV6)
		return wrong(at, "icmpType", text, "of any use: the rule's protocol is neither icmp nor icmp6");
	rule->source_low = (uint16_t)(type << 8 | (code < 0 ? 0 : code));
	rule->source_high = (uint16_t)(type << 8 | (code < 0 ? 255 : code));
	rule->reads |= RULE_READS_ICMP;
	return 0;
}

bool
protocol_has_ports(uint8_t protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_DCCP ||
	       protocol == IPPROTO_SCTP || protocol == IPPROTO_UDPLITE;
}

int
acl_match_parse(const struct acl_place *at, const Sluice__V1__AclRule *spec, struct acl_rule *rule)
{
	int rc, dscp;

	rc = parse_prefix(at, at->source, spec->source, rule, rule->source, &rule->source_length);
	if (rc == 0)
		rc = parse_prefix(
			at, at->destination, spec->destination, rule, rule->destination, &rule->destination_length);
	if (rc == 0)
		rc = parse_protocol(at, spec->protocol, rule);
	if (rc == 0)
		rc = parse_ports(at, at->source_ports, spec->source_ports, rule, &rule->source_low, &rule->source_high);
	if (rc == 0)
		rc = parse_ports(at, at->destination_ports, spec->destination_ports, rule, &rule->destination_low,
			&rule->destination_high);
	if (rc == 0)
		rc = parse_flags(at, spec->tcp_flags, rule);
	if (rc == 0)
		rc = parse_icmp(at, spec->icmp_type, rule);
	if (rc != 0 || spec->dscp[0] == '\0')
		return rc;
	dscp = dscp_parse(spec->dscp);
	if (dscp < 0)
		return wrong(at, "dscp", spec->dscp, "a number below 64 or a name such as ef, af41 or cs6");
	rule->dscp = (uint8_t)dscp;
	rule->dscp_mask = 0x3f;
	return 0;
}

int
acl_rule_parse(
	const char *list, size_t rule_number, const Sluice__V1__AclRule *spec, struct acl_rule *rule, struct fault *f)
{
	const struct acl_place at = {
		"acl", list, rule_number, 0, "source", "destination", "sourcePorts", "destinationPorts", f};

	*rule = (struct acl_rule){.permit = spec->action == SLUICE__V1__ACL_ACTION__PERMIT};
	return acl_match_parse(&at, spec, rule);
}
