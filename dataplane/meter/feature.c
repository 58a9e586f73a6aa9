// SPDX-License-Identifier: Apache-2.0
// Interfaces' meters: a packet counts if the access list let it through.
#include <errno.h>

#include "ether/feature.h"
#include "ether/interface.h"
#include "meter/meter.h"

static int
need_one(const char *name, const char *field, struct object **object, struct fault *f)
{
	int error = object_need(&meter_kind, name, field, object, f);

	if (!error && *object && meter_global(*object) == NO_METER)
		return fault(f, EINVAL,
			"%s: an interface needs a meter with scope global, and \"%.64s\" has another; make a meter "
			"with "
			"scope: global",
			field, name);
	return error;
}

static int
need(const Sluice__V1__Interface *spec, struct object *objects[INTERFACE_WAYS], struct fault *f)
{
	int error = need_one(spec->meter_in, "meterIn", &objects[INTERFACE_IN], f);

	return error ? error : need_one(spec->meter_out, "meterOut", &objects[INTERFACE_OUT], f);
}

static void
publish(uint32_t interface, struct object *const objects[INTERFACE_WAYS])
{
	struct interface *i = interface_at(interface);
	const struct object *in = objects[INTERFACE_IN], *out = objects[INTERFACE_OUT];

	__atomic_store_n(&i->meter_in, in ? meter_global(in) : NO_METER, __ATOMIC_RELEASE);
	__atomic_store_n(&i->meter_out, out ? meter_global(out) : NO_METER, __ATOMIC_RELEASE);
}

static const char *const after[] = {"acl", NULL};
static struct interface_feature meter_feature = {
	.order = {.name = "meter", .after = after},
	.node = {[INTERFACE_IN] = &meter_in_node, [INTERFACE_OUT] = &meter_out_node},
	.need = need,
	.publish = publish,
};
INTERFACE_FEATURE_REGISTER(meter_feature)
