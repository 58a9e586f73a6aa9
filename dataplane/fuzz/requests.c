// SPDX-License-Identifier: Apache-2.0
// libFuzzer over the API: for any bytes of a client, the data plane answers or closes the connection.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/loop.h"
#include "machine.h"
#include "server/api.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static struct sockaddr_un address = {.sun_family = AF_UNIX};
// A client with a valid hello: the bytes behind it reach the operations.
static const uint8_t hello[] = {0, 0, 0, 6, 0x08, 1, 0x12, 2, 0x08, 2};

int
LLVMFuzzerInitialize(int *count, char ***arguments)
{
	int held;

	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/sluice-fuzz-%d.sock", getpid());
	machine_start();
	if (api_start(address.sun_path, NULL, NULL, NULL, NULL, NULL))
		abort();
	// The name goes at once, so that a crash leaves nothing behind; clients come by the descriptor.
	held = open(address.sun_path, O_PATH | O_CLOEXEC);
	if (held < 0 || unlink(address.sun_path))
		abort();
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", held);
	atexit(api_stop);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static uint8_t answer[1 << 16];
	int client;

	if (length < 1 || length > 8192)
		return 0;
	client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (client < 0 || connect(client, (struct sockaddr *)&address, sizeof(address)))
		abort();
	loop_once(0);
	if (bytes[0] & 1 && write(client, hello, sizeof(hello)) < 0)
		abort();
	if (bytes[0] & 2) {
		// A whole frame around the rest.
		size_t rest = length - 1;
		const uint8_t prefix[4] = {0, 0, (uint8_t)(rest >> 8), (uint8_t)rest};

		if (write(client, prefix, sizeof(prefix)) < 0)
			abort();
	}
	if (length > 1 && write(client, bytes + 1, length - 1) < 0)
		abort();
	for (unsigned i = 0; i < 4; i++) {
		loop_once(0);
		while (read(client, answer, sizeof(answer)) > 0)
			;
	}
	close(client);
	loop_once(0);
	return 0;
}
