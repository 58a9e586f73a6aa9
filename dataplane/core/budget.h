// Memory for unpacking a message: a few bytes on the wire cannot ask for all there is.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <protobuf-c/protobuf-c.h>

struct budget {
	size_t left; // bytes
	bool spent;  // something did not fit
};

enum { UNPACKED_MOST = 16 }; // bytes in memory for each byte on the wire, and some beside

static inline void *
budget_take(void *data, size_t size)
{
	struct budget *b = data;
	size_t cost = size + 16;

	if (cost > b->left) {
		b->spent = true;
		return NULL;
	}
	b->left -= cost;
	return malloc(size);
}

static inline void
budget_give(void *data, void *memory)
{
	free(memory);
}

// What is unpacked with it may be freed without an allocator.
static inline ProtobufCAllocator
budget_allocator(struct budget *budget)
{
	return (ProtobufCAllocator){budget_take, budget_give, budget};
}

static inline size_t
budget_for(size_t length, size_t beside)
{
	return UNPACKED_MOST * length + beside;
}
