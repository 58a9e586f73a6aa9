// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"
)

const secret = "xyzzy5461"

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The exchange of RFC 2865 section 7.1.
const (
	exampleAnswer = "0200002686fe220e7624ba2a1005f6bf9b55e0b20606000000010f06000000000e06c0a80103"
	exampleRandom = "0f403f9473978057bd83d5cb98f4227a"
	examplePass   = "0dbe708d93d413ce3196e43f782a0aee"
)

func TestThePasswordIsHiddenAsInTheExampleOfTheStandard(t *testing.T) {
	hidden := hidePassword([]byte("arctangent"), authenticator(unhex(t, exampleRandom)), []byte(secret))
	if hex.EncodeToString(hidden) != examplePass {
		t.Errorf("%x", hidden)
	}
	for length := range 200 {
		if n := len(hidePassword(make([]byte, length), authenticator{}, []byte(secret))); n%16 != 0 || n < 16 || n > maxPassword {
			t.Errorf("a password of %d octets becomes %d", length, n)
		}
	}
}

func TestTheAnswerOfTheStandardsExampleIsBelievedAndNoOther(t *testing.T) {
	p, err := parse(unhex(t, exampleAnswer))
	if err != nil {
		t.Fatal(err)
	}
	random := authenticator(unhex(t, exampleRandom))
	if err := p.verifyReply(random, []byte(secret), false); err != nil {
		t.Error(err)
	}
	if err := p.verifyReply(random, []byte(secret), true); !errors.Is(err, errNoMessageAuth) {
		t.Error("without Message-Authenticator:", err)
	}
	for at := range p {
		if at == 2 || at == 3 {
			continue
		}
		changed := bytes.Clone(p)
		changed[at] ^= 1
		if q, err := parse(changed); err == nil && q.verifyReply(random, []byte(secret), false) == nil {
			t.Errorf("a change of octet %d is believed", at)
		}
	}
}

func TestARequestBeginsWithItsMessageAuthenticatorAndVerifies(t *testing.T) {
	var a attributes
	a.text(typeUserName, "nemo")
	p, err := parse(accessRequest(AccessRequest, 7, authenticator{1}, []byte(secret), []byte("arctangent"), a))
	if err != nil {
		t.Fatal(err)
	}
	if all := p.attributes(); all[0].kind != typeMessageAuthenticator || all[1].kind != typeUserPassword || string(all[2].value) != "nemo" {
		t.Errorf("%v", all)
	}
	if at, err := p.messageAuthenticator(); err != nil || !p.signed(at, p.authenticator(), []byte(secret)) {
		t.Error("it is not signed")
	}
	p, err = parse(accountingRequest(8, []byte(secret), 5, a))
	if err != nil || p.verifyRequest([]byte(secret), false) != nil || p.verifyRequest([]byte("other"), false) == nil {
		t.Error("the authenticator of an Accounting-Request is wrong", err)
	}
}

func TestAReplySignedWithAMessageAuthenticatorIsBelievedOnlyIfThatIsRight(t *testing.T) {
	request, _ := parse(accessRequest(AccessRequest, 7, authenticator{1}, []byte(secret), nil, nil))
	p, err := parse(reply(AccessAccept, request, []byte(secret), nil))
	if err != nil || p.verifyReply(request.authenticator(), []byte(secret), true) != nil {
		t.Fatal("a good one:", err)
	}
	// A forger with a collision of the Response Authenticator has no Message-Authenticator: here all but that is
	// right.
	p[headLength+2] ^= 1
	sum := p.digest(request.authenticator(), []byte(secret))
	copy(p[4:], sum[:])
	if err := p.verifyReply(request.authenticator(), []byte(secret), true); !errors.Is(err, errMessageAuthenticator) {
		t.Error("a wrong Message-Authenticator:", err)
	}
	twice := append(bytes.Clone(p), p[headLength:]...)
	q, err := parse(packet(twice).withLength())
	if err != nil {
		t.Fatal(err)
	}
	if err := q.verifyReply(request.authenticator(), []byte(secret), true); !errors.Is(err, errMessageAuthenticator) {
		t.Error("two Message-Authenticators:", err)
	}
}

func TestEveryTruncationOfAPacketIsRefused(t *testing.T) {
	whole := unhex(t, exampleAnswer)
	for n := range whole {
		if _, err := parse(whole[:n]); err == nil {
			t.Errorf("%d of %d octets are parsed", n, len(whole))
		}
	}
	for _, wrong := range []string{
		"02000014", exampleAnswer[:4] + "0013" + exampleAnswer[8:], exampleAnswer[:42] + "01" + exampleAnswer[44:], exampleAnswer[:42] + "ff" + exampleAnswer[44:],
	} {
		if _, err := parse(unhex(t, wrong)); err == nil {
			t.Errorf("%s is parsed", wrong)
		}
	}
	if p, err := parse(append(whole, 0, 0, 0)); err != nil || len(p) != len(whole) {
		t.Error("padding is not cut off:", err)
	}
}

func TestAVendorSpecificAttributeThatHoldsSomethingElseStaysWhole(t *testing.T) {
	var a attributes
	a.vendor(vendorCisco, ciscoAVPair, []byte("ip:addr-pool=home"))
	a.add(typeVendorSpecific, []byte{0, 0, 0, 9, 1})
	a.add(typeVendorSpecific, []byte{0, 0, 0, 9, 1, 1, 2})
	a.add(typeVendorSpecific, []byte{0, 0, 0, 9, 1, 3, 'a', 2, 3, 'b'})
	p := packet(append(make([]byte, headLength), a...))
	all := p.attributes()
	want := []attribute{
		{vendorCisco, 1, []byte("ip:addr-pool=home")}, {0, typeVendorSpecific, []byte{0, 0, 0, 9, 1}}, {0, typeVendorSpecific, []byte{0, 0, 0, 9, 1, 1, 2}},
		{9, 1, []byte("a")}, {9, 2, []byte("b")},
	}
	if len(all) != len(want) {
		t.Fatal(all)
	}
	for i := range want {
		if all[i].vendor != want[i].vendor || all[i].kind != want[i].kind || !bytes.Equal(all[i].value, want[i].value) {
			t.Errorf("%d: %v, not %v", i, all[i], want[i])
		}
	}
}

func TestPrefixesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, text := range []string{"2001:db8:1:2::/64", "2001:db8::/33", "2001:db8::1/128"} {
		var a attributes
		prefix := netip.MustParsePrefix(text)
		a.prefix(typeDelegatedIPv6Prefix, prefix)
		if got, err := prefixOf(a[2:]); err != nil || got != prefix {
			t.Errorf("%s becomes %s (%v)", text, got, err)
		}
	}
}

// chapResponse is RFC 1994 section 4.1.
func chapResponse(identifier byte, password, challenge string) [16]byte {
	return md5.Sum([]byte(string([]byte{identifier}) + password + challenge))
}
