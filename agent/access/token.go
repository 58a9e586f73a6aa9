// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// A token is this prefix and 256 random bits: it cannot be guessed, so a hash without salt and stretching is enough.
const tokenPrefix = "sluice_"

var nameShape = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._@-]{0,62}[A-Za-z0-9])?$`)

const nameAccepted = "at most 64 letters, digits and . _ @ -, beginning and ending with a letter or digit"

// NewToken makes a token, and the line for the file of tokens that lets its bearer in.
func NewToken(name string, role Role) (token, line string, err error) {
	if !nameShape.MatchString(name) {
		return "", "", fmt.Errorf("name: found %q; accepted: %s", name, nameAccepted)
	}
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", "", err
	}
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	hash := sha256.Sum256([]byte(token))
	return token, fmt.Sprintf("%s %s sha256:%s", name, role, hex.EncodeToString(hash[:])), nil
}

// Tokens are the accepted tokens.
type Tokens []entry

type entry struct {
	name string
	role Role
	hash [sha256.Size]byte
}

// ParseTokens reads a file of tokens: lines of a name, a role and "sha256:" with a token's hash; "#" begins a
// comment. Valid lines apply, and the error names the invalid ones.
func ParseTokens(text []byte) (Tokens, error) {
	var all Tokens
	var first error
	for i, line := range bytes.Split(text, []byte("\n")) {
		words := strings.Fields(string(line))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		e, err := parseEntry(words)
		if err != nil {
			if first == nil {
				first = fmt.Errorf("line %d: %w", i+1, err)
			}
			continue
		}
		all = append(all, e)
	}
	return all, first
}

func parseEntry(words []string) (entry, error) {
	var e entry
	if len(words) != 3 {
		return e, fmt.Errorf("found %d words; accepted: NAME ROLE sha256:HASH, as `sluice token` writes it", len(words))
	}
	e.name = words[0]
	if !nameShape.MatchString(e.name) {
		return e, fmt.Errorf("name: accepted: %s", nameAccepted)
	}
	var err error
	if e.role, err = ParseRole(words[1]); err != nil {
		return e, err
	}
	text, ok := strings.CutPrefix(words[2], "sha256:")
	hash, err := hex.DecodeString(text)
	if !ok || err != nil || len(hash) != sha256.Size {
		// The error does not repeat the line: it may contain a token in clear text.
		return e, fmt.Errorf("hash: accepted: sha256: and 64 hexadecimal digits, as `sluice token` writes it")
	}
	e.hash = [sha256.Size]byte(hash)
	return e, nil
}

// find takes the same time for every token: it compares with all entries.
func (t Tokens) find(token string) (name string, role Role, found bool) {
	hash := sha256.Sum256([]byte(token))
	for i := range t {
		if subtle.ConstantTimeCompare(hash[:], t[i].hash[:]) == 1 {
			name, role, found = t[i].name, t[i].role, true
		}
	}
	return name, role, found
}
