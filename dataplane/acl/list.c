// SPDX-License-Identifier: Apache-2.0
// Prepares lists. rte_acl needs a first field of one byte and then groups of four, in the order in which the tree
// decides: the protocol's class, the addresses with the more selective one first, ports, and only if a rule has them
// DSCP and TCP flags.
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_memory.h>

#include "acl/crossing.h"
#include "acl/list.h"
#include "core/worker.h"

enum {
	TUPLES_MIN = 64,  // exact rules from which on a hash table pays
	RULE_ROOM = 4096, // rules handed to rte_acl at once
	// Rules that rte_acl can be trusted with, as it bounds neither time nor memory: some that cross each other in few parts,
	// or plain ones.
	TREE_MAX = CROSSING_RULES,
	PARTS_MAX = 16384,
	PLAIN_MAX = 16384,
};

static_assert(ACL_BURST == 256, "as many keys as tuples_find takes");

enum rte_acl_classify_alg acl_algorithm = RTE_ACL_CLASSIFY_SCALAR;

// How one family's keys are laid out.
struct layout {
	uint8_t family;
	uint8_t words;                             // of an address
	uint8_t source, destination, ports, marks; // offsets in the key
	uint8_t exact;                             // bytes of a 5-tuple
};

static const struct layout layout4 = {4, 1, offsetof(struct acl_key4, source), offsetof(struct acl_key4, destination),
	offsetof(struct acl_key4, source_port), offsetof(struct acl_key4, dscp), EXACT_KEY4};
static const struct layout layout6 = {6, 4, offsetof(struct acl_key6, source), offsetof(struct acl_key6, destination),
	offsetof(struct acl_key6, source_port), offsetof(struct acl_key6, dscp), EXACT_KEY6};

// The protocol that a rule holds for in this family, or -1.
static int
protocol_of(const struct acl_rule *rule, const struct layout *layout)
{
	if (rule->protocol < 0 && rule->reads & RULE_READS_ICMP)
		return layout->family == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6;
	return rule->protocol;
}

static bool
is_exact(const struct acl_rule *rule, const struct layout *layout)
{
	return rule->source_length == layout->words * 32 && rule->destination_length == layout->words * 32 &&
	       rule->protocol >= 0 && rule->reads == RULE_READS_PORTS && rule->dscp_mask == 0 && !rule->has_label &&
	       rule->source_low == rule->source_high && rule->destination_low == rule->destination_high;
}

static uint32_t
verdict_of(const struct acl_rule *rule, size_t index)
{
	return (uint32_t)(index + 1) << 1 | rule->permit;
}

// Give each protocol that a rule names a number.
static int
number_protocols(
	struct acl_protocols *protocols, const char *name, const struct acl_rule *rules, size_t count, struct fault *f)
{
	static const struct layout *const layouts[] = {&layout4, &layout6};
	unsigned numbers = 0;

	for (unsigned protocol = 0; protocol < 256; protocol++)
		protocols->class_of[protocol] = protocol_has_ports((uint8_t)protocol) ? CLASS_HAS_PORTS : 0;
	for (size_t i = 0; i < count; i++) {
		for (unsigned l = 0; l < 2; l++) {
			int protocol = protocol_of(&rules[i], layouts[l]);

			if (rules[i].reads && protocol >= 0)
				protocols->read[protocol] = true;
			if (protocol < 0 || protocols->class_of[protocol] & CLASS_NUMBER)
				continue;
			if (numbers == CLASS_NUMBER)
				return fault(f, E2BIG,
					"%.80s, rule %zu, protocol: %d is one more than the %d different protocols "
					"that "
					"a list can name",
					name, i + 1, protocol, CLASS_NUMBER);
			protocols->class_of[protocol] |= (uint8_t)++numbers;
			protocols->named = true;
		}
		if (rules[i].reads & RULE_READS_PORTS && rules[i].protocol < 0) {
			for (unsigned protocol = 0; protocol < 256; protocol++)
				protocols->read[protocol] |= protocol_has_ports((uint8_t)protocol);
			protocols->named = true;
		}
	}
	return 0;
}

// Give each flow label that a rule names a number.
static int
number_labels(
	struct acl_protocols *protocols, const char *name, const struct acl_rule *rules, size_t count, struct fault *f)
{
	unsigned numbers = 0, place;

