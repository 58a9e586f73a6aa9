// SPDX-License-Identifier: Apache-2.0
// Selects rte_acl's search algorithm for its trees, at the start of the data plane (core/fastest.h).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_common.h>

#include "acl/list.h"
#include "core/fastest.h"
#include "cpu/cpu.h"

enum { RULES = 150, BURSTS = 8, LOOK_UPS = BURSTS * ACL_BURST };
enum { NEEDS_AVX512 = 1 << CPU_AVX512F | 1 << CPU_AVX512VL | 1 << CPU_AVX512CD | 1 << CPU_AVX512BW };

static const enum rte_acl_classify_alg algorithms[] = {
	RTE_ACL_CLASSIFY_SSE, RTE_ACL_CLASSIFY_AVX2, RTE_ACL_CLASSIFY_AVX512X16, RTE_ACL_CLASSIFY_AVX512X32};

static struct acl_list *list;
static struct acl_key4 keys[LOOK_UPS];
static uint32_t verdicts[ACL_BURST];
static uint64_t number;

static uint32_t
next_number(void)
{
	number = number * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(number >> 32);
}

// Rules on 5-tuples with ranges of ports, and packets without a match, as for a list of traffic to block.
static int
prepare(void)
{
	struct acl_rule rules[RULES];
	struct fault f = {0};
	int error;

	number = 42;
	for (unsigned i = 0; i < RULES; i++) {
		uint32_t from = rte_cpu_to_be_32(next_number() | 0xc8000000),
			 to = rte_cpu_to_be_32(next_number() | 0xe0);

		rules[i] = (struct acl_rule){.family = 4,
			.source_length = 32,
			.destination_length = 32,
			.protocol = i % 2 ? 6 : 17,
			.reads = RULE_READS_PORTS};
		memcpy(rules[i].source, &from, sizeof(from));
		memcpy(rules[i].destination, &to, sizeof(to));
		rules[i].source_low = (uint16_t)(next_number() % 60000);
		rules[i].source_high = (uint16_t)(rules[i].source_low + 5000);
		rules[i].destination_low = (uint16_t)next_number();
		rules[i].destination_high = rules[i].destination_low;
	}
	error = acl_list_create("to choose by", rules, RULES, true, NULL, &list, &f);
	if (error) {
		fprintf(stderr, "%s\n", f.text);
		return error;
	}
	for (unsigned i = 0; i < LOOK_UPS; i++)
		keys[i] = (struct acl_key4){.class = list->protocols.class_of[17],
			.source = rte_cpu_to_be_32(0x64400000 + next_number() % 4096),
			.destination = rte_cpu_to_be_32(0x08080000 + i % 97),
			.source_port = rte_cpu_to_be_16(5000),
			.destination_port = rte_cpu_to_be_16(443)};
	return LOOK_UPS;
}

static void
run(void)
{
	for (unsigned i = 0; i < LOOK_UPS; i += ACL_BURST)
		acl_list_find4(list, keys + i, ACL_BURST, verdicts);
}

static void
finish(void)
{
	acl_list_destroy(list);
	list = NULL;
}

static void
use(unsigned way)
{
	acl_algorithm = algorithms[way];
}

static struct fastest fastest = {.name = "acl",
	.ways = {{"sse", 0}, {"avx2", 1 << CPU_AVX2}, {"avx512x16", NEEDS_AVX512}, {"avx512x32", NEEDS_AVX512}},
	.prepare = prepare,
	.run = run,
	.finish = finish,
	.use = use};

RTE_INIT(acl_choice_register)
{
	fastest_register(&fastest);
}
