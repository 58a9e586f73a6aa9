// SPDX-License-Identifier: Apache-2.0

// Package suite is the algorithms of IKEv2: names and proposals, the choice between them (RFC 7296 section 2.7), keys (sections 2.13 to
// 2.18), the protection of messages (section 3.14, RFC 5282, RFC 7634), and key exchanges (RFC 7296, RFC 5903, RFC 8031, RFC 9370 with
// ML-KEM).
//
// SM algorithms have no numbers of IANA. Those here are of the range for private use.
package suite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/ike/message"
)

// Encryption algorithms.
const (
	NULL             uint16 = 11
	AESCBC           uint16 = 12
	AESCTR           uint16 = 13
	AESGCM8          uint16 = 18
	AESGCM12         uint16 = 19
	AESGCM16         uint16 = 20
	AESGMAC          uint16 = 21
	ChaCha20Poly1305 uint16 = 28
	SM4CBC           uint16 = 1127
	SM4GCM16         uint16 = 1128
	SM4CCM16         uint16 = 1129
)

// Pseudorandom functions.
const (
	PRFSHA1   uint16 = 2
	PRFSHA256 uint16 = 5
	PRFSHA384 uint16 = 6
	PRFSHA512 uint16 = 7
	PRFSM3    uint16 = 1127
)

// Integrity algorithms.
const (
	SHA1   uint16 = 2
	SHA256 uint16 = 12
	SHA384 uint16 = 13
	SHA512 uint16 = 14
	SM3    uint16 = 1127
)

// Key exchange methods. 0 is none.
const (
	MODP2048 uint16 = 14
	MODP3072 uint16 = 15
	MODP4096 uint16 = 16
	MODP6144 uint16 = 17
	MODP8192 uint16 = 18
	ECP256   uint16 = 19
	ECP384   uint16 = 20
	ECP521   uint16 = 21
	X25519   uint16 = 31
	X448     uint16 = 32
	MLKEM768 uint16 = 36
	SM2      uint16 = 1127
)

// algorithm is a word of a proposal.
type algorithm struct {
	word string
	message.Transform
	// Only of ESP.
	esp bool
	// Of an integrity algorithm: the pseudorandom function that goes with it.
	prf uint16
}

func encryption(word string, id, length uint16) algorithm {
	return algorithm{word: word, Transform: message.Transform{Type: message.Encryption, ID: id, KeyLength: length}}
}

func forESP(a algorithm) algorithm {
	a.esp = true
	return a
}

func integrity(word string, id, prf uint16) algorithm {
	return algorithm{word: word, Transform: message.Transform{Type: message.Integrity, ID: id}, prf: prf}
}

func group(word string, id uint16) algorithm {
	return algorithm{word: word, Transform: message.Transform{Type: message.KeyExchange, ID: id}}
}

func function(word string, id uint16) algorithm {
	return algorithm{word: word, Transform: message.Transform{Type: message.PRF, ID: id}}
}

func sequence(word string, id uint16) algorithm {
	return algorithm{word: word, Transform: message.Transform{Type: message.Sequence, ID: id}, esp: true}
}

