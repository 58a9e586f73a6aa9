// SPDX-License-Identifier: Apache-2.0
// Tables in which concepts register when the program starts.
#pragma once

// A table is full: says on stderr which one, for what, and which constant to raise, and ends the program. `file` is where the constant is.
_Noreturn void registry_full(
	const char *table, const char *entry, unsigned room, const char *constant, const char *file);
