// SPDX-License-Identifier: Apache-2.0
// libFuzzer over access keys of sessions: a few sessions come, change their access keys, and go, in any order and
// with frames between. After any refusal, every session is found by its own key, and nothing leads to a deleted
// one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/loop.h"
#include "machine.h"
#include "session.pb-c.h"
#include "session/record.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { SESSIONS = 5, WAYS = 3 };

static const uint16_t outers[WAYS] = {0, 400, 401}, inners[WAYS] = {0, 1, 2}, ids[WAYS] = {0, 5, 6};
static const char *const macs[WAYS] = {"", "02:01:00:00:00:0a", "02:01:00:00:00:0b"};
static const char *const names[SESSIONS] = {"a", "b", "c", "d", "e"};

// Accepted sessions; `there`: not deleted.
static struct {
	struct session_key key;
	bool there;
} known[SESSIONS];

static struct session_key
key_of(unsigned choice)
{
	struct session_key key = {0};
	const char *mac = macs[choice / 27 % WAYS];

	key.circuit.port = port_of(object_find(&port_kind, "access"))->id;
	key.circuit.outer_vlan = outers[choice / 1 % WAYS];
	key.circuit.inner_vlan = key.circuit.outer_vlan ? inners[choice / 3 % WAYS] : 0;
	key.own[0] = ids[choice / 9 % WAYS];
	key.access = session_access_named(key.own[0] ? "PPPoE" : "IPoE");
	key.has_mac = mac[0] != '\0';
	if (key.has_mac)
		rte_ether_unformat_addr(mac, &key.mac);
	key.pdu_session = (uint8_t)(choice / 81 % WAYS);
	return key;
}

static void
put(unsigned n, const struct session_key *key, bool frames)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;
	char mac[RTE_ETHER_ADDR_FMT_SIZE] = "", address[32];
	uint8_t packed[1024];
	struct fault f;

	if (key->has_mac)
		rte_ether_format_addr(mac, sizeof(mac), &key->mac);
	access.port = "access";
	access.outer_vlan = key->circuit.outer_vlan;
	access.inner_vlan = key->circuit.inner_vlan;
	access.pppoe_session_id = (uint32_t)key->own[0];
	access.pdu_session_id = key->pdu_session;
	access.mac = mac;
	snprintf(address, sizeof(address), "100.65.0.%u/32", n + 1);
	session.access = &access;
	session.addresses = (char *[]){address};
	session.n_addresses = !frames;
	if (frames || key->pdu_session) {
		gtpu.local_address = "192.0.2.1";
		gtpu.remote_address = "192.0.2.2";
		gtpu.local_teid = 100 + n;
		gtpu.remote_teid = 200 + n;
		gtpu.ethernet = frames;
		session.gtpu = &gtpu;
		session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	}
	if (object_put("Session", names[n], packed, protobuf_c_message_pack(&session.base, packed), &f) == 0) {
		known[n].key = *key;
		known[n].there = true;
	}
}

static void delete (unsigned n)
{
	struct fault f;

	if (known[n].there && object_delete("Session", names[n], &f))
		abort();
	known[n].there = false;
}

static uint32_t
leads_to(const struct session_key *key)
{
	return key->access->find(key);
}

// By the key, or behind the session that has it already.
static bool
finds(const struct session_key *key, uint32_t session)
{
	uint32_t index = leads_to(key);

	for (unsigned i = 0; index != NO_SESSION && i <= PDU_SESSION_MAX; i++, index = session_details[index].sibling)
		if (index == session)
			return true;
	return false;
}

static void
check(void)
{
	for (unsigned n = 0; n < SESSIONS; n++) {
		const struct object *object = object_find(&session_kind, names[n]);

		if ((object != NULL) != known[n].there)
			abort();
		if (object && !finds(&known[n].key, session_of(object)))
			abort();
		if (object && (session_details[session_of(object)].moving ||
				      memcmp(&session_details[session_of(object)].key, &known[n].key,
					      sizeof(known[n].key)) != 0))
			abort();
	}
	for (unsigned choice = 0; choice < 81; choice++) {
		const struct session_key key = key_of(choice);
		uint32_t index = leads_to(&key);

		for (unsigned i = 0; index != NO_SESSION; i++, index = session_details[index].sibling)
			if (i > PDU_SESSION_MAX || !session_object(index) ||
				!session_same_access(&session_details[index].key, &key))
				abort();
	}
}

// An IPv4 packet of the session's, by the key that it has or would have.
static void
send(const struct session_key *key, unsigned n)
{
	static const uint8_t ip[] = {
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 100, 65, 0, 0, 8, 8, 8, 8, 0, 7, 0, 7, 0, 8, 0, 0};
	uint8_t frame[64] = {2, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0xa}, *at = frame + 12;
	const uint16_t tags[] = {key->circuit.outer_vlan, key->circuit.inner_vlan};

	if (key->has_mac)
		memcpy(frame + 6, &key->mac, sizeof(key->mac));
	for (unsigned i = 0; i < 2 && tags[i]; i++) {
		const uint8_t tag[] = {0x81, 0, (uint8_t)(tags[i] >> 8), (uint8_t)tags[i]};

		memcpy(at, tag, sizeof(tag));
		at += sizeof(tag);
	}
	if (key->own[0] != 0) {
		const uint8_t pppoe[] = {0x88, 0x64, 0x11, 0, 0, (uint8_t)key->own[0], 0, sizeof(ip) + 2, 0, 0x21};

		memcpy(at, pppoe, sizeof(pppoe));
		at += sizeof(pppoe);
	} else {
		at[0] = 8;
		at[1] = 0;
		at += 2;
	}
	memcpy(at, ip, sizeof(ip));
	at[15] = (uint8_t)(n + 1);
	machine_frame(ACCESS, frame, (size_t)(at - frame) + sizeof(ip), 0);
}

int
LLVMFuzzerInitialize(int *count, char ***arguments)
{
	machine_start();
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	enum { DELETE = 5, TURN = 6, FRAME = 7 };

	for (size_t at = 0; at + 2 < length && at < 3 * 64; at += 3) {
		unsigned n = bytes[at] % SESSIONS, what = bytes[at] / SESSIONS % 8, choice = bytes[at + 1];
		const struct session_key key = key_of(choice);

		if (what == DELETE)
			delete (n);
		else if (what == TURN)
			loop_once(0);
		else if (what == FRAME)
			send(bytes[at + 2] & 1 ? &key : &known[n].key, n);
		else
			put(n, &key, bytes[at + 2] == 1);
		if (what == TURN) {
			loop_once(0);
			check();
		}
	}
	loop_once(0);
	loop_once(0);
	check();
	for (unsigned n = 0; n < SESSIONS; n++)
		delete (n);
	check();
	loop_once(0);
	return 0;
}