// algorithms are all that proposals can name. Of several words for one algorithm, the first is shown.
var algorithms = []algorithm{
	encryption("aes128", AESCBC, 128), encryption("aes192", AESCBC, 192), encryption("aes256", AESCBC, 256),
	encryption("aes128ctr", AESCTR, 128), encryption("aes192ctr", AESCTR, 192), encryption("aes256ctr", AESCTR, 256),
	encryption("aes128gcm8", AESGCM8, 128), encryption("aes192gcm8", AESGCM8, 192), encryption("aes256gcm8", AESGCM8, 256),
	encryption("aes128gcm12", AESGCM12, 128), encryption("aes192gcm12", AESGCM12, 192), encryption("aes256gcm12", AESGCM12, 256),
	encryption("aes128gcm16", AESGCM16, 128), encryption("aes192gcm16", AESGCM16, 192), encryption("aes256gcm16", AESGCM16, 256),
	encryption("chacha20poly1305", ChaCha20Poly1305, 0),
	encryption("sm4", SM4CBC, 0), encryption("sm4gcm16", SM4GCM16, 0),
	forESP(encryption("sm4ccm16", SM4CCM16, 0)),
	forESP(encryption("null", NULL, 0)),
	forESP(encryption("aes128gmac", AESGMAC, 128)), forESP(encryption("aes192gmac", AESGMAC, 192)), forESP(encryption("aes256gmac", AESGMAC, 256)),
	integrity("sha1", SHA1, PRFSHA1), integrity("sha256", SHA256, PRFSHA256), integrity("sha384", SHA384, PRFSHA384),
	integrity("sha512", SHA512, PRFSHA512), integrity("sm3", SM3, PRFSM3),
	function("prfsha1", PRFSHA1), function("prfsha256", PRFSHA256), function("prfsha384", PRFSHA384), function("prfsha512", PRFSHA512),
	function("prfsm3", PRFSM3),
	group("modp2048", MODP2048), group("modp3072", MODP3072), group("modp4096", MODP4096), group("modp6144", MODP6144),
	group("modp8192", MODP8192), group("ecp256", ECP256), group("ecp384", ECP384), group("ecp521", ECP521),
	group("x25519", X25519), group("curve25519", X25519), group("x448", X448), group("curve448", X448), group("sm2", SM2),
	sequence("esn", 1), sequence("noesn", 0),
}

// additional are the key exchanges that can follow another one.
var additional = []algorithm{group("mlkem768", MLKEM768)}

// AEAD reports whether an encryption algorithm needs no integrity algorithm.
func AEAD(id uint16) bool {
	switch id {
	case AESGCM8, AESGCM12, AESGCM16, ChaCha20Poly1305, SM4GCM16, SM4CCM16, AESGMAC:
		return true
	}
	return false
}

// Words are all words that a proposal of a protocol can have, besides those of additional key exchanges.
func Words(protocol message.Protocol) (words []string) {
	for _, a := range algorithms {
		if protocol == message.ProtocolESP && a.Type == message.PRF || protocol == message.ProtocolIKE && a.esp {
			continue
		}
		words = append(words, a.word)
	}
	return words
}

// ParseProposal reads a proposal as people write it: words with hyphens between them, "aes256gcm16-prfsha256-x25519-ke1_mlkem768" or
// "aes128-sha256-x25519-esn". Several words of one type are a choice, the first preferred.
func ParseProposal(protocol message.Protocol, text string) (p message.Proposal, err error) {
	p.Protocol = protocol
	for _, word := range strings.Split(text, "-") {
		found := false
		if rest, is := strings.CutPrefix(word, "ke"); is && len(rest) > 2 && rest[0] >= '1' && rest[0] <= '7' && rest[1] == '_' {
			for _, a := range slices.Concat(additional, algorithms) {
				if a.word == rest[2:] && a.Type == message.KeyExchange {
					p.Transforms, found = append(p.Transforms, message.Transform{Type: message.AdditionalKE1 + message.TransformType(rest[0]-'1'), ID: a.ID}), true
					break
				}
			}
		}
		for _, a := range algorithms {
			if a.word != word || protocol == message.ProtocolESP && a.Type == message.PRF || protocol == message.ProtocolIKE && a.esp {
				continue
			}
			p.Transforms, found = append(p.Transforms, a.Transform), true
		}
		if !found {
			return p, fmt.Errorf("%q is not an algorithm of %s", word, map[message.Protocol]string{message.ProtocolIKE: "IKE", message.ProtocolESP: "ESP"}[protocol])
		}
	}
	aeads, others := 0, 0
	for _, t := range Of(p.Transforms, message.Encryption) {
		if AEAD(t.ID) {
			aeads++
		} else {
			others++
		}
	}
	macs, prfs := Of(p.Transforms, message.Integrity), Of(p.Transforms, message.PRF)
	switch {
	case aeads+others == 0:
		return p, fmt.Errorf("%q has no encryption algorithm", text)
	case aeads > 0 && others > 0:
		return p, fmt.Errorf("%q mixes algorithms that encrypt and authenticate with algorithms that only encrypt: write two proposals", text)
	case others > 0 && len(macs) == 0:
		return p, fmt.Errorf("%q has no integrity algorithm", text)
	case protocol == message.ProtocolIKE && len(Of(p.Transforms, message.KeyExchange)) == 0:
		return p, fmt.Errorf("%q has no key exchange", text)
	case len(Of(p.Transforms, message.KeyExchange)) == 0 && slices.ContainsFunc(p.Transforms, func(t message.Transform) bool { return t.Type >= message.AdditionalKE1 }):
		return p, fmt.Errorf("%q has an additional key exchange, and no key exchange before it: write for example %s-x25519", text, strings.SplitN(text, "-", 2)[0])
	}
	if protocol == message.ProtocolIKE && len(prfs) == 0 {
		for _, m := range macs {
			for _, a := range algorithms {
				if a.Transform == m {
					p.Transforms = append(p.Transforms, message.Transform{Type: message.PRF, ID: a.prf})
				}
			}
		}
		if len(macs) == 0 {
			return p, fmt.Errorf("%q has no pseudorandom function", text)
		}
	}
	if aeads > 0 {
		// Of an AEAD, the integrity algorithm only stands for the function that goes with it.
		p.Transforms = slices.DeleteFunc(p.Transforms, func(t message.Transform) bool { return t.Type == message.Integrity })
	}
	if protocol == message.ProtocolESP && len(Of(p.Transforms, message.Sequence)) == 0 {
		p.Transforms = append(p.Transforms, message.Transform{Type: message.Sequence, ID: 1}, message.Transform{Type: message.Sequence, ID: 0})
	}
	return p, nil
}