	for (size_t i = 0; i < count; i++) {
		if (!rules[i].has_label)
			continue;
		if (!protocols->labels &&
			(protocols->labels = calloc(LABEL_PLACES, sizeof(*protocols->labels))) == NULL)
			return fault(f, ENOMEM, "%.80s: there is no memory left for its flow labels", name);
		if (label_number(protocols->labels, rules[i].label) != 0)
			continue;
		if (numbers == LABELS_MAX)
			return fault(f, E2BIG, "%.80s: flow label %u is one more than the %d that a list can name",
				name, rules[i].label, LABELS_MAX);
		for (place = rules[i].label % LABEL_PLACES; protocols->labels[place] != 0;)
			place = (place + 1) % LABEL_PLACES;
		protocols->labels[place] = rules[i].label << 8 | ++numbers;
	}
	return 0;
}

// The class field of a rule: its mask and its value.
static void
class_field(const struct acl_protocols *protocols, const struct acl_rule *rule, const struct layout *layout,
	struct rte_acl_field *field)
{
	int protocol = protocol_of(rule, layout);

	if (protocol >= 0) {
		field->value.u8 = protocols->class_of[protocol];
		field->mask_range.u8 = rule->reads ? 0xff : CLASS_NUMBER;
	} else if (rule->reads) {
		field->value.u8 = CLASS_HAS_PORTS;
		field->mask_range.u8 = CLASS_HAS_PORTS | CLASS_UNREADABLE;
	}
	field->value.u8 &= field->mask_range.u8;
}

static void
address_fields(const uint8_t *address, unsigned length, unsigned words, struct rte_acl_field *fields)
{
	for (unsigned word = 0; word < words; word++) {
		unsigned bits = length > word * 32 ? length - word * 32 : 0;
		uint32_t value;

		memcpy(&value, address + word * 4, 4);
		fields[word].value.u32 = rte_be_to_cpu_32(value);
		fields[word].mask_range.u32 = bits > 32 ? 32 : bits;
	}
}

// The rules of a family for the tree, and the fields that they need.
struct selection {
	const struct acl_rule *rules;
	const uint32_t *indexes; // of those in the tree, ascending
	size_t count;
	bool destination_first;
	bool marks; // DSCP, TCP flags or flow label count
	bool plain; // each has one address and nothing else, all on the same side: no rule crosses another
};

static unsigned
define_fields(struct rte_acl_config *config, const struct layout *layout, const struct selection *selection)
{
	uint8_t addresses[2] = {layout->source, layout->destination};
	struct rte_acl_field_def *def = config->defs;
	uint8_t input = 0;

	*def++ = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, input++, 0};
	for (unsigned which = 0; which < 2; which++) {
		uint8_t offset = addresses[selection->destination_first ? !which : which];

		for (unsigned word = 0; word < layout->words; word++)
			*def++ = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_MASK, 4, 0, input++, offset + word * 4};
	}
	*def++ = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_RANGE, 2, 0, input, layout->ports};
	*def++ = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_RANGE, 2, 0, input++, layout->ports + 2u};
	if (selection->marks) {
		*def++ = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, input, layout->marks};
		*def++ = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, input, layout->marks + 1u};
		*def++ = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_BITMASK, 2, 0, input, layout->marks + 2u};
	}
	config->num_categories = 1;
	config->num_fields = (uint32_t)(def - config->defs);
	for (unsigned i = 0; i < config->num_fields; i++)
		config->defs[i].field_index = (uint8_t)i;
	return config->num_fields;
}

