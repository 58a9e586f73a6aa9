// SPDX-License-Identifier: Apache-2.0
// Which clients a certificate lets in, beyond that an authority signed it: by the names in it (RFC 5280 section 4.2.1.6 and the subject's CN).
#pragma once

#include <stdbool.h>

#include <openssl/ssl.h>

// Whether a name matches a pattern, in which * matches any characters, also none. Case is ignored.
bool peer_name_matches(const char *pattern, size_t length, const char *name);
// Refuse in the handshake a client of which no name matches one of the patterns, between which there are commas; NULL: refuse none for that.
// The list stays where it is.
void peer_accept_names(SSL_CTX *tls, const char *names);