// Of returns the transforms of a type.
func Of(all []message.Transform, t message.TransformType) (some []message.Transform) {
	for _, one := range all {
		if one.Type == t {
			some = append(some, one)
		}
	}
	return some
}

// Get returns the chosen transform of a type; the zero Transform: there is none.
func Get(all []message.Transform, t message.TransformType) message.Transform {
	for _, one := range all {
		if one.Type == t {
			return one
		}
	}
	return message.Transform{}
}

// Without returns a proposal without transforms of some types.
func Without(p message.Proposal, types ...message.TransformType) message.Proposal {
	p.Transforms = slices.DeleteFunc(slices.Clone(p.Transforms), func(t message.Transform) bool { return slices.Contains(types, t.Type) })
	return p
}

// AdditionalTypes are the types of additional key exchanges.
func AdditionalTypes() (all []message.TransformType) {
	for t := message.AdditionalKE1; t <= message.AdditionalKE7; t++ {
		all = append(all, t)
	}
	return all
}

// Choose returns the first of our proposals that one of the peer's agrees with, reduced to one transform of each type, with the number and
// the SPI of the peer's. preferred is the key exchange that the peer has sent data for; 0: any.
func Choose(ours, theirs []message.Proposal, preferred uint16) (chosen message.Proposal, ok bool) {
	for _, o := range ours {
		for _, t := range theirs {
			if o.Protocol != t.Protocol {
				continue
			}
			if transforms, agree := agree(o.Transforms, t.Transforms, preferred); agree {
				return message.Proposal{Number: t.Number, Protocol: t.Protocol, SPI: t.SPI, Transforms: transforms}, true
			}
		}
	}
	return chosen, false
}

func agree(ours, theirs []message.Transform, preferred uint16) (chosen []message.Transform, ok bool) {
	for kind := message.Encryption; kind <= message.AdditionalKE7; kind++ {
		mine, other := Of(ours, kind), Of(theirs, kind)
		switch {
		case len(mine) == 0 && len(other) == 0:
			continue
		case len(other) == 0:
			return nil, false
		case len(mine) == 0:
			// RFC 7296 section 3.3.6: the peer may offer NONE. Sequence numbers of 32 bits are the default.
			none := slices.ContainsFunc(other, func(t message.Transform) bool { return t.ID == 0 })
			if !none {
				return nil, false
			}
			continue
		}
		found := false
		for _, m := range mine {
			if !slices.Contains(other, m) {
				continue
			}
			if !found || kind == message.KeyExchange && m.ID == preferred {
				if found {
					chosen = chosen[:len(chosen)-1]
				}
				chosen, found = append(chosen, m), true
			}
		}
		if !found {
			return nil, false
		}
	}
	return chosen, len(chosen) > 0
}

