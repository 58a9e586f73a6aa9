// SPDX-License-Identifier: Apache-2.0
// Asking the kernel over rtnetlink(7), one request at a time, in the thread's network namespace.
#pragma once

#include <linux/rtnetlink.h>
#include <stddef.h>

// The length of the answer in `answer`, 0 if it was an acknowledgement, or a negative errno: the kernel's own refusal, too.
int netlink_request(struct nlmsghdr *request, void *answer, size_t size);
