// SPDX-License-Identifier: Apache-2.0
// The share of reassembly's room that each sender holds, and each session or interface with all its senders. Main thread.
//
// A session is one owner with one sender. An interface is one owner, and each host on it is a sender: new source addresses use up
// the share of their interface, and not that of others.
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include "core/packet.h"

enum reassembly_held { REASSEMBLY_DATAGRAMS, REASSEMBLY_FRAGMENTS, REASSEMBLY_KINDS };
// Of senders by how much they hold: a class each for 1, 2 to 3, 4 to 7 and so on.
enum { REASSEMBLY_CLASSES = 16 };

struct datagram;
struct reassembly_owner;

struct reassembly_sender {
	uint64_t number;
	struct reassembly_owner *owner;
	uint32_t held[REASSEMBLY_KINDS];
	TAILQ_HEAD(, datagram) datagrams; // the oldest first
	LIST_ENTRY(reassembly_sender) same_hash;
	TAILQ_ENTRY(reassembly_sender) same_class[REASSEMBLY_KINDS];
};

struct reassembly_owner {
	uint64_t number;
	uint32_t held[REASSEMBLY_KINDS];
	LIST_ENTRY(reassembly_owner) same_hash;
	LIST_ENTRY(reassembly_owner) same_held[REASSEMBLY_KINDS];
	// The first has been in its class the longest; a sender with none is in no class.
	TAILQ_HEAD(, reassembly_sender) classes[REASSEMBLY_KINDS][REASSEMBLY_CLASSES];
};

LIST_HEAD(reassembly_owner_list, reassembly_owner);
LIST_HEAD(reassembly_sender_list, reassembly_sender);

struct reassembly_owners {
	struct reassembly_owner_list unused, *by_hash;
	struct reassembly_sender_list unused_senders, *senders_by_hash;
	struct reassembly_owner_list *by_held[REASSEMBLY_KINDS]; // an owner with none is in no list
	uint32_t top[REASSEMBLY_KINDS];                          // no list above this one has an owner
	uint32_t held[REASSEMBLY_KINDS];                         // by all together
};

// `max_senders`: the largest number of senders, and of owners; `most`: the limit of each kind, of all together. 0 or -ENOMEM.
int reassembly_owners_start(
	struct reassembly_owners *owners, unsigned max_senders, const uint32_t most[REASSEMBLY_KINDS]);
// The owner's sender of this number; either may be new. The number is a keyed hash, which an attacker cannot choose. NULL: there are
// too many.
struct reassembly_sender *reassembly_sender(struct reassembly_owners *owners, uint64_t owner, uint64_t number);
// The sender holds this many more. A sender or owner without datagrams is forgotten.
void reassembly_hold(
	struct reassembly_owners *owners, struct reassembly_sender *sender, enum reassembly_held what, int more);
// Of the owner that holds the most, a sender in the highest class but not `but`; NULL: there is none.
struct reassembly_sender *reassembly_largest(
	struct reassembly_owners *owners, enum reassembly_held what, const struct reassembly_sender *but);
