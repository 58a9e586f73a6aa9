// SPDX-License-Identifier: Apache-2.0
// The kind GtpuPeer. There are as many as there are user plane functions: few enough to be looked through when a path is made.
#include "gtpu/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fib/vrf.h"
#include "gtpu.pb-c.h"
#include "inet/header.h"

enum { REQUESTS = 5 };

#define SECOND UINT64_C(1000000000)

static const struct path_watch usual = {.interval = 60 * SECOND, .wait = 3 * SECOND, .most = REQUESTS};

struct peer {
	struct object *vrf_object;
	uint16_t vrf;
	uint8_t family, address[16];
	struct path_watch watch;
	struct peer *next;
};

static struct peer *peers;
static void (*watcher)(uint16_t vrf, uint8_t family, const uint8_t *address);

static struct peer *
find(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	for (struct peer *p = peers; p; p = p->next)
		if (p->vrf == vrf && p->family == family && memcmp(p->address, address, family == 4 ? 4 : 16) == 0)
			return p;
	return NULL;
}

struct path_watch
gtpu_peer_watch(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	const struct peer *p = find(vrf, family, address);

	return p ? p->watch : usual;
}

void
gtpu_peer_watcher(void (*changed)(uint16_t vrf, uint8_t family, const uint8_t *address))
{
	watcher = changed;
}

static int
parse(const Sluice__V1__GtpuPeer *spec, struct peer *p, struct fault *f)
{
	if (address_parse(spec->address, p->address, &p->family))
		return fault(
			f, EINVAL, "address: \"%.64s\" is not an IP address; \"192.0.2.2\" would be", spec->address);
	p->watch = (struct path_watch){
		.interval = spec->echo_interval ? spec->echo_interval : usual.interval,
		.wait = spec->response_time ? spec->response_time : usual.wait,
		.most = spec->requests ? spec->requests : usual.most,
		.silent = spec->no_echo,
	};
	return 0;
}

static void
unlink_peer(const struct peer *p)
{
	struct peer **link = &peers;

	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
}

static int
put(struct object *object, const void *spec, const void *old, struct fault *f)
{
	struct peer *p = calloc(1, sizeof(*p)), *before = object->state, *holder;
	int error;

	if (!p)
		return fault(f, ENOMEM, "there is no memory for another GtpuPeer");
	error = parse(spec, p, f);
	if (error == 0)
		error = vrf_need(((const Sluice__V1__GtpuPeer *)spec)->vrf, "vrf", &p->vrf, &p->vrf_object, f);
	if (error) {
		free(p);
		return error;
	}
	holder = find(p->vrf, p->family, p->address);
	if (holder && holder != before)
		error = fault(f, EEXIST, "address: another GtpuPeer has it in this VRF");
	else if (before && holder != before)
		error = fault(f, EINVAL, "address, vrf: cannot change; delete the GtpuPeer and create it again");
	if (error) {
		object_unuse(p->vrf_object);
		free(p);
		return error;
	}
	if (before) {
		unlink_peer(before);
		object_unuse(before->vrf_object);
		free(before);
	}
	p->next = peers;
	peers = p;
	object->state = p;
	watcher(p->vrf, p->family, p->address);
	return 0;
}

static int delete (struct object *object, const void *spec, struct fault *f)
{
	struct peer *p = object->state;

	unlink_peer(p);
	watcher(p->vrf, p->family, p->address);
	object_unuse(p->vrf_object);
	free(p);
	return 0;
}

struct kind gtpu_peer_kind = {
	.name = "GtpuPeer", .spec = &sluice__v1__gtpu_peer__descriptor, .put = put, .delete = delete};
KIND_REGISTER(gtpu_peer_kind)
