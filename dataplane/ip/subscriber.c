// SPDX-License-Identifier: Apache-2.0
#include "ip/subscriber.h"

const struct subscribers *subscribers;
