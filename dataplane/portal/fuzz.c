// SPDX-License-Identifier: Apache-2.0
// A session in a walled garden.
#include "fuzz/part.h"
#include "portal.pb-c.h"
#include "session.pb-c.h"

static void
put(void)
{
	Sluice__V1__Portal portal = SLUICE__V1__PORTAL__INIT;
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;

	portal.url = "http://portal.example.net/";
	portal.allowed = (char *[]){"192.0.2.80/32", "2001:db8:80::/48"};
	portal.n_allowed = 2;
	portal.name_servers = (char *[]){"192.0.2.53/32"};
	portal.n_name_servers = 1;
	fuzz_put("Portal", "garden", &portal);
	access.port = "access";
	access.outer_vlan = 100;
	access.inner_vlan = 9;
	policy.portal = "garden";
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){"100.64.0.9/32", "2001:db8:1:9::/64"};
	session.n_addresses = 2;
	fuzz_put("Session", "guest", &session);
}

static struct fuzz_part portal_part = {.put = put};
FUZZ_PART_REGISTER(portal_part)
