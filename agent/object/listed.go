// SPDX-License-Identifier: Apache-2.0

// Objects that a data plane lists by the thousand. Their needs and claims are computed on demand: usually the service
// makes the same object again before.
package object

// NewListed stores objects without reading their specs: none of them is Examined. They share memory.
func NewListed(count int, at func(i int) (kind *Kind, name, spec string)) []StoredObject {
	all := make([]StoredObject, count)
	bytes := 0
	for i := range all {
		_, name, spec := at(i)
		bytes += wordLength(name) + len(spec)
	}
	room := make([]byte, 0, bytes)
	for i := range all {
		kind, name, spec := at(i)
		all[i].kind, all[i].spec = kind, uint32(wordLength(name))
		all[i].found = all[i].spec + uint32(len(spec))
		room = append(appendWord(room, name), spec...)
	}
	text := string(room)
	for i := range all {
		all[i].text, text = text[:all[i].found], text[all[i].found:]
	}
	return all
}

// wordLength is how many bytes appendWord appends.
func wordLength(s string) int {
	n := len(s) + 1
	for length := len(s); length >= 0x80; length >>= 7 {
		n++
	}
	return n
}
