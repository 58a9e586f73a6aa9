// SPDX-License-Identifier: Apache-2.0
// The table of addresses that are not forwarded, to check configured addresses.
#include "fib/scope.h"

#include "core/address.h"

struct drop scope_link_local4 = {.name = "ip4-link-local",
	.description = "A source or destination in 169.254.0.0/16, which is not forwarded (RFC 3927 section 2.7)."};
RTE_INIT(register_scope_link_local4)
{
	drop_register(&scope_link_local4);
}

static const struct scope {
	uint8_t family, length;
	uint8_t address[16];
	const char *what;
	bool ours; // an address in it may be one of ours
} scopes[] = {
	{4, 8, {0}, "\"this network\" (RFC 1122)", false},
	{4, 8, {127}, "loopback (RFC 1122)", false},
	{4, 16, {169, 254}, "link-local (RFC 3927)", true},
	{4, 4, {224}, "multicast (RFC 1112)", false},
	{4, 4, {240}, "reserved (RFC 1112)", false},
	{4, 3, {224}, "multicast and reserved (RFC 1112)", false},
	{6, 128, {0}, "the unspecified address (RFC 4291)", false},
	{6, 128, {[15] = 1}, "the loopback address (RFC 4291)", false},
	{6, 96, {[10] = 0xff, [11] = 0xff}, "IPv4-mapped (RFC 4291)", false},
	{6, 10, {0xfe, 0x80}, "link-local (RFC 4291)", true},
	{6, 8, {0xff}, "multicast (RFC 4291)", false},
};

static const struct scope *
find(uint8_t family, const uint8_t *address, uint8_t length)
{
	for (unsigned i = 0; i < RTE_DIM(scopes); i++) {
		const struct scope *s = &scopes[i];
		unsigned differs = 0;

		if (s->family != family || s->length > length)
			continue;
		for (unsigned b = 0; b < (family == 4 ? 4 : 16); b++)
			differs |= (address[b] ^ s->address[b]) & prefix_mask(s->length, b);
		if (differs == 0)
			return s;
	}
	return NULL;
}

const char *
scope_not_forwarded(uint8_t family, const uint8_t *address, uint8_t length)
{
	const struct scope *s = find(family, address, length);

	return s ? s->what : NULL;
}

const char *
scope_not_a_host(uint8_t family, const uint8_t *address)
{
	const struct scope *s = find(family, address, family == 4 ? 32 : 128);

	return s && !s->ours ? s->what : NULL;
}
