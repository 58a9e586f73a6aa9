// SPDX-License-Identifier: Apache-2.0
// Interfaces' access lists: the first of their features.
#include "acl/acl.h"
#include "ether/feature.h"
#include "ether/interface.h"

static int
need(const Sluice__V1__Interface *spec, struct object *objects[INTERFACE_WAYS], struct fault *f)
{
	int error = object_need(&acl_kind, spec->acl_in, "aclIn", &objects[INTERFACE_IN], f);

	return error ? error : object_need(&acl_kind, spec->acl_out, "aclOut", &objects[INTERFACE_OUT], f);
}

static void
publish(uint32_t interface, struct object *const objects[INTERFACE_WAYS])
{
	struct interface *i = interface_at(interface);

	__atomic_store_n(&i->acl_in, acl_of(objects[INTERFACE_IN]), __ATOMIC_RELEASE);
	__atomic_store_n(&i->acl_out, acl_of(objects[INTERFACE_OUT]), __ATOMIC_RELEASE);
}

static struct interface_feature acl_feature = {
	.order = {.name = "acl"},
	.node = {[INTERFACE_IN] = &acl_in_node, [INTERFACE_OUT] = &acl_out_node},
	.need = need,
	.publish = publish,
};
INTERFACE_FEATURE_REGISTER(acl_feature)
