// SPDX-License-Identifier: Apache-2.0
// Putting an object whose spec takes long to make ready: that part is done beside the main thread.
#pragma once

#include "server/object.h"

// A put that is under way.
struct object_build;

// As object_put(); or, with `*build` set, it is not done yet: `done` will be called with 0 or a negative errno. The spec was unpacked
// with a budget, and may be empty afterwards.
int object_put_or_build(const char *kind, const char *name, ProtobufCBinaryData *spec,
	void (*done)(void *argument, int error, const struct fault *f), void *argument, struct object_build **build,
	struct fault *f);
// Abandon the build: the object stays as it is, and `done` is not called.
void object_build_abandon(struct object_build *build);
// Whether a change of this object must wait for the build: it is the same object, or its packed spec may name it. An object that is
// built refers to no others.
bool object_build_concerns(
	const struct object_build *build, const char *kind, const char *name, const uint8_t *spec, size_t length);
