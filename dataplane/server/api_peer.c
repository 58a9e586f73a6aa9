// SPDX-License-Identifier: Apache-2.0
// Clients by the names in their certificates.
#include "server/api_peer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <openssl/x509v3.h>

enum { NAMES_SHOWN = 256 };

static const char *accepted;

bool
peer_name_matches(const char *pattern, size_t length, const char *name)
{
	size_t star = length, resume = 0, p = 0,
	       n = 0; // star: where the last * is, and resume: up to where it stands for

	while (name[n]) {
		if (p < length && pattern[p] == '*') {
			star = p++;
			resume = n;
		} else if (p < length && tolower((unsigned char)pattern[p]) == tolower((unsigned char)name[n])) {
			p++;
			n++;
		} else if (star < length) {
			p = star + 1;
			n = ++resume;
		} else {
			return false;
		}
	}
	while (p < length && pattern[p] == '*')
		p++;
	return p == length;
}

static bool
is_accepted(const char *name)
{
	for (const char *pattern = accepted;; pattern++) {
		size_t length = strcspn(pattern, ",");

		if (peer_name_matches(pattern, length, name))
			return true;
		pattern += length;
		if (!*pattern)
			return false;
	}
}

// One name; the log has the part of the certificate. A name with a character that is not printable, such as a zero,
// does not count.
static bool
look_at(const ASN1_STRING *value, char *shown)
{
	unsigned char *name = NULL;
	int length = ASN1_STRING_to_UTF8(&name, value);
	bool plain = length > 0, is;

	for (int i = 0; i < length; i++)
		plain = plain && name[i] >= ' ' && name[i] != 0x7f;
	if (plain && strlen(shown) < NAMES_SHOWN - 4)
		snprintf(shown + strlen(shown), NAMES_SHOWN - strlen(shown), "%s%.100s", shown[0] ? ", " : "",
			(char *)name);
	is = plain && is_accepted((char *)name);
	OPENSSL_free(name);
	return is;
}

static int
verify(int good, X509_STORE_CTX *store)
{
	X509 *certificate = X509_STORE_CTX_get_current_cert(store);
	X509_NAME *subject = X509_get_subject_name(certificate);
	char shown[NAMES_SHOWN] = "";
	GENERAL_NAMES *others;
	bool is = false;

	if (!good || X509_STORE_CTX_get_error_depth(store) > 0)
		return good;
	for (int i = -1; (i = X509_NAME_get_index_by_NID(subject, NID_commonName, i)) >= 0;)
		is |= look_at(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, i)), shown);
	others = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	for (int i = 0; i < sk_GENERAL_NAME_num(others); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(others, i);

		if (name->type == GEN_DNS || name->type == GEN_URI || name->type == GEN_EMAIL)
			is |= look_at(name->d.ia5, shown);
	}
	GENERAL_NAMES_free(others);
	if (is)
		return 1;
	fprintf(stderr, "api: a TLS client was refused: no name of its certificate (%s) is one of --client-names %s\n",
		shown[0] ? shown : "it has none", accepted);
	X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
	return 0;
}

void
peer_accept_names(SSL_CTX *tls, const char *names)
{
	accepted = names;
	if (names)
		SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, verify);
}
