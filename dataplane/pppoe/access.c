// SPDX-License-Identifier: Apache-2.0
#include "pppoe/access.h"

#include <errno.h>

bool
pppoe_access_same(const struct session_key *a, const struct session_key *b)
{
	return circuit_same(&a->circuit, &b->circuit) && pppoe_access_id(a) == pppoe_access_id(b);
}

int
pppoe_access_bind(
	struct pppoe_table *table, const struct session_key *key, uint32_t session, const char *field, struct fault *f)
{
	int error = pppoe_table_put(table, &key->circuit, pppoe_access_id(key), session);

	if (error == -EEXIST)
		return fault(f, EEXIST, "access.%s: %u is Session \"%.64s\"'s on these VLANs; choose another", field,
			pppoe_access_id(key), session_name(pppoe_access_find(table, key)));
	return error ? fault(f, -error, "access.%s: there is no memory for it", field) : 0;
}

void
pppoe_access_unbind(struct pppoe_table *table, const struct session_key *key)
{
	pppoe_table_delete(table, &key->circuit, pppoe_access_id(key));
}

void
pppoe_access_rebind(struct pppoe_table *table, const struct session_key *key, uint32_t session)
{
	pppoe_table_replace(table, &key->circuit, pppoe_access_id(key), session);
}
