// SPDX-License-Identifier: Apache-2.0

package aka

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
)

func octets(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func key(t testing.TB, text string) [16]byte { t.Helper(); return [16]byte(octets(t, text)) }

func TestMilenageHasTheOutputsOfTheTestSets(t *testing.T) {
	// TS 35.207 sections 4 to 6: K, RAND, SQN, AMF, OP; OPc, f1, f1*, f2, f3, f4, f5, f5*.
	for _, set := range [][]string{
		{"465b5ce8b199b49faa5f0a2ee238a6bc", "23553cbe9637a89d218ae64dae47bf35", "ff9bb4d0b607", "b9b9", "cdc202d5123e20f62b6d676ac72cb318", "cd63cb71954a9f4e48a5994e37a02baf", "4a9ffac354dfafb3", "01cfaf9ec4e871e9", "a54211d5e3ba50bf", "b40ba9a3c58b2a05bbf0d987b21bf8cb", "f769bcd751044604127672711c6d3441", "aa689c648370", "451e8beca43b"},
		{"0396eb317b6d1c36f19c1c84cd6ffd16", "c00d603103dcee52c4478119494202e8", "fd8eef40df7d", "af17", "ff53bade17df5d4e793073ce9d7579fa", "53c15671c60a4b731c55b4a441c0bde2", "5df5b31807e258b0", "a8c016e51ef4a343", "d3a628ed988620f0", "58c433ff7a7082acd424220f2b67c556", "21a8c1f929702adb3e738488b9f5c5da", "c47783995f72", "30f1197061c1"},
		{"fec86ba6eb707ed08905757b1bb44b8f", "9f7c8d021accf4db213ccff0c7f71a6a", "9d0277595ffc", "725c", "dbc59adcb6f9a0ef735477b7fadf8374", "1006020f0a478bf6b699f15c062e42b3", "9cabc3e99baf7281", "95814ba2b3044324", "8011c48c0c214ed2", "5dbdbb2954e8f3cde665b046179a5098", "59a92d3b476a0443487055cf88b2307b", "33484dc2136b", "deacdd848cc6"},
		{"9e5944aea94b81165c82fbf9f32db751", "ce83dbc54ac0274a157c17f80d017bd6", "0b604a81eca8", "9e09", "223014c5806694c007ca1eeef57f004f", "a64a507ae1a2a98bb88eb4210135dc87", "74a58220cba84c49", "ac2cc74a96871837", "f365cd683cd92e96", "e203edb3971574f5a94b0d61b816345d", "0c4524adeac041c4dd830d20854fc46b", "f0b9c08ad02e", "6085a86c6f63"},
		{"4ab1deb05ca6ceb051fc98e77d026a84", "74b0cd6031a1c8339b2b6ce2b8c4a186", "e880a1b580b6", "9f07", "2d16c5cd1fdf6b22383584e3bef2a8d8", "dcf07cbd51855290b92a07a9891e523e", "49e785dd12626ef2", "9e85790336bb3fa2", "5860fc1bce351e7e", "7657766b373d1c2138f307e3de9242f9", "1c42e960d89b8fa99f2744e0708ccb53", "31e11a609118", "fe2555e54aa9"},
		{"6c38a116ac280c454f59332ee35c8c4f", "ee6466bc96202c5a557abbeff8babf63", "414b98222181", "4464", "1ba00a1a7c6700ac8c3ff3e96ad08725", "3803ef5363b947c6aaa225e58fae3934", "078adfb488241a57", "80246b8d0186bcf1", "16c8233f05a0ac28", "3f8c7587fe8e4b233af676aede30ba3b", "a7466cc1e6b2a1337d49d3b66e95d7b4", "45b0f69ab06c", "1f53cd2b1113"},
	} {
		k, rand, op := key(t, set[0]), key(t, set[1]), key(t, set[4])
		sqn, amf := [6]byte(octets(t, set[2])), [2]byte(octets(t, set[3]))
		m := NewMilenage(k, OPc(k, op))
		a, s := m.F1(rand, sqn, amf)
		res, ck, ik, ak := m.F2345(rand)
		star := m.F5Star(rand)
		for i, value := range [][]byte{m.opc[:], a[:], s[:], res[:], ck[:], ik[:], ak[:], star[:]} {
			if expected := set[5+i]; hex.EncodeToString(value) != expected {
				t.Errorf("K %s, output %d: %x, not %s", set[0], i, value, expected)
			}
		}
	}
}

const network = "5G:mnc001.mcc001.3gppnetwork.org"

func TestAnAnswerOf5GAKAIsThatOfAKnownSubscriber(t *testing.T) {
	k, rand := key(t, "00112233445566778899aabbccddeeff"), key(t, "00112233445566778899aabbccddeeff")
	u := &USIM{Milenage: NewMilenage(k, key(t, "62e75b8d6fa5bf46ec87a9276f9df54d"))}
	r, _, err := u.Authenticate(rand, key(t, "de656c8b0bcf80004af30b82a8531115"), true)
	if err != nil {
		t.Fatal(err)
	}
	star := ResStar(r.CK, r.IK, network, rand, r.RES)
	hash := HResStar(rand, star)
	if hex.EncodeToString(star[:]) != "31b6d938a5290ccc65bc829f9820a8d9" || hex.EncodeToString(hash[:]) != "3308fb7cf06a35f1cd086b904ce82ecf" {
		t.Errorf("RES* %x, HRES* %x", star, hash)
	}
}

func TestKeysOf5GAKAAreThoseOfAKnownHierarchy(t *testing.T) {
	kausf := KAUSF(key(t, "0102030405060708090a0b0c0d0e0f00"), key(t, "02030405060708090a0b0c0d0e0f0001"), network, [6]byte{3, 4, 5, 6, 7, 8 ^ 0xff})
	kseaf := KSEAF(kausf, network)
	kamf := KAMF(kseaf, "001010123456789", []byte{0, 0})
	for i, value := range [][]byte{kausf[:], kseaf[:], kamf[:]} {
		expected := []string{"20de4eb2b75c8dac301ad52773e2e37bd7b4b0c2fdb1c3751b98dd0df846aed5", "d2bbc63b0c141247341c0fca3dc3bffdc6bfc1813489342de8487e7e4dc3728b",
			"7e9f97707cef48318df182a7f9e7ba838a6fb36ab83a7d1baf2610b97a5b9dcf"}[i]
		if hex.EncodeToString(value) != expected {
			t.Errorf("key %d: %x, not %s", i, value, expected)
		}
	}
}

func TestASequenceNumberIsAcceptedOnce(t *testing.T) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	autn := func(number uint64, amf [2]byte) (rand, autn [16]byte) {
		rand[0] = byte(number)
		sqn := Sequence(number)
		_, _, _, ak := u.F2345(rand)
		mac, _ := u.F1(rand, sqn, amf)
		for i := range sqn {
			autn[i] = sqn[i] ^ ak[i]
		}
		copy(autn[6:], amf[:])
		copy(autn[8:], mac[:])
		return rand, autn
	}
	separated := [2]byte{0x80}
	for _, c := range []struct {
		number uint64
		amf    [2]byte
		err    error
	}{{64, separated, nil}, {64, separated, ErrSynch}, {33, separated, nil}, {96, separated, nil}, {95, [2]byte{}, ErrSeparation}} {
		rand, a := autn(c.number, c.amf)
		_, auts, err := u.Authenticate(rand, a, true)
		if !errors.Is(err, c.err) {
			t.Errorf("%d: %v, not %v", c.number, err, c.err)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, ErrSynch) {
			ak := u.F5Star(rand)
			var sqn [6]byte
			for i := range sqn {
				sqn[i] = auts[i] ^ ak[i]
			}
			_, mac := u.F1(rand, sqn, [2]byte{})
			if numberOf(sqn) != u.Greatest() || !bytes.Equal(mac[:], auts[6:]) {
				t.Errorf("AUTS %x", auts)
			}
		}
	}
	rand, a := autn(200, separated)
	a[15] ^= 1
	if _, _, err := u.Authenticate(rand, a, true); !errors.Is(err, ErrMAC) {
		t.Error(err)
	}
}

