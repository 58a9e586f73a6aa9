// SPDX-License-Identifier: Apache-2.0
// Checks, before any other code of the program and its libraries, whether this CPU has the features that the program
// is compiled for. Without the check it would end at the first missing instruction, without a message.
#include <string.h>
#include <unistd.h>

#include "cpu/cpu.h"

static void
say(const char *text)
{
	// Whether it can be read or not, it ends here.
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(1);
}

static void
refuse_cpu(int count, char **arguments, char **environment)
{
	const char *lacking = cpu_lacks(cpu_needs);

	if (!lacking)
		return;
	say(count > 0 ? arguments[0] : "sluice-dataplane");
	say(": it is built for ");
	say(strcmp(cpu_built_for, "native") ? cpu_built_for : "the machine that built it");
	say(", and this CPU has no ");
	say(lacking);
	say("\n");
	_exit(1);
}

// System V ABI, "Initialization and Termination Functions": runs before all others.
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = refuse_cpu;