static void
write_rule(struct rte_acl_rule *to, const struct acl_protocols *protocols, const struct layout *layout,
	const struct selection *selection, size_t position)
{
	uint32_t index = selection->indexes[position];
	const struct acl_rule *rule = &selection->rules[index];
	struct rte_acl_field *field = to->field;
	unsigned source = selection->destination_first ? layout->words : 0;

	to->data.category_mask = 1;
	to->data.priority = (int32_t)(selection->count - position);
	to->data.userdata = verdict_of(rule, index);
	class_field(protocols, rule, layout, field++);
	address_fields(rule->source, rule->source_length, layout->words, field + source);
	address_fields(rule->destination, rule->destination_length, layout->words, field + layout->words - source);
	field += 2 * layout->words;
	*field++ = (struct rte_acl_field){.value.u16 = rule->source_low, .mask_range.u16 = rule->source_high};
	*field++ = (struct rte_acl_field){.value.u16 = rule->destination_low, .mask_range.u16 = rule->destination_high};
	if (selection->marks) {
		*field++ = (struct rte_acl_field){.value.u8 = rule->dscp, .mask_range.u8 = rule->dscp_mask};
		*field++ = (struct rte_acl_field){.value.u8 = rule->flags, .mask_range.u8 = rule->flags_mask};
		if (rule->has_label)
			*field = (struct rte_acl_field){.value.u16 = label_number(protocols->labels, rule->label),
				.mask_range.u16 = UINT16_MAX};
	}
}

// Hand the selected rules over, some at a time.
static int
add_rules(struct rte_acl_ctx *tree, const struct acl_protocols *protocols, const struct layout *layout,
	const struct selection *selection, unsigned fields)
{
	size_t size = RTE_ACL_RULE_SZ(fields);
	uint8_t *room = malloc(RULE_ROOM * size);
	int rc = room ? 0 : -ENOMEM;

	for (size_t start = 0; rc == 0 && start < selection->count; start += RULE_ROOM) {
		size_t some = selection->count - start < RULE_ROOM ? selection->count - start : RULE_ROOM;

		memset(room, 0, some * size);
		for (size_t i = 0; i < some; i++)
			write_rule((struct rte_acl_rule *)(void *)(room + i * size), protocols, layout, selection,
				start + i);
		rc = rte_acl_add_rules(tree, (const struct rte_acl_rule *)(const void *)room, (uint32_t)some);
	}
	free(room);
	return rc;
}

static int
create_tree(struct acl_part *part, const struct acl_protocols *protocols, const struct layout *layout,
	const struct selection *selection)
{
	// Two contexts of one name would be one context.
	static atomic_uint_fast64_t serial;
	struct rte_acl_config config = {0};
	unsigned fields = define_fields(&config, layout, selection);
	char name[RTE_ACL_NAMESIZE];
	struct rte_acl_param param = {.name = name,
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(fields),
		.max_rule_num = (uint32_t)selection->count};
	struct rte_acl_ctx *tree;
	int rc;

	snprintf(name, sizeof(name), "list-%" PRIuFAST64, atomic_fetch_add(&serial, 1));
	tree = rte_acl_create(&param);
	if (!tree)
		return -ENOMEM;
	rc = add_rules(tree, protocols, layout, selection, fields);
	if (rc == 0)
		rc = rte_acl_build(tree, &config);
	if (rc != 0) {
		rte_acl_free(tree);
		return rc;
	}
	part->tree = tree;
	return 0;
}

static void
add_tuple(struct tuples *tuples, const struct acl_protocols *protocols, const struct layout *layout,
	const struct acl_rule *rule, uint32_t verdict)
{
	uint8_t key[EXACT_KEY6] = {protocols->class_of[rule->protocol]};
	uint16_t source = rte_cpu_to_be_16(rule->source_low), destination = rte_cpu_to_be_16(rule->destination_low);

	memcpy(key + layout->source, rule->source, layout->words * 4u);
	memcpy(key + layout->destination, rule->destination, layout->words * 4u);
	memcpy(key + layout->ports, &source, 2);
	memcpy(key + layout->ports + 2, &destination, 2);
	tuples_add(tuples, key, verdict);
}

static int
create_tuples(struct tuples **made, const struct acl_protocols *protocols, const struct layout *layout,
	const struct acl_rule *rules, const uint32_t *indexes, size_t count)
{
	struct tuples *tuples = tuples_create(count, layout->exact);

	if (!tuples)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		add_tuple(tuples, protocols, layout, &rules[indexes[i]], verdict_of(&rules[indexes[i]], indexes[i]));
	*made = tuples;
	return 0;
}

static void
address_range(const uint8_t *address, unsigned length, unsigned words, uint32_t *low, uint32_t *high)
{
	struct rte_acl_field fields[4];

	address_fields(address, length, words, fields);
	for (unsigned word = 0; word < words; word++) {
		low[word] = fields[word].value.u32;
		high[word] = low[word] | (uint32_t)(UINT64_C(0xffffffff) >> fields[word].mask_range.u32);
	}
}

