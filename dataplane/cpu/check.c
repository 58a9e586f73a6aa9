// Before anything else of a program runs, even what its libraries do when they are loaded: does this CPU have what the program is
// compiled for? Else it would end at the first instruction that there is not, and nobody would know why.
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

// System V ABI, "Initialization and Termination Functions": what comes before all others.
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = refuse_cpu;
