// SPDX-License-Identifier: Apache-2.0
// Sessions on tunnels. A subscriber on a circuit has a tunnel as the core of the session; a remote user's session has
// one as its access. Packets that leave by the first tunnel come in by the second, and back.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ipsec.pb-c.h"
#include "ipsec/sa.h"
#include "ipsec/tunnel.h"
#include "session/all_sessions.h"

enum { ETHER = 14, VLAN = 100, INNER_VLAN = 1, SPI_UP = 5000, SPI_DOWN = 6000, TTL = ETHER + 8 };

static int
put_tunnel(const char *name)
{
	Sluice__V1__IpsecTunnel t = SLUICE__V1__IPSEC_TUNNEL__INIT;

	return put("IpsecTunnel", name, &t);
}

static int
put_sa(const char *name, const char *tunnel, bool outbound, uint32_t spi)
{
	Sluice__V1__SecurityAssociation sa = SLUICE__V1__SECURITY_ASSOCIATION__INIT;

	sa.direction = outbound ? SLUICE__V1__SECURITY_DIRECTION__OUTBOUND : SLUICE__V1__SECURITY_DIRECTION__INBOUND;
	sa.spi = spi;
	sa.local_address = "192.0.2.1";
	sa.remote_address = "192.0.2.2";
	sa.encryption_key = "000102030405060708090a0b0c0d0e0f10111213";
	sa.tunnel = (char *)tunnel;
	return put("SecurityAssociation", name, &sa);
}

// The remote user.
static int
put_user(const char *name, const char *tunnel, const char *address, unsigned mtu)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;

	access.ipsec_tunnel = (char *)tunnel;
	policy.mtu = mtu;
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){(char *)address, "2001:db8:1::/64"};
	session.n_addresses = 2;
	return put("Session", name, &session);
}

// The subscriber on a circuit.
static int
put_line(const char *name, const char *tunnel, uint16_t vlan)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__IpsecCore core = SLUICE__V1__IPSEC_CORE__INIT;

	access.port = "access";
	access.outer_vlan = vlan;
	access.inner_vlan = INNER_VLAN;
	core.tunnel = (char *)tunnel;
	session.access = &access;
	session.ipsec = &core;
	session.core_case = SLUICE__V1__SESSION__CORE_IPSEC;
	session.addresses = (char *[]){"100.64.0.1/32", "2001:db8:1::/64"};
	session.n_addresses = 2;
	return put("Session", name, &session);
}

static int
start_all(void **state)
{
	return all_sessions_start(1) || put_tunnel("line") || put_tunnel("user") || put_tunnel("other");
}

static int
start(void **state)
{
	if (put_sa("up-out", "line", true, SPI_UP) || put_sa("up-in", "user", false, SPI_UP) ||
		put_sa("down-out", "user", true, SPI_DOWN) || put_sa("down-in", "line", false, SPI_DOWN) ||
		put_line("line", "line", VLAN) || put_user("user", "user", "100.64.0.1/32", 0))
		return -1;
	send_up(VLAN, INNER_VLAN, "100.64.0.1"); // its MAC is learned
	return 0;
}

static int
stop(void **state)
{
	static const char *const names[] = {"up-out", "up-in", "down-out", "down-in"};

	delete_session("line");
	delete_session("user");
	for (unsigned i = 0; i < RTE_DIM(names); i++)
		object_delete("SecurityAssociation", names[i], &fault_of_put);
	return 0;
}

static uint32_t
spi_sent(void)
{
	return sent_count == 1 && sent[0].port == port_number("core") && sent[0].bytes[ETHER + 9] == PROTOCOL_ESP
		       ? esp_read_32(sent[0].bytes + ETHER + 20)
		       : 0;
}

// The ESP packet that was sent comes back from the peer.
static void
turn_around(void)
{
	struct sent frame = sent[0];
	uint8_t *ip = frame.bytes + ETHER, swap[4];

	write_core(frame.bytes, 0x0800);
	memcpy(swap, ip + 12, 4);
	memmove(ip + 12, ip + 16, 4);
	memcpy(ip + 16, swap, 4);
	sent_count = 0;
	receive("core", frame.bytes, frame.length);
}

static struct session_totals
totals_of(const char *name)
{
	struct session_totals totals;

	session_totals(session_of(object_find(&session_kind, name)), &totals);
	return totals;
}

static void
a_subscriber_s_packets_go_through_a_tunnel_and_a_remote_user_s_come_out_of_one(void **state)
{
	struct session_totals line = totals_of("line"), user = totals_of("user");
	uint64_t inside = 20 + UDP + PAYLOAD;

	send_up(VLAN, INNER_VLAN, "100.64.0.1");
	assert_int_equal(spi_sent(), SPI_UP);
	turn_around();
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, port_number("core"));
	assert_int_equal(sent[0].length, ETHER + inside);
	assert_int_equal(sent[0].bytes[TTL], 62); // two gateways
	assert_int_equal(totals_of("line").packets[UP], line.packets[UP] + 1);
	assert_int_equal(totals_of("user").packets[UP], user.packets[UP] + 1);
	assert_int_equal(totals_of("user").bytes[UP], user.bytes[UP] + inside);

	send_down("100.64.0.1", PAYLOAD);
	assert_int_equal(spi_sent(), SPI_DOWN);
	turn_around();
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, port_number("access"));
	assert_int_equal(sent[0].length, QINQ + inside);
	assert_int_equal(sent[0].bytes[TTL + 8], 62);
	assert_int_equal(totals_of("user").packets[DOWN], user.packets[DOWN] + 1);
	assert_int_equal(totals_of("line").packets[DOWN], line.packets[DOWN] + 1);
}