static uint32_t
marks_of(uint32_t class, uint32_t dscp, uint32_t flags, uint32_t label)
{
	return class | dscp << 8 | flags << 16 | label << 24;
}

// The dimensions of cuts: the class's number and its two other bits, addresses, ports. Marks: class, DSCP, TCP flags and flow label.
static void
cut_rule(struct cuts_rule *to, const struct acl_protocols *protocols, const struct layout *layout,
	const struct acl_rule *rule, uint32_t verdict)
{
	struct rte_acl_field class = {0};
	unsigned words = layout->words, ports = 2 + 2 * words;

	class_field(protocols, rule, layout, &class);
	to->low[0] = class.value.u8 & CLASS_NUMBER;
	to->high[0] = class.mask_range.u8 & CLASS_NUMBER ? to->low[0] : CLASS_NUMBER;
	to->low[1] = class.value.u8 >> CLASS_BITS;
	to->high[1] = class.mask_range.u8 >> CLASS_BITS ? to->low[1] : 3;
	address_range(rule->source, rule->source_length, words, to->low + 2, to->high + 2);
	address_range(rule->destination, rule->destination_length, words, to->low + 2 + words, to->high + 2 + words);
	to->low[ports] = rule->source_low;
	to->high[ports] = rule->source_high;
	to->low[ports + 1] = rule->destination_low;
	to->high[ports + 1] = rule->destination_high;
	to->marks = marks_of(class.value.u8, rule->dscp, rule->flags,
		rule->has_label ? label_number(protocols->labels, rule->label) : 0);
	to->marks_mask =
		marks_of(class.mask_range.u8, rule->dscp_mask, rule->flags_mask, rule->has_label ? UINT8_MAX : 0);
	to->verdict = verdict;
}

// Whether rte_acl makes short work of them.
static bool
suits_tree(const struct cuts_rule *rules, const struct layout *layout, const struct selection *selection)
{
	unsigned order[CUTS_MAX], *next = order, words = layout->words;
	unsigned first = selection->destination_first ? 2 + words : 2,
		 second = selection->destination_first ? 2 : 2 + words;

	if (selection->plain)
		return selection->count <= PLAIN_MAX;
	if (selection->count > TREE_MAX)
		return false;
	*next++ = 0;
	*next++ = 1;
	for (unsigned word = 0; word < words; word++)
		*next++ = first + word;
	for (unsigned word = 0; word < words; word++)
		*next++ = second + word;
	*next++ = 2 + 2 * words;
	*next++ = 3 + 2 * words;
	return crossing_parts(rules, selection->count, order, (unsigned)(next - order), PARTS_MAX) < PARTS_MAX;
}

// Rules that do not suit rte_acl, or that it gives up on, become cuts.
static int
create_ordered(struct acl_part *part, const struct acl_protocols *protocols, const struct layout *layout,
	const struct selection *selection, const atomic_bool *unwanted)
{
	struct cuts_rule *rules = calloc(selection->count, sizeof(*rules));
	int rc;

	if (!rules)
		return -ENOMEM;
	for (size_t i = 0; i < selection->count; i++) {
		uint32_t index = selection->indexes[i];
		const struct acl_rule *rule = &selection->rules[index];

		cut_rule(&rules[i], protocols, layout, rule, verdict_of(rule, index));
	}
	if (suits_tree(rules, layout, selection) && create_tree(part, protocols, layout, selection) == 0)
		rc = 0;
	else
		rc = cuts_create(rules, selection->count, 4 + 2 * layout->words, unwanted, &part->cuts);
	free(rules);
	return rc;
}

