// SPDX-License-Identifier: Apache-2.0
// ECN out of a tunnel (RFC 6040 section 4.2): the whole table, in both IP versions.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "inet/header.h"
#include "ip/ecn.h"

enum { N = ECN_NOT_ECT, E0 = ECN_ECT_0, E1 = ECN_ECT_1, CE = ECN_CE, DROP = ECN_ILLEGAL };

// Figure 4: by inner and outer field, in the order of the figure.
static const uint8_t fields[4] = {N, E0, E1, CE};
static const uint8_t figure[4][4] = {{N, N, N, DROP}, {E0, E0, E1, CE}, {E1, E1, E1, CE}, {CE, CE, CE, CE}};

static void
each_pair_of_outer_and_inner_ecn_follows_the_figure(void **state)
{
	for (unsigned inner = 0; inner < 4; inner++)
		for (unsigned outer = 0; outer < 4; outer++) {
			assert_int_equal(ecn_out_of_tunnel(fields[outer], fields[inner]), figure[inner][outer]);
			if (!ecn_matters(fields[outer]))
				assert_int_equal(figure[inner][outer], fields[inner]);
		}
}

// A header with this traffic class.
static void
write_header(uint8_t *ip, uint8_t family, uint8_t class)
{
	memset(ip, 0, sizeof(struct ip6_header));
	if (family == 6) {
		uint32_t word = rte_cpu_to_be_32(6u << 28 | (uint32_t) class << 20 | 0xabcde);

		memcpy(ip, &word, sizeof(word));
		return;
	}
	*(struct ip4_header *)ip = (struct ip4_header){.version_ihl = 0x45,
		.tos = class,
		.total_length = RTE_BE16(1234),
		.id = 0x4711,
		.ttl = 63,
		.protocol = PROTOCOL_TCP,
		.source = RTE_BE32(0x64400002),
		.destination = RTE_BE32(0xcb007109)};
	((struct ip4_header *)ip)->checksum = ip4_checksum((struct ip4_header *)ip);
}

static void
a_header_gets_the_field_and_nothing_else_of_it_changes(void **state)
{
	for (unsigned family = 4; family <= 6; family += 2)
		for (unsigned class = 0; class < 256; class ++)
			for (unsigned outer = 0; outer < 4; outer++) {
				uint8_t ip[40], expected[40], ecn = ecn_out_of_tunnel((uint8_t)outer, class & ECN_MASK);

				write_header(ip, (uint8_t)family, (uint8_t) class);
				write_header(expected, (uint8_t)family, (uint8_t)((class & ~3u) | (ecn & ECN_MASK)));
				assert_int_equal(ip_traffic_class(ip, (uint8_t)family), class);
				if (ecn == ECN_ILLEGAL) {
					assert_false(ecn_carry_inwards(ip, (uint8_t)family, (uint8_t)outer));
					continue;
				}
				assert_true(ecn_carry_inwards(ip, (uint8_t)family, (uint8_t)outer));
				assert_memory_equal(ip, expected, sizeof(ip));
			}
}

static void
a_wrong_checksum_stays_wrong(void **state)
{
	uint8_t bytes[40];
	struct ip4_header *ip = (struct ip4_header *)bytes;

	write_header(bytes, 4, ECN_ECT_0);
	ip->checksum ^= 0x0100;
	assert_true(ecn_carry_inwards(bytes, 4, ECN_CE));
	assert_int_equal(ip->tos, ECN_CE);
	assert_int_not_equal(ip->checksum, ip4_checksum(ip));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pair_of_outer_and_inner_ecn_follows_the_figure),
		cmocka_unit_test(a_header_gets_the_field_and_nothing_else_of_it_changes),
		cmocka_unit_test(a_wrong_checksum_stays_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