func TestKeysOfEAPAKAPrimeAreThoseOfTheRFC(t *testing.T) {
	// RFC 9048 appendix D, cases 1 and 2.
	ck, ik := key(t, "5349fbe098649f948f5d2e973a81c00f"), key(t, "9744871ad32bf9bbd1dd5ce54e3e2e5a")
	sqnAK := [6]byte(octets(t, "bb52e91c747a"))
	for _, c := range [][]string{
		{"WLAN", "0093962d0dd84aa5684b045c9edffa04", "ccfc230ca74fcc96c0a5d61164f5a76c", "766fa0a6c317174b812d52fbcd11a179",
			"0842ea722ff6835bfa2032499fc3ec23c2f0e388b4f07543ffc677f1696d71ea", "cf83aa8bc7e0aced892acc98e76a9b2095b558c7795c7094715cb3393aa7d17a",
			"67c42d9aa56c1b79e295e3459fc3d187d42be0bf818d3070e362c5e967a4d544e8ecfe19358ab3039aff03b7c930588c055babee58a02650b067ec4e9347c75a",
			"f861703cd775590e16c7679ea3874ada866311de290764d760cf76df647ea01c313f69924bdd7650ca9bac141ea075c4ef9e8029c0e290cdbad5638b63bc23fb"},
		{"HRPD", "3820f0277fa5f77732b1fb1d90c1a0da", "db94a0ab557ef6c9ab48619ca05b9a9f", "05ad73ac915fce89ac77e1520d82187b",
			"5b4acaef62c6ebb8882b2f3d534c4b35277337a00184f20ff25d224c04be2afd", "3f90bf5c6e5ef325ff04eb5ef6539fa8cca8398194fbd00be425b3f40dba10ac",
			"87b321570117cd6c95ab6c436fb5073ff15cf85505d2bc5bb7355fc21ea8a75757e8f86a2b138002e05752913bb43b82f868a96117e91a2d95f526677d572900", ""},
	} {
		ckPrime, ikPrime := Prime(ck, ik, c[0], sqnAK)
		k := PrimeKeys(ckPrime, ikPrime, "0555444333222111")
		for i, value := range [][]byte{ckPrime[:], ikPrime[:], k.Encr[:], k.Aut[:], k.Re[:], k.MSK[:], k.EMSK[:]} {
			if c[1+i] != "" && hex.EncodeToString(value) != c[1+i] {
				t.Errorf("%s, key %d: %x, not %s", c[0], i, value, c[1+i])
			}
		}
	}
}