static int
create_part(struct acl_part *part, const struct acl_list *list, const struct layout *layout,
	const struct acl_rule *rules, size_t count, uint32_t *indexes, const atomic_bool *unwanted)
{
	struct selection selection = {.rules = rules, .indexes = indexes, .plain = true};
	uint64_t source_bits = 0, destination_bits = 0;
	// Exact rules are collected from the end of the room.
	size_t exact = 0, mine = 0, last = count;
	int rc;

	// Leave out rules at the end that equal the default action, unless hits are counted.
	while (!list->hits && last > 0 &&
		(rules[last - 1].permit == list->otherwise ||
			(rules[last - 1].family != 0 && rules[last - 1].family != layout->family)))
		last--;
	for (size_t i = 0; i < last; i++)
		exact += is_exact(&rules[i], layout) && rules[i].family == layout->family;
	if (exact < TUPLES_MIN)
		exact = 0;
	mine = exact;
	for (size_t i = 0, tuple = 0; i < last; i++) {
		const struct acl_rule *rule = &rules[i];

		if (rule->family != 0 && rule->family != layout->family)
			continue;
		if (exact > 0 && is_exact(rule, layout)) {
			indexes[tuple++] = (uint32_t)i;
			continue;
		}
		indexes[mine++] = (uint32_t)i;
		source_bits += rule->source_length;
		destination_bits += rule->destination_length;
		selection.plain &= rule->protocol < 0 && rule->reads == 0 && rule->dscp_mask == 0 && !rule->has_label;
		selection.marks |= rule->dscp_mask != 0 || rule->flags_mask != 0 || rule->has_label;
	}
	selection.plain &= source_bits == 0 || destination_bits == 0;
	rc = exact > 0 ? create_tuples(&part->tuples, &list->protocols, layout, rules, indexes, exact) : 0;
	selection.indexes = indexes + exact;
	selection.count = mine - exact;
	selection.destination_first = destination_bits > source_bits;
	if (rc != 0 || selection.count == 0)
		return rc;
	return create_ordered(part, &list->protocols, layout, &selection, unwanted);
}

// A row begins on a cache line of its own.
static int
create_hits(struct acl_list *list, size_t count)
{
	enum { A_LINE = RTE_CACHE_LINE_SIZE / sizeof(uint64_t) };
	size_t bytes;

	list->rule_count = (uint32_t)count;
	list->hits_stride = (uint32_t)RTE_ALIGN_CEIL(count + 1, A_LINE);
	bytes = (size_t)list->hits_stride * (worker_count + 1) * sizeof(uint64_t);
	list->hits = aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);
	if (!list->hits)
		return -ENOMEM;
	memset(list->hits, 0, bytes);
	return 0;
}

uint64_t
acl_list_hits(const struct acl_list *list, uint32_t rule)
{
	uint64_t sum = 0;

	for (unsigned w = 0; list->hits && rule <= list->rule_count && w <= worker_count; w++)
		sum += __atomic_load_n(&list->hits[(size_t)w * list->hits_stride + rule], __ATOMIC_RELAXED);
	return sum;
}

static int
create(const char *name, const struct acl_rule *rules, size_t count, bool otherwise, bool counted,
	const atomic_bool *unwanted, struct acl_list **made, struct fault *f)
{
	struct acl_list *list = calloc(1, sizeof(*list));
	uint32_t *indexes = calloc(count + 1, sizeof(*indexes));
	int rc;

	if (!list || !indexes || (counted && create_hits(list, count))) {
		rc = fault(f, ENOMEM, "%.80s, rules: there is no memory left for %zu rules", name, count);
		goto out;
	}
	list->otherwise = otherwise;
	rc = number_protocols(&list->protocols, name, rules, count, f);
	if (rc == 0)
		rc = number_labels(&list->protocols, name, rules, count, f);
	if (rc != 0)
		goto out;
	rc = create_part(&list->v4, list, &layout4, rules, count, indexes, unwanted);
	if (rc == 0)
		rc = create_part(&list->v6, list, &layout6, rules, count, indexes, unwanted);
	if (rc == -E2BIG)
		fault(f, E2BIG,
			"%.80s, rules: the %zu rules overlap in too many ways, so that more than %d would have to "
			"be tried for some packets: make addresses or ports of some narrower, or take some out",
			name, count, CUTS_CELL);
	else if (rc == -ECANCELED)
		fault(f, ECANCELED, "%.80s, rules: the change was cancelled", name);
	else if (rc != 0)
		fault(f, -rc, "%.80s, rules: there is no memory left for %zu rules: take some out", name, count);
out:
	free(indexes);
	if (rc == 0)
		*made = list;
	else
		acl_list_destroy(list);
	return rc;
}

