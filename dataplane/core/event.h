// Events for whoever watches over the API.
#pragma once

#include <stdbool.h>

#include "dataplane.pb-c.h"

void event_send(const Sluice__V1__Event *event);

// A client changed an object: whoever else watches changes is told. One of the two is NULL.
struct api_client;
void event_changed(const struct api_client *by, Sluice__V1__Object *object, Sluice__V1__ObjectName *deleted);
// Whether there is anybody else.
bool event_changes_watched(const struct api_client *by);
// Once, before there is a client.
void event_start(void);

// How a punted packet is described: the names of its port, interface and session. Registered by those concepts; each fills
// in what it knows. Strings live until the packet is freed.
struct packet;
struct event_names {
	void (*name)(const struct packet *packet, Sluice__V1__PacketIn *in);
	struct event_names *next;
};
void event_names_register(struct event_names *names);