// server makes a challenge as a network does.
func server(u *USIM, identity string, number uint64, functions ...uint16) (packet []byte, keys Keys) {
	rand := [16]byte{9, byte(number)}
	sqn := Sequence(number)
	_, ck, ik, ak := u.F2345(rand)
	mac, _ := u.F1(rand, sqn, [2]byte{0x80})
	autn := append([]byte{0, 0}, sqn[:]...)
	for i := range ak {
		autn[2+i] ^= ak[i]
	}
	autn = append(append(autn, 0x80, 0), mac[:]...)
	ckPrime, ikPrime := Prime(ck, ik, network, [6]byte(autn[2:]))
	keys = PrimeKeys(ckPrime, ikPrime, identity)
	all := []attribute{{atRAND, append([]byte{0, 0}, rand[:]...)}, {atAUTN, autn}}
	for _, f := range functions {
		all = append(all, attribute{atKDF, binary.BigEndian.AppendUint16(nil, f)})
	}
	all = append(all, attribute{atKDFInput, append([]byte{0, byte(len(network))}, network...)}, attribute{atBidding, []byte{0x80, 0}}, attribute{atMAC, make([]byte, 18)})
	packet = message(7, subtypeChallenge, all...)
	packet[0] = eapRequest
	copy(packet[len(packet)-16:], macOf(&keys, packet))
	return packet, keys
}

