// SPDX-License-Identifier: Apache-2.0
// Events for clients that watch over the API.
#pragma once

#include <stdbool.h>

#include "dataplane.pb-c.h"

void event_send(const Sluice__V1__Event *event);

// A client changed an object: notify other clients that watch changes. One of the two is NULL.
struct api_client;
void event_changed(const struct api_client *by, Sluice__V1__Object *object, Sluice__V1__ObjectName *deleted);
// Whether there is another watching client.
bool event_changes_watched(const struct api_client *by);
// Once, before there is a client.
void event_start(void);

// How a punted packet is described: the names of its port, interface and session. Registered by those concepts; each
// fills in its fields. Strings live until the packet is freed.
struct packet;
struct event_names {
	void (*name)(const struct packet *packet, Sluice__V1__PacketIn *in);
	struct event_names *next;
};
void event_names_register(struct event_names *names);
