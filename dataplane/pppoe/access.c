// SPDX-License-Identifier: Apache-2.0
#include "pppoe/access.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pppoe/header.h"

static uint16_t
id_of(const struct session_key *key)
{
	return (uint16_t)key->own[0];
}

static const struct pppoe_access *
access_of(const struct session_key *key)
{
	return container_of(key->access, struct pppoe_access, access);
}

// RFC 2516 section 4: length and PPP's protocol are filled in by packet, and so is a code that is not 0.
static unsigned
header(const struct session_key *key, uint8_t *behind)
{
	const uint8_t bytes[SESSION_BEHIND_TAGS] = {RTE_ETHER_TYPE_PPPOE_SESSION >> 8,
		RTE_ETHER_TYPE_PPPOE_SESSION & 0xff, access_of(key)->version_type, PPPOE_SESSION_DATA,
		(uint8_t)(id_of(key) >> 8), (uint8_t)id_of(key)};

	memcpy(behind, bytes, sizeof(bytes));
	return sizeof(bytes);
}

static void
describe(const struct session_key *key, char *text, size_t size)
{
	snprintf(text, size, "%s session %u", key->access->name, id_of(key));
}

static bool
same(const struct session_key *a, const struct session_key *b)
{
	return circuit_same(&a->circuit, &b->circuit) && id_of(a) == id_of(b);
}

static uint32_t
find(const struct session_key *key)
{
	return pppoe_find(access_of(key)->table, &key->circuit, id_of(key));
}

static int
bind(const struct session_key *key, uint32_t session, bool frames, bool alone, struct fault *f)
{
	const struct pppoe_access *access = access_of(key);
	int error = pppoe_table_put(access->table, &key->circuit, id_of(key), session);

	if (error == -EEXIST)
		return fault(f, EEXIST, "access.%s: %u is Session \"%.64s\"'s on these VLANs; choose another",
			access->field, id_of(key), session_name(find(key)));
	return error ? fault(f, -error, "access.%s: there is no memory for it", access->field) : 0;
}

static void
unbind(const struct session_key *key)
{
	pppoe_table_delete(access_of(key)->table, &key->circuit, id_of(key));
}

static void
rebind(const struct session_key *key, uint32_t session)
{
	pppoe_table_replace(access_of(key)->table, &key->circuit, id_of(key), session);
}

void
pppoe_access_register(struct pppoe_access *p)
{
	struct session_access *access = &p->access;

	access->header = header;
	access->frame.types[0] = RTE_BE16(PPP_IP4);
	access->frame.types[1] = RTE_BE16(PPP_IP6);
	access->frame.more = PPP_PROTOCOL;
	access->frame.has_length = true;
	access->frame.behind = access->overhead = PPPOE_HEADER + PPP_PROTOCOL;
	access->describe = describe;
	access->same = same;
	access->find = find;
	access->bind = bind;
	access->unbind = unbind;
	access->rebind = rebind;
	session_access_register(access);
}