func TestAPeerAnswersAChallengeAndHasTheKeysOfTheServer(t *testing.T) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	p := NewPeer(u, "001010000000001", network)
	packet, keys := server(u, "001010000000001", 100, 1)
	answer, err := p.Receive(packet)
	if err != nil || answer[5] != subtypeChallenge {
		t.Fatal(err, answer)
	}
	zeroed := bytes.Clone(answer)
	clear(zeroed[len(zeroed)-16:])
	if !bytes.Equal(macOf(&keys, zeroed), answer[len(answer)-16:]) {
		t.Error("the answer has another MAC")
	}
	if _, err := p.Receive([]byte{eapSuccess, 7, 0, 4}); err != nil {
		t.Error(err)
	}
	if kausf, done := p.KAUSF(); !done || !bytes.Equal(kausf[:], keys.EMSK[:32]) {
		t.Errorf("%x %v", kausf, done)
	}
	// The same challenge again is a replay.
	if answer, err := NewPeer(u, "001010000000001", network).Receive(packet); err != nil || answer[5] != subtypeSynch {
		t.Error(answer, err)
	}
}

func TestAPeerChoosesItsKeyDerivationFunctionOnce(t *testing.T) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	p := NewPeer(u, "id", network)
	packet, _ := server(u, "id", 100, 2, 1)
	answer, err := p.Receive(packet)
	if err != nil || answer[5] != subtypeChallenge || len(answer) != 12 || answer[11] != 1 {
		t.Fatal(answer, err)
	}
	packet, _ = server(u, "id", 101, 1, 2, 1)
	if answer, err := p.Receive(packet); err != nil || answer[5] != subtypeChallenge || len(answer) < 40 {
		t.Error(answer, err)
	}
	p = NewPeer(u, "id", network)
	if answer, err := p.Receive(packet[:len(packet)-1]); err == nil {
		t.Error(answer)
	}
	packet, _ = server(u, "id", 102, 3, 2)
	if answer, err := p.Receive(packet); err == nil || answer[5] != subtypeReject {
		t.Error(answer, err)
	}
	// RFC 9048 section 3.2: a repeated one in the first list, a list that is not the first one with our choice before it, and an unsolicited one.
	for i, lists := range [][][]uint16{{{1, 1}}, {{1, 2, 1}}, {{2, 1, 2}}, {{2, 1}, {1, 2}}, {{2, 1}, {2, 1}}, {{2, 1}, {1, 2, 1, 3}}, {{1, 2}, {1}}, {{1}, {1, 1}}} {
		p = NewPeer(u, "id", network)
		for j, list := range lists {
			packet, _ = server(u, "id", uint64(200+40*i+j), list...)
			answer, err := p.Receive(packet)
			if last := j == len(lists)-1; (err != nil) != last || last && answer[5] != subtypeClientError {
				t.Errorf("%v, list %d: %v %v", lists, j, answer, err)
			}
		}
	}
}

