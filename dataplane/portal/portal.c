// SPDX-License-Identifier: Apache-2.0
// The kind Portal. A change replaces the old portal by one store.
#include "contract_limits.h"
#include "portal/portal.h"

#include <errno.h>
#include <stdlib.h>

#include "core/rcu.h"
#include "portal.pb-c.h"

struct slab portal_slots;
uint32_t *session_portals;

static_assert(CONTRACT_PORTAL_ALLOWED_MAX <= PORTAL_ALLOWED && CONTRACT_PORTAL_NAME_SERVERS_MAX <= PORTAL_NAME_SERVERS,
	"a portal has room for all prefixes");

static int
parse(const char *name, const char *field, char *const *texts, size_t count, struct session_prefix *list,
	struct fault *f)
{
	char where[128];
	int error = 0;

	for (size_t i = 0; i < count && error == 0; i++) {
		snprintf(where, sizeof(where), "portal %.63s, %s[%zu]", name, field, i);
		error = session_prefix_parse(texts[i], where, &list[i], f);
	}
	return error;
}

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	const Sluice__V1__Portal *message = spec;
	struct portal *portal = calloc(1, sizeof(*portal)), *before;
	uint32_t index = portal_of(object);
	int error;

	if (!portal)
		return fault(f, ENOMEM, "portal %.63s: there is no memory for it", object->name);
	error = parse(object->name, "allowed", message->allowed, message->n_allowed, portal->list, f);
	if (error == 0)
		error = parse(object->name, "nameServers", message->name_servers, message->n_name_servers,
			portal->server_list, f);
	portal->allowed = (unsigned)message->n_allowed;
	portal->servers = (unsigned)message->n_name_servers;
	if (error == 0 && !object->state) {
		index = slab_take(&portal_slots);
		if (index == UINT32_MAX)
			error = fault(
				f, ENOSPC, "portal %.63s: there are %d portals already", object->name, PORTAL_LIMIT);
		else
			object->state = (void *)((uintptr_t)index + 1);
	}
	if (error) {
		free(portal);
		return error;
	}
	before = atomic_exchange(&((struct portal_slot *)slab_at(&portal_slots, index))->portal, portal);
	if (before)
		rcu_retire(free, before);
	return 0;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct portal_slot *slot = slab_at(&portal_slots, portal_of(object));

	rcu_retire(free, atomic_exchange(&slot->portal, NULL));
	slab_give_later(&portal_slots, portal_of(object));
	return 0;
}

static int
start(void)
{
	session_portals = slab_reserve(sizeof(*session_portals) * SESSION_LIMIT);
	if (!session_portals)
		return -ENOMEM;
	return slab_create(&portal_slots, sizeof(struct portal_slot), PORTAL_LIMIT);
}

struct kind portal_kind = {
	.name = "Portal",
	.spec = &sluice__v1__portal__descriptor,
	.put = put,
	.delete = delete,
	.start = start,
};
KIND_REGISTER(portal_kind)
