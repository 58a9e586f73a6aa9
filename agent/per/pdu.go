// SPDX-License-Identifier: Apache-2.0

package per

// DecodePDU reads the head of a message of an application protocol (TS 38.413 section 9.4.3): a CHOICE of initiating message, successful
// and unsuccessful outcome, each a procedure code, a criticality and an open type.
func DecodePDU(octets []byte) (outcome uint8, code uint8, criticality Criticality, value []byte, err error) {
	r := &reader{octets: octets}
	extended, err := r.bit()
	if err != nil {
		return 0, 0, 0, nil, err
	}
	if extended {
		return 0, 0, 0, nil, syntax("an unknown kind of message")
	}
	chosen, err := r.constrained(0, 2)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	number, err := r.constrained(0, 255)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	level, err := r.constrained(0, 2)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	if value, err = r.open(); err == nil {
		err = r.end()
	}
	return uint8(chosen), uint8(number), Criticality(level), value, err
}

// EncodePDU writes a message.
func EncodePDU(outcome uint8, code uint8, criticality Criticality, value []byte) []byte {
	w := &writer{}
	w.bit(false)
	w.bits(uint64(outcome), 2)
	w.align()
	w.bits(uint64(code), 8)
	w.bits(uint64(criticality), 2)
	w.open(value)
	return w.whole()
}
