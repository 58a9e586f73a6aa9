// SPDX-License-Identifier: Apache-2.0
// Link-local IPv6 addresses that interfaces are configured with.
//
// One hash map for all interfaces. Its key is a keyed hash of address and interface: an attacker cannot make an address that has
// the key of another.
#include "fib/link_local.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "core/address.h"
#include "core/map64.h"
#include "ether/interface.h"
#include "inet/header.h"

static struct map64 *configured;
static uint64_t secret[2];

static uint64_t
key_of(uint32_t interface, const uint8_t address[16])
{
	return address_key(secret, interface, address);
}

static void
note(uint32_t interface, const struct interface_address *list, unsigned length, bool there)
{
	for (unsigned i = 0; i < length; i++) {
		if (list[i].family != 6 || !ip6_is_link_local(list[i].bytes))
			continue;
		if (there)
			map64_put(configured, key_of(interface, list[i].bytes), 1);
		else
			map64_delete(configured, key_of(interface, list[i].bytes));
	}
}

bool
link_local_is_configured(uint32_t interface, const uint8_t address[16])
{
	return configured && map64_get(configured, key_of(interface, address)) != MAP64_NONE;
}

static int
added(uint32_t interface, struct fault *f)
{
	const struct interface_detail *d = interface_detail(interface);

	note(interface, d->addresses, d->address_count, true);
	return 0;
}

static int
changed(uint32_t interface, const struct interface_address *old, unsigned old_count, struct fault *f)
{
	note(interface, old, old_count, false);
	return added(interface, f);
}

static void
removed(uint32_t interface)
{
	const struct interface_detail *d = interface_detail(interface);

	note(interface, d->addresses, d->address_count, false);
}

int
link_local_start(void)
{
	static struct interface_watcher watcher = {.added = added, .changed = changed, .removed = removed};

	configured = map64_create();
	if (!configured || getentropy(secret, sizeof(secret)))
		return -ENOMEM;
	interface_watch(&watcher);
	return 0;
}