int
acl_list_create(const char *name, const struct acl_rule *rules, size_t count, bool otherwise,
	const atomic_bool *unwanted, struct acl_list **made, struct fault *f)
{
	return create(name, rules, count, otherwise, false, unwanted, made, f);
}

int
acl_list_create_counted(const char *name, const struct acl_rule *rules, size_t count, bool otherwise,
	const atomic_bool *unwanted, struct acl_list **made, struct fault *f)
{
	return create(name, rules, count, otherwise, true, unwanted, made, f);
}

void
acl_list_destroy(struct acl_list *list)
{
	if (!list)
		return;
	free(list->hits);
	rte_acl_free(list->v4.tree);
	rte_acl_free(list->v6.tree);
	cuts_destroy(list->v4.cuts);
	cuts_destroy(list->v6.cuts);
	tuples_destroy(list->v4.tuples);
	tuples_destroy(list->v6.tuples);
	free(list->protocols.labels);
	free(list);
}

static void
find_cut4(const struct cuts *cuts, const struct acl_key4 *keys, unsigned count, uint32_t *verdicts)
{
	uint32_t words[ACL_BURST][CUTS_WORDS];

	for (unsigned i = 0; i < count; i++) {
		const struct acl_key4 *key = &keys[i];
		uint32_t *to = words[i];

		*to++ = key->class & CLASS_NUMBER;
		*to++ = key->class >> CLASS_BITS;
		*to++ = rte_be_to_cpu_32(key->source);
		*to++ = rte_be_to_cpu_32(key->destination);
		*to++ = rte_be_to_cpu_16(key->source_port);
		*to++ = rte_be_to_cpu_16(key->destination_port);
		*to = marks_of(key->class, key->dscp, key->flags, 0);
	}
	cuts_find(cuts, words, count, verdicts);
}

static void
find_cut6(const struct cuts *cuts, const struct acl_key6 *keys, unsigned count, uint32_t *verdicts)
{
	uint32_t words[ACL_BURST][CUTS_WORDS];

	for (unsigned i = 0; i < count; i++) {
		const struct acl_key6 *key = &keys[i];
		uint32_t addresses[8], *to = words[i];

		memcpy(addresses, key->source, 32);
		*to++ = key->class & CLASS_NUMBER;
		*to++ = key->class >> CLASS_BITS;
		for (unsigned word = 0; word < 8; word++)
			*to++ = rte_be_to_cpu_32(addresses[word]);
		*to++ = rte_be_to_cpu_16(key->source_port);
		*to++ = rte_be_to_cpu_16(key->destination_port);
		*to = marks_of(key->class, key->dscp, key->flags, rte_be_to_cpu_16(key->label));
	}
	cuts_find(cuts, words, count, verdicts);
}

static inline void
find(const struct acl_part *part, const void *keys, size_t stride, unsigned count, uint32_t *verdicts)
{
	uint32_t exact[ACL_BURST];
	bool ordered = part->tree || part->cuts;

	if (part->tree) {
		const uint8_t *data[ACL_BURST];

		for (unsigned i = 0; i < count; i++)
			data[i] = (const uint8_t *)keys + i * stride;
		rte_acl_classify_alg(part->tree, data, verdicts, count, 1, acl_algorithm);
	} else if (part->cuts) {
		if (stride == sizeof(struct acl_key4))
			find_cut4(part->cuts, keys, count, verdicts);
		else
			find_cut6(part->cuts, keys, count, verdicts);
	}
	if (part->tuples) {
		tuples_find(part->tuples, keys, stride, count, ordered ? exact : verdicts);
		// One less turns "none" into the last.
		for (unsigned i = 0; ordered && i < count; i++)
			verdicts[i] = RTE_MIN(verdicts[i] - 1, exact[i] - 1) + 1;
	}
	if (!ordered && !part->tuples)
		memset(verdicts, 0, count * sizeof(*verdicts));
}

void
acl_list_find4(const struct acl_list *list, const struct acl_key4 *keys, unsigned count, uint32_t *verdicts)
{
	find(&list->v4, keys, sizeof(*keys), count, verdicts);
}

void
acl_list_find6(const struct acl_list *list, const struct acl_key6 *keys, unsigned count, uint32_t *verdicts)
{
	find(&list->v6, keys, sizeof(*keys), count, verdicts);
}
