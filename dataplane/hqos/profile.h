// SPDX-License-Identifier: Apache-2.0
// A QosProfile and a QosGroup, ready for workers. Replaced as a whole when the object changes.
#pragma once

#include "hqos.pb-c.h"
#include "hqos/scheduler.h"
#include "server/object.h"

enum { QOS_PROFILES = 1 << 16, QOS_NAME = 32, QOS_ANY_CLASS = UINT8_MAX };

struct qos_profile {
	struct hqos_profile shape; // first: the scheduler knows this part
	// Classes by number: the scheduler's, whose order is that of priorities. The configured order is in `number_of`.
	uint8_t class_count;
	uint8_t rest; // the first configured class, for packets that match no other
	bool by_acl;
	uint8_t number_of[HQOS_CLASSES];
	uint32_t acl[HQOS_CLASSES];                           // by configured place, or NO_ACL
	uint8_t of_qfi[64], of_dscp[64], of_vlan_priority[8]; // class, or QOS_ANY_CLASS
	// Marks, by class.
	bool marks_dscp;
	int8_t dscp[HQOS_CLASSES]; // less than 0: unchanged
	uint8_t vlan_priority[HQOS_CLASSES];
	uint8_t qfi[HQOS_CLASSES]; // 0: unchanged
	char names[HQOS_CLASSES][QOS_NAME];
	struct object *acls[HQOS_CLASSES]; // main thread's
};

// Parse a spec. 0, or a negative errno with the fault explained. `name` is for the fault.
int qos_profile_parse(const char *name, const Sluice__V1__QosProfile *spec, uint64_t tsc_hz,
	struct qos_profile *profile, struct fault *f);
int qos_group_parse(const char *name, const Sluice__V1__QosGroup *spec, uint64_t tsc_hz,
	struct hqos_group_profile *profile, struct fault *f);
// The port's own rate and overhead.
int qos_scheduler_parse(const char *name, const Sluice__V1__QosScheduler *spec, uint64_t tsc_hz, struct pace *peak,
	int16_t *overhead, struct fault *f);

// One class and no limit but the queue's length.
void qos_profile_open(struct qos_profile *profile);