func TestANotificationHasAMACAfterTheChallengeAlone(t *testing.T) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	packet, keys := server(u, "id", 100, 1)
	notification := func(code uint16, mac bool) []byte {
		all := []attribute{{atNotify, binary.BigEndian.AppendUint16(nil, code)}}
		if mac {
			all = append(all, attribute{atMAC, make([]byte, 18)})
		}
		b := message(9, subtypeNotification, all...)
		b[0] = eapRequest
		if mac {
			copy(b[len(b)-16:], macOf(&keys, b))
		}
		return b
	}
	const before, after = 0x4000, 0
	for _, c := range []struct {
		challenged bool
		packet     []byte
		subtype    byte
	}{
		{false, notification(before, false), subtypeNotification},
		{false, notification(before, true), subtypeClientError},
		{false, notification(after, true), subtypeClientError},
		{false, notification(after, false), subtypeClientError},
		{true, notification(after, true), subtypeNotification},
		{true, notification(after, false), subtypeClientError},
		{true, notification(before, false), subtypeClientError},
		{true, append(notification(after, true)[:31], 0), subtypeClientError},
		{true, func() []byte { b := message(9, subtypeNotification); b[0] = eapRequest; return b }(), subtypeClientError},
	} {
		p := NewPeer(&USIM{Milenage: u.Milenage}, "id", network)
		if c.challenged {
			if _, err := p.Receive(packet); err != nil {
				t.Fatal(err)
			}
		}
		answer, err := p.Receive(c.packet)
		if len(answer) < 8 || answer[5] != c.subtype || (err == nil) != (c.subtype == subtypeNotification) {
			t.Errorf("challenged %v, %x: %x %v", c.challenged, c.packet, answer, err)
			continue
		}
		if c.challenged && err == nil {
			zeroed := bytes.Clone(answer)
			clear(zeroed[len(zeroed)-16:])
			if !bytes.Equal(macOf(&keys, zeroed), answer[len(answer)-16:]) {
				t.Error("the answer has another MAC")
			}
		} else if err == nil && len(answer) != 8 {
			t.Errorf("%x", answer)
		}
	}
}

func TestARepeatedAttributeIsRefused(t *testing.T) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	packet, _ := server(u, "id", 100, 1)
	packet = append(packet, packet[len(packet)-20:]...)
	binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)))
	if answer, err := NewPeer(u, "id", network).Receive(packet); !errors.Is(err, ErrEAP) || answer[5] != subtypeClientError {
		t.Error(answer, err)
	}
}

func TestAPeerRefusesAnotherNetworkAndAFalseMAC(t *testing.T) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	packet, _ := server(u, "id", 100, 1)
	if answer, err := NewPeer(u, "id", "5G:other").Receive(packet); err == nil || answer[5] != subtypeReject {
		t.Error(answer, err)
	}
	packet[len(packet)-1] ^= 1
	p := NewPeer(u, "id", network)
	if answer, err := p.Receive(packet); err == nil || answer[5] != subtypeClientError {
		t.Error(answer, err)
	}
	// Success before a challenge means nothing.
	if _, err := p.Receive([]byte{eapSuccess, 7, 0, 4}); err == nil {
		t.Error("success without a challenge")
	}
}

func FuzzPeer(f *testing.F) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	packet, _ := server(u, "id", 100, 1)
	f.Add(packet)
	f.Fuzz(func(t *testing.T, packet []byte) {
		p := NewPeer(&USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}, "id", network)
		_, _ = p.Receive(packet)
		_, _ = p.Receive(packet)
	})
}

func TestTruncatedAndFlippedChallengesAreRefusedOrAnswered(t *testing.T) {
	u := &USIM{Milenage: NewMilenage([16]byte{1}, [16]byte{2})}
	packet, _ := server(u, "id", 100, 1)
	for length := range packet {
		if answer, err := NewPeer(u, "id", network).Receive(packet[:length]); err == nil {
			t.Errorf("%d octets: %x", length, answer)
		}
	}
	for bit := range 8 * len(packet) {
		flipped := bytes.Clone(packet)
		flipped[bit/8] ^= 1 << (bit % 8)
		fresh := &USIM{Milenage: u.Milenage}
		p := NewPeer(fresh, "id", network)
		_, err := p.Receive(flipped)
		if _, done := p.KAUSF(); done || err == nil && p.keys != nil && bit/8 != 1 && bit/8 != 6 && bit/8 != 7 {
			t.Errorf("bit %d", bit)
		}
	}
}
