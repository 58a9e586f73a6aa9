// SPDX-License-Identifier: Apache-2.0
// The description of an IP packet.
#include "inet/describe.h"

#include <stdio.h>

#include <arpa/inet.h>

#include "inet/header.h"

static const char *
protocol_name(uint8_t protocol, char number[16])
{
	switch (protocol) {
	case PROTOCOL_ICMP:
		return "icmp";
	case PROTOCOL_TCP:
		return "tcp";
	case PROTOCOL_UDP:
		return "udp";
	case PROTOCOL_ICMP6:
		return "icmp6";
	default:
		snprintf(number, 16, "protocol %u", protocol);
		return number;
	}
}

// Ports, where the packet has its first fragment's start in it.
static int
describe_ports(char *text, size_t size, uint8_t protocol, const uint8_t *data, size_t length)
{
	if ((protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP) || length < 4)
		return 0;
	return snprintf(text, size, " %u > %u", data[0] << 8 | data[1], data[2] << 8 | data[3]);
}

static int
describe4(char *text, size_t size, const uint8_t *data, size_t length)
{
	const struct ip4_header *ip = (const struct ip4_header *)data;
	char source[INET_ADDRSTRLEN], destination[INET_ADDRSTRLEN], number[16];
	unsigned header = ip4_header_length(ip), fragment = rte_be_to_cpu_16(ip->fragment);
	int n;

	inet_ntop(AF_INET, data + offsetof(struct ip4_header, source), source, sizeof(source));
	inet_ntop(AF_INET, data + offsetof(struct ip4_header, destination), destination, sizeof(destination));
	n = snprintf(text, size, "%s > %s %s length %u ttl %u", source, destination,
		protocol_name(ip->protocol, number), rte_be_to_cpu_16(ip->total_length), ip->ttl);
	if (n >= 0 && (size_t)n < size && fragment & (IP4_MF | IP4_OFFSET))
		n += snprintf(text + n, size - (size_t)n, " fragment at %u%s", (fragment & IP4_OFFSET) * 8,
			fragment & IP4_MF ? ", more" : "");
	else if (n >= 0 && (size_t)n < size && header <= length)
		n += describe_ports(text + n, size - (size_t)n, ip->protocol, data + header, length - header);
	return n;
}

static int
describe6(char *text, size_t size, const uint8_t *data, size_t length)
{
	const struct ip6_header *ip = (const struct ip6_header *)data;
	char source[INET6_ADDRSTRLEN], destination[INET6_ADDRSTRLEN], number[16];
	int n;

	inet_ntop(AF_INET6, ip->source, source, sizeof(source));
	inet_ntop(AF_INET6, ip->destination, destination, sizeof(destination));
	n = snprintf(text, size, "%s > %s %s length %zu hop limit %u", source, destination,
		protocol_name(ip->next_header, number), rte_be_to_cpu_16(ip->payload_length) + sizeof(*ip),
		ip->hop_limit);
	if (n >= 0 && (size_t)n < size)
		n += describe_ports(
			text + n, size - (size_t)n, ip->next_header, data + sizeof(*ip), length - sizeof(*ip));
	return n;
}

void
ip_describe(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length)
{
	int n;

	if (length >= sizeof(struct ip4_header) && data[0] >> 4 == 4)
		n = describe4(text, size, data, length);
	else if (length >= sizeof(struct ip6_header) && data[0] >> 4 == 6)
		n = describe6(text, size, data, length);
	else
		n = snprintf(text, size, "%zu bytes that do not start with an IP header", length);
	if (n >= 0 && (size_t)n < size && packet->hop != NO_HOP)
		snprintf(text + n, size - (size_t)n, " hop %u", packet->hop);
}
