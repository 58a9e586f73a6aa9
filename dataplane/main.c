// SPDX-License-Identifier: Apache-2.0
// The data plane's process.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "core/loop.h"
#include "core/start.h"
#include "port/port.h"
#include "server/api.h"

static void
stop(int fd, uint32_t events, void *argument)
{
	loop_stop();
}

// A core dump would have keys and subscribers' packets. The limit is for dumps to files; the filter is for those to programs, which get no memory then.
static void
refuse_core_dumps(void)
{
	FILE *filter = fopen("/proc/self/coredump_filter", "w");

	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	if (filter) {
		fputs("0", filter);
		fclose(filter);
	}
}

int
main(int count, char **arguments)
{
	struct options o;
	sigset_t signals;
	int error;

	options_parse(&o, count, arguments);
	if (!o.core_dumps)
		refuse_core_dumps();
	setvbuf(stderr, NULL, _IOLBF, 0);
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);

	error = core_start(&o);
	if (!error)
		error = loop_add(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK), EPOLLIN, stop, NULL);
	if (!error)
		error = core_run();
	if (!error)
		error = api_start(o.socket, o.listen, o.certificate, o.key, o.authority, o.client_names);
	// Only now is it certain that no other data plane has the socket.
	if (!error)
		error = core_have_socket();
	if (error) {
		fprintf(stderr, "sluice-dataplane cannot start: %s\n", strerror(-error));
		return 1;
	}
	port_use_socket(o.socket);
	loop_run();
	api_stop();
	port_stop_all();
	core_stop();
	return 0;
}