static void
a_remote_user_s_source_is_checked(void **state)
{
	uint64_t before = dropped("session-source");

	assert_int_equal(put_user("user", "user", "100.64.0.2/32", 0), 0);
	send_up(VLAN, INNER_VLAN, "100.64.0.1");
	turn_around();
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("session-source"), before + 1);
}

static void
a_packet_out_of_a_core_for_another_address_is_dropped(void **state)
{
	uint64_t before = dropped("ipsec-wrong-destination");

	assert_int_equal(put_user("user", "user", "100.64.0.9/32", 0), 0);
	send_down("100.64.0.9", PAYLOAD);
	assert_int_equal(spi_sent(), SPI_DOWN);
	turn_around();
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("ipsec-wrong-destination"), before + 1);
}

static void
the_ttl_of_a_subscriber_s_packet_runs_out_in_front_of_the_tunnel(void **state)
{
	uint8_t frame[256], *end;
	struct ip4_header ip;

	end = write_packet4(write_access(frame, VLAN, INNER_VLAN, 0x0800), "100.64.0.1", "203.0.113.9", PAYLOAD);
	memcpy(&ip, frame + QINQ, sizeof(ip));
	ip.ttl = 1;
	ip.checksum = 0;
	ip.checksum = ip4_checksum(&ip);
	memcpy(frame + QINQ, &ip, sizeof(ip));
	sent_count = 0;
	receive("access", frame, (size_t)(end - frame));
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, port_number("access"));
	assert_int_equal(sent[0].bytes[QINQ + 20], 11); // time exceeded
	// The other way the error goes to the tunnel.
	end = write_packet4(write_core(frame, 0x0800), "203.0.113.9", "100.64.0.1", PAYLOAD);
	memcpy(&ip, frame + ETHER, sizeof(ip));
	ip.ttl = 2;
	ip.checksum = 0;
	ip.checksum = ip4_checksum(&ip);
	memcpy(frame + ETHER, &ip, sizeof(ip));
	sent_count = 0;
	receive("core", frame, (size_t)(end - frame));
	turn_around();
	assert_int_equal(spi_sent(), SPI_UP);
}

static void
the_mtu_towards_a_remote_user_is_the_tunnel_s(void **state)
{
	const unsigned room = 1446; // AES-GCM over IPv4, of 1,500 bytes

	send_down("100.64.0.1", room - 28);
	assert_int_equal(sent_count, 1);
	send_down("100.64.0.1", room - 27);
	assert_int_equal(sent_count, 2);
	assert_int_equal(put_user("user", "user", "100.64.0.1/32", 1500), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "the IPsec tunnel's 1446"));
}

static void
a_tunnel_serves_one_interface_or_one_session(void **state)
{
	Sluice__V1__Interface i = SLUICE__V1__INTERFACE__INIT;

	i.ipsec_tunnel = "user";
	assert_int_equal(put("Interface", "t", &i), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "Session \"user\""));
	assert_int_equal(put_user("second", "user", "100.64.0.7/32", 0), -EEXIST);
	assert_int_equal(put_line("second", "user", VLAN + 1), -EEXIST);
	assert_int_equal(put_line("second", "line", VLAN + 1), -EEXIST);
	assert_int_equal(object_delete("IpsecTunnel", "user", &fault_of_put), -EBUSY);
	i.ipsec_tunnel = "other";
	assert_int_equal(put("Interface", "t", &i), 0);
	assert_int_equal(put_user("second", "other", "100.64.0.7/32", 0), -EEXIST);
	assert_int_equal(put_line("second", "other", VLAN + 1), -EEXIST);
	assert_int_equal(object_delete("Interface", "t", &fault_of_put), 0);
}

static void
a_session_goes_to_another_tunnel(void **state)
{
	assert_int_equal(put_sa("more-out", "other", true, 7000), 0);
	assert_int_equal(put_line("line", "other", VLAN), 0);
	send_up(VLAN, INNER_VLAN, "100.64.0.1");
	assert_int_equal(spi_sent(), 7000);
	assert_int_equal(put_line("line", "line", VLAN), 0);
	// The same again: its core stays bound.
	assert_int_equal(put_line("line", "line", VLAN), 0);
	send_down("100.64.0.1", PAYLOAD);
	turn_around();
	assert_int_equal(sent[0].port, port_number("access"));
	assert_int_equal(put_user("user", "other", "100.64.0.1/32", 0), 0);
	walk();
	walk();
	send_down("100.64.0.1", PAYLOAD);
	assert_int_equal(spi_sent(), 7000);
	assert_int_equal(put_user("user", "user", "100.64.0.1/32", 0), 0);
	walk();
	walk();
	assert_int_equal(object_delete("SecurityAssociation", "more-out", &fault_of_put), 0);
	assert_int_equal(object_delete("IpsecTunnel", "other", &fault_of_put), 0);
	assert_int_equal(put_tunnel("other"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_subscriber_s_packets_go_through_a_tunnel_and_a_remote_user_s_come_out_of_one, start, stop),
		cmocka_unit_test_setup_teardown(a_remote_user_s_source_is_checked, start, stop),
		cmocka_unit_test_setup_teardown(a_packet_out_of_a_core_for_another_address_is_dropped, start, stop),
		cmocka_unit_test_setup_teardown(
			the_ttl_of_a_subscriber_s_packet_runs_out_in_front_of_the_tunnel, start, stop),
		cmocka_unit_test_setup_teardown(the_mtu_towards_a_remote_user_is_the_tunnel_s, start, stop),
		cmocka_unit_test_setup_teardown(a_tunnel_serves_one_interface_or_one_session, start, stop),
		cmocka_unit_test_setup_teardown(a_session_goes_to_another_tunnel, start, stop),
	};

	return cmocka_run_group_tests(tests, start_all, NULL);
}
