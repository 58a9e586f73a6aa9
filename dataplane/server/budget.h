// SPDX-License-Identifier: Apache-2.0
// Memory for unpacking a message: a few bytes on the wire cannot use up all memory.
//
// Short-lived pieces come from scratch memory, one behind the other: a session has a dozen pieces, and malloc()
// and free() for each of them would cost more than their use.
#pragma once

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <protobuf-c/protobuf-c.h>

struct scratch {
	uint8_t *bytes; // aligned as malloc() does it
	size_t size, used;
};

struct budget {
	size_t left;             // bytes
	bool spent;              // something did not fit
	struct scratch *scratch; // NULL: all is of malloc()
	bool beside;             // some is of malloc()
};

enum {
	UNPACKED_MAX = 16,         // bytes in memory for each byte on the wire, and some beside
	UNPACKED_LARGE = 64 << 10, // so many bytes in one piece are always of malloc()
};

// Under an address sanitizer each piece is of malloc(), so that it can watch over it.
#if defined(__SANITIZE_ADDRESS__)
#define BUDGET_SANITIZED true
#elif defined(__has_feature)
#define BUDGET_SANITIZED __has_feature(address_sanitizer)
#else
#define BUDGET_SANITIZED false
#endif

static inline void *
budget_take(void *data, size_t size)
{
	struct budget *b = data;
	struct scratch *s = b->scratch;
	size_t cost = size + 16;

	if (cost > b->left) {
		b->spent = true;
		return NULL;
	}
	b->left -= cost;
	if (!BUDGET_SANITIZED && s && size < UNPACKED_LARGE && size + 15 < s->size - s->used) {
		void *memory = s->bytes + s->used;

		s->used += (size + 15) & ~(size_t)15;
		return memory;
	}
	b->beside = true;
	return malloc(size);
}

static inline void
budget_give(void *data, void *memory)
{
	const struct scratch *s = ((struct budget *)data)->scratch;

	if (!memory || (s && (uintptr_t)memory - (uintptr_t)s->bytes < s->size))
		return;
	explicit_bzero(memory, malloc_usable_size(memory)); // a key, perhaps
	free(memory);
}

// A message that is unpacked with it, and without scratch memory, may be freed without an allocator.
static inline ProtobufCAllocator
budget_allocator(struct budget *budget)
{
	return (ProtobufCAllocator){budget_take, budget_give, budget};
}

static inline void
budget_free(struct budget *budget, ProtobufCMessage *message)
{
	ProtobufCAllocator memory = budget_allocator(budget);

	if (message && budget->beside)
		protobuf_c_message_free_unpacked(message, &memory);
}

// Bytes of an unpacked message that outlive it, to be freed by free(). NULL: no memory.
static inline uint8_t *
budget_keep(ProtobufCBinaryData *data)
{
	uint8_t *kept = data->data;

	if (data->len < UNPACKED_LARGE) {
		kept = malloc(data->len + 1);
		if (kept && data->len > 0)
			memcpy(kept, data->data, data->len);
	} else {
		*data = (ProtobufCBinaryData){0};
	}
	return kept;
}

static inline size_t
budget_for(size_t length, size_t beside)
{
	return UNPACKED_MAX * length + beside;
}