// Answers reports whether the choice of a responder matches an offer: one transform of each type that we offered.
func Answers(offered []message.Proposal, chosen message.Proposal) bool {
	for _, o := range offered {
		if o.Protocol != chosen.Protocol || o.Number != chosen.Number {
			continue
		}
		types, good := map[message.TransformType]int{}, true
		for _, t := range chosen.Transforms {
			types[t.Type]++
			good = good && types[t.Type] == 1 && slices.Contains(o.Transforms, t)
		}
		for _, t := range o.Transforms {
			good = good && types[t.Type] == 1
		}
		if good {
			return true
		}
	}
	return false
}

// Text shows chosen transforms as people write a proposal.
func Text(all []message.Transform) string {
	var words []string
	for _, t := range all {
		kind, prefix := t.Type, ""
		if kind >= message.AdditionalKE1 && kind <= message.AdditionalKE7 {
			prefix = "ke" + strconv.Itoa(int(kind-message.AdditionalKE1)+1) + "_"
			kind = message.KeyExchange
		}
		for _, a := range slices.Concat(algorithms, additional) {
			if a.Type == kind && a.ID == t.ID && a.KeyLength == t.KeyLength {
				words = append(words, prefix+a.word)
				break
			}
		}
	}
	return strings.Join(words, "-")
}

// Algorithms that peers offer and that are not supported, for messages to operators.
var unsupported = []algorithm{
	encryption("des", 2, 0), encryption("3des", 3, 0), encryption("blowfish128", 7, 128), encryption("blowfish256", 7, 256),
	encryption("aes128ccm8", 14, 128), encryption("aes256ccm8", 14, 256), encryption("aes128ccm12", 15, 128), encryption("aes256ccm12", 15, 256),
	encryption("aes128ccm16", 16, 128), encryption("aes256ccm16", 16, 256),
	encryption("camellia128", 23, 128), encryption("camellia192", 23, 192), encryption("camellia256", 23, 256),
	integrity("md5", 1, 0), integrity("aesxcbc", 5, 0), integrity("aescmac", 8, 0),
	function("prfmd5", 1), function("prfaesxcbc", 4), function("prfaescmac", 8),
	group("modp768", 1), group("modp1024", 2), group("modp1536", 5), group("modp1024s160", 22), group("modp2048s224", 23), group("modp2048s256", 24),
	group("ecp192", 25), group("ecp224", 26), group("ecp224bp", 27), group("ecp256bp", 28), group("ecp384bp", 29), group("ecp512bp", 30),
}

// A peer may offer thousands of algorithms.
const (
	offeredProposals  = 4
	offeredTransforms = 40
)

// Offer shows proposals of either end, also algorithms that are not supported: the first proposals if there are many.
func Offer(all []message.Proposal) string {
	var texts []string
	for i, p := range all {
		if i == offeredProposals {
			texts = append(texts, fmt.Sprintf("%d more", len(all)-i))
			break
		}
		var words []string
		for j, t := range p.Transforms {
			if j == offeredTransforms {
				words = append(words, "...")
				break
			}
			words = append(words, offered(t))
		}
		texts = append(texts, strings.Join(words, "-"))
	}
	if len(texts) == 0 {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}

// offered is the word of a transform, or its numbers.
func offered(t message.Transform) string {
	if word := Text([]message.Transform{t}); word != "" {
		return word
	}
	for _, a := range unsupported {
		if a.Transform == t {
			return a.word
		}
	}
	kind, known := map[message.TransformType]string{message.Encryption: "encryption", message.PRF: "prf", message.Integrity: "integrity", message.KeyExchange: "group",
		message.Sequence: "sequence"}[t.Type]
	if !known {
		kind = "type" + strconv.Itoa(int(t.Type)) + "."
	}
	word := kind + strconv.Itoa(int(t.ID))
	if t.KeyLength != 0 {
		word += "/" + strconv.Itoa(int(t.KeyLength))
	}
	return word
}
